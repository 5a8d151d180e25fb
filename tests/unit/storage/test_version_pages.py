"""A version's page is drawn from its tags: every edge a link, numbers of MLflow, text of people harmless, never too long."""

import secrets
from urllib.parse import unquote

import pytest

from storage import (
    checkpoints,
    delivery,
    journal,
    lineage_pages,
    lock,
    mlflow_client,
    registry,
    tracking,
    version_pages,
)
from storage.manifest import Provenance
from storage.mlflow_client import of
from storage.refs import DatasetRef


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    root = tmp_path_factory.mktemp("store")
    mlflow_client.client(root)
    return root


@pytest.fixture
def place(store):
    with lock.hold(store, f"loop-{secrets.token_hex(4)}") as place:
        yield place


def version(place, role="policy", number=None, **tags):
    """A committed model of the iteration, registered with these tags (``_`` for a dot, grpo. before it)."""

    def write(folder):
        (folder / "model.safetensors").write_bytes(f"{role} {place.iteration}".encode())

    provenance = Provenance(stage=role, inputs={})
    found = checkpoints.find(place, role, provenance) or checkpoints.publish(place, role, write, provenance)
    ref = found.model_copy(update={"version": number or str(place.iteration + 1)})
    run = tracking.ensure_run(place, name="r", tags={"grpo.iteration": str(place.iteration)}, params={})
    named = {f"grpo.{name}": text for name, text in tags.items()}
    return registry.register(place, ref, run_id=run, tags={"grpo.sentence": "s", **named}, description="d"), run


def page(place, ref):
    name = registry.registered_name(place.lineage, ref.role)
    return of(place).get_model_version(name, registry.number_of(place, ref)).description


def draw(place, ref, strip="", pictures=None):
    version_pages.draw(place, ref, strip=strip, pictures=pictures or {})
    return page(place, ref)


def test_every_edge_of_the_tags_is_a_link(place):
    later = place.at(iteration=1)
    experiment, name = tracking.ensure_experiment(place), place.lineage
    datasets = {
        "completions_001": ("a" * 64, 32), "completions_002": ("b" * 64, 16), "reward_training": ("c" * 64, 7),
        "evaluation": ("d" * 64, 8),
    }  # fmt: skip
    version(place), version(place, "reward")
    ref, run = version(
        later, parent=f"models:/{name}-policy/1", reference=f"models:/{name}-policy/1",
        reward_model=f"models:/{name}-reward/1", datasets=version_pages.tag_of(datasets), sentence="iteration 1 · x",
    )  # fmt: skip
    lines = draw(later, ref).splitlines()
    assert lines[0] == "iteration 1 · x"
    rows = dict(line.strip("| ").split(" | ", 1) for line in lines if line.startswith("| ") and "came from" not in line)
    assert rows["parent"] == rows["reference"] == f"[{name}-policy v1](#/models/{name}-policy/versions/1)"
    assert rows["reward model"] == f"[{name}-reward v1](#/models/{name}-reward/versions/1)"
    assert rows["run"] == f"[iteration 1](#/experiments/{experiment}/runs/{run}?workflowType=machine_learning)"
    assert rows["rollouts"].startswith("[48 rows in 2 tables](")
    assert "tags.`grpo.iteration` = '1' and dataset.context LIKE 'completions_%'" in unquote(rows["rollouts"])
    assert rows["reward and replay data"].startswith("[7 rows](")
    assert rows["reward and replay data"].endswith(f"`{'c' * 12}`")
    assert f"dataset.digest = '{'d' * 32}'" in unquote(rows["evaluation"])
    assert f"tags.`grpo.policy` = 'models:/{name}-policy/2'" in unquote(rows["**used by**"])


def test_the_searches_behind_the_links_find_the_run(place):
    """The address holds the query as MLflow takes it."""
    version(place)
    _, run = version(place.at(iteration=1))
    table = DatasetRef(uri=str(place.lineage_folder), digest="e" * 64, table="completions", num_rows=1)
    from mlflow.entities import Dataset, DatasetInput, InputTag

    dataset = Dataset(name="completions", digest=table.digest[:32], source_type="local", source="{}")
    of(place).log_inputs(run, datasets=[DatasetInput(dataset, [InputTag("mlflow.data.context", "completions_001")])])
    experiment = tracking.ensure_experiment(place)
    for query in (
        "tags.`grpo.iteration` = '1' and dataset.context LIKE 'completions_%'",
        f"dataset.digest = '{'e' * 32}'",
    ):
        link = lineage_pages.run_search_link(experiment, query)
        asked = unquote(link.partition("searchFilter=")[2].partition("&")[0])
        assert [each.info.run_id for each in of(place).search_runs([experiment], asked)] == [run]


def test_a_link_leads_to_mlflows_own_number_where_its_counter_has_gone_on(place):
    name = f"{place.lineage}-policy"
    version(place)
    of(place).create_model_version(name, of(place).get_model_version(name, "1").source, await_creation_for=0)
    of(place).delete_model_version(name, "2")
    second, _ = version(place.at(iteration=1), parent=f"models:/{name}/1")
    third, _ = version(place.at(iteration=2), parent=f"models:/{name}/2")
    assert (second.version, registry.number_of(place, second), registry.number_of(place, third)) == ("2", "3", "4")
    strip = f'<div><a href="#/models/{name}/versions/{version_pages.placeholder("policy", "2")}">x</a></div>'
    shown = draw(place.at(iteration=2), third, strip)
    assert f"| parent | [{name} v2](#/models/{name}/versions/3) |" in shown
    assert f'<a href="#/models/{name}/versions/3">x</a>' in shown


def test_the_strip_stays_when_a_tag_is_added_and_its_pictures_stand_beside_the_run_of_the_iteration(place):
    version(place)
    ref, run = version(place.at(iteration=1))
    strip = '<div><img src="get-artifact?path=lineage%2Fp.svg&run_uuid={run}"></div>'
    assert f"run_uuid={run}" in draw(place.at(iteration=1), ref, strip, {"lineage/p.svg": "<svg/>"})
    assert [each.path for each in of(place).list_artifacts(run, "lineage")] == ["lineage/p.svg"]
    journal.append(
        place.at(iteration=0), "version_tags", {"ref": ref.model_dump(), "tags": {"grpo.rollback": "by kim"}}
    )
    assert delivery.deliver_now(place) == 0
    shown = page(place, ref)
    assert f"run_uuid={run}" in shown
    assert "| gone back to by hand | by kim |" in shown
    assert "| run | [iteration 1](" in shown  # not the iteration after which it was decided


def test_what_people_say_becomes_neither_a_link_nor_a_tag_nor_a_second_row(place):
    said = "</td><script>x</script> [a](http://evil) | b\nc `d` <img src=x>"
    ref, _ = version(place, rollback=said, sentence=f"retrained {said}")
    shown = draw(place, ref)
    assert "<script" not in shown
    assert "<img" not in shown
    (row,) = [line for line in shown.splitlines() if line.startswith("| gone back")]
    assert row.endswith(r"\[a\](http://evil) \| b c \`d\` &lt;img src=x&gt; |")


@pytest.mark.parametrize("num_rows", [1, 5, 12])
def test_a_page_is_never_longer_than_postgresql_takes_and_parents_and_searches_stay(place, num_rows):
    name = place.lineage
    tile = (
        '<a href="#/models/lineage-policy/versions/1"><img src="get-artifact?path=lineage%2Fp.svg&run_uuid={run}"></a>'
    )
    strip = "<div>" + tile * 3 * num_rows + "</div>"
    datasets = {f"table_{number}": ("f" * 64, 1) for number in range(20)}
    ref, _ = version(
        place, parent=f"models:/{name}-policy/1", guards="g" * 900, promotion="p" * 900,
        datasets=version_pages.tag_of(datasets),
    )  # fmt: skip
    shown = draw(place, ref, strip)
    assert len(shown) <= lineage_pages.MAX_CHARACTERS
    assert f"[{name}-policy v1]" in shown
    assert "**used by**" in shown
    assert ("<div>" in shown) == (num_rows < 12)


def test_a_version_of_before_keeps_its_sentence_and_gets_the_tags_that_are_kept_since(place):
    ref, run = version(place)
    name = registry.registered_name(place.lineage, "policy")
    of(place).delete_model_version_tag(name, "1", "grpo.sentence")
    of(place).update_model_version(name, "1", description="iteration 0 · old\n\nmore")
    assert draw(place, ref).splitlines()[0] == "iteration 0 · old"
    registry.register(place, ref, run_id=run, tags={"grpo.sentence": "iteration 0 · new"}, description="d")
    assert draw(place, ref).splitlines()[0] == "iteration 0 · new"


def test_a_version_whose_weights_were_removed_can_be_recorded_anew_and_says_so(place):
    ref, _ = version(place)
    checkpoints.prune(place, ref)
    of(place).delete_registered_model(registry.registered_name(place.lineage, "policy"))
    for model in of(place).search_logged_models([tracking.ensure_experiment(place)]):
        of(place).delete_logged_model(model.model_id)
    again, _ = version(place)
    assert again == ref
    assert "| weights | removed by igrpo gc |" in draw(place, ref)
