"""MLflow's own pages of a small lineage in a real browser: every edge one click away, and pages that run nothing."""

import shutil
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from flows.servers import free_port, start_guarded, stop, wait_until_healthy
from flows.ui import mlflow_command, mlflow_environment
from tests.integration.browser import Page, browser, needs_chromium
from tests.integration.conftest import Cli
from tests.unit.tasks.reporting.test_report_page import page as report_page

pytestmark = [needs_chromium, pytest.mark.orchestration]

POLICY = "small-policy"
REWARD = "small-reward"


class Site(NamedTuple):
    """MLflow's address over a store, and a tab."""

    url: str
    page: Page

    def version(self, name: str, version: int) -> None:
        """Open a version's page and wait for its description."""
        self.page.open("about:blank")
        self.page.open(f"{self.url}/#/models/{name}/versions/{version}")
        self.page.wait_for_text("came from", "used by")


@pytest.fixture(scope="module")
def site(uninterrupted: Cli, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    root, port = uninterrupted.store, free_port()
    log = tmp_path_factory.mktemp("server") / "mlflow.log"
    server = start_guarded(mlflow_command(root, port), log, mlflow_environment(root))
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until_healthy(server, f"{url}/health", log, name="MLflow")
        with browser(tmp_path_factory.mktemp("profile")) as page:
            yield Site(url, page)
    finally:
        stop(server)


def test_the_server_is_not_told_its_database_on_its_command_line(uninterrupted):
    assert not [part for part in mlflow_command(uninterrupted.store, 5000) if "sqlite" in part or "mlflow.db" in part]
    assert mlflow_environment(uninterrupted.store)["MLFLOW_BACKEND_STORE_URI"].endswith("mlflow.db")


@pytest.mark.parametrize(
    ("row", "target", "leads_to"),
    [
        ("parent", rf"^#/models/{POLICY}/versions/2$", "policy version 2"),
        ("reference", rf"^#/models/{POLICY}/versions/2$", "policy version 2"),
        ("reward model", rf"^#/models/{REWARD}/versions/2$", "reward version 2"),
    ],
)
def test_from_a_policy_one_click_leads_to_each_model_it_came_from(site, row, target, leads_to):
    site.version(POLICY, 3)
    names = site.page.evaluate(
        f"[...document.querySelectorAll('tr')].filter(each => each.innerText.startsWith({row!r}))"
        ".map(each => each.querySelector('a').getAttribute('href'))"
    )
    assert names == [target.strip("^$")]
    site.page.click_link(target)
    name = REWARD if "reward" in leads_to else POLICY
    site.page.wait_for(leads_to, lambda: site.page.address.endswith(f"#/models/{name}/versions/2"))
    site.page.wait_for_text("iteration 1", "came from")


@pytest.mark.parametrize(
    ("row", "query", "runs"),
    [
        ("rollouts", "dataset.context LIKE 'completions_%'", 1),
        ("rewards", "dataset.context LIKE 'rewards_%'", 1),
        ("samples", "dataset.context LIKE 'samples_%'", 1),
        ("reward and replay data", "dataset.digest = '", 1),
        ("evaluation", "dataset.digest = '", 1),
        ("prompts", "dataset.digest = '", 3),
    ],
)
def test_from_a_policy_one_click_leads_to_the_runs_of_each_table(site, row, query, runs):
    """The prompts belong to all three runs, every other table of iteration 2 to its run alone."""
    site.version(POLICY, 3)
    address = site.page.evaluate(
        f"[...document.querySelectorAll('tr')].find(each => each.innerText.startsWith({row + chr(9)!r}))"
        ".querySelector('a').getAttribute('href')"
    )
    assert query in urllib.parse.unquote(address)
    site.page.click_link(f"^{_escaped(urllib.parse.unquote(address))}$")
    site.page.wait_for("the search", lambda: "/runs?searchFilter=" in site.page.address)
    site.page.wait_for_text("0002 iteration")
    site.page.wait_for(
        f"{runs} runs", lambda: sum(name in site.page.text for name in ("0000 bootstrap", "0001 ", "0002 ")) == runs
    )


def test_from_a_reward_model_one_click_leads_to_every_policy_it_trained(site):
    site.version(REWARD, 2)
    site.page.click_link(rf"searchFilter=tags\.`grpo\.reward_model` = 'models:/{REWARD}/2'")
    site.page.wait_for_text("0002 iteration")
    assert "0001 iteration" not in site.page.text
    site.page.click_link(r"^#/experiments/\d+/runs/[0-9a-f]{32}")
    site.page.wait_for_text(POLICY)  # the run's registered versions


def test_the_strip_is_drawn_and_each_tile_leads_to_its_version(site):
    site.version(POLICY, 3)
    loaded = "[...document.querySelectorAll('a img')].filter(each => each.naturalWidth > 0).length"
    site.page.wait_for(
        "eight linked tiles", lambda: site.page.evaluate(loaded) == 8
    )  # the newest policy has no rollouts yet
    tiles = site.page.evaluate(
        "[...document.querySelectorAll('a img')].map(each => each.parentElement.getAttribute('href'))"
    )
    assert [tiles[each] for each in (0, 3, 6)] == [f"#/models/{POLICY}/versions/{number}" for number in (1, 2, 3)]
    assert [tiles[each] for each in (2, 5, 7)] == [f"#/models/{REWARD}/versions/{number}" for number in (1, 2, 3)]
    for number, each in ((1, 1), (2, 4)):
        assert f"/runs?searchFilter=tags.`grpo.iteration` = '{number}'" in urllib.parse.unquote(tiles[each])
    site.page.click_link(f"^#/models/{REWARD}/versions/1$")  # the strip's tile is the only link to it
    site.page.wait_for("reward version 1", lambda: site.page.address.endswith(f"#/models/{REWARD}/versions/1"))


def test_the_graph_beside_the_store_is_walked_by_its_boxes(site, uninterrupted):
    path = uninterrupted.store / "small" / "lineage.html"
    assert path.is_file()  # the run wrote it
    site.page.open(path.as_uri())
    site.page.wait_for_text("Every version and table")
    site.page.click_link("^#reward-2$")
    site.page.wait_for("the entry", lambda: site.page.address.endswith("#reward-2"))
    width = site.page.evaluate("document.querySelector('svg').getBoundingClientRect().width")
    site.page.evaluate("document.getElementById('zoom-200').click()")
    assert site.page.evaluate("document.querySelector('svg').getBoundingClientRect().width") == 4 * width


MARK = "document.title.includes('HIT') || window.hit === 1"
PAYLOADS = (
    "<script>window.hit=1;document.title='HIT'</script>",
    "<img src=x onerror=\"window.hit=1;document.title='HIT'\">",
    "<svg onload=\"window.hit=1;document.title='HIT'\"></svg>",
    '"><iframe srcdoc="<script>parent.hit=1</script>"></iframe>',
    '[click](javascript:window.hit=1) <a href="javascript:window.hit=1">x</a>',
    "<style>@import 'http://127.0.0.1:9/evil.css';</style><link rel=stylesheet href=http://127.0.0.1:9/evil.css>",
    '{{ 7 * 7 }} ${alert(1)} <details open ontoggle="window.hit=1">',
)


@pytest.fixture(scope="module")
def poisoned(uninterrupted, tmp_path_factory) -> Path:
    """A store whose newest decision is made of attacks: they reach MLflow, the graph and the model card."""
    root = tmp_path_factory.mktemp("poisoned") / "store"
    shutil.copytree(uninterrupted.store, root)
    cli = Cli(root, uninterrupted.env["PREFECT_API_URL"])
    done = cli("promote", "small", "1", "--why", " ".join(PAYLOADS), "--by", PAYLOADS[1])
    assert done.returncode == 0, done.stderr + done.stdout
    done = cli("export", "small", "--to", str(root.parent / "export"))
    assert done.returncode == 0, done.stderr + done.stdout
    return root


def test_what_a_model_or_a_person_wrote_runs_nowhere(poisoned, tmp_path):
    root = poisoned
    report = tmp_path / "report.html"
    report.write_text(report_page(text=" ".join(PAYLOADS), prompt=PAYLOADS[0], answer=PAYLOADS[1]))
    pages = [report, root / "small" / "lineage.html"]
    port, log = free_port(), tmp_path / "mlflow.log"
    server = start_guarded(mlflow_command(root, port), log, mlflow_environment(root))
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until_healthy(server, f"{url}/health", log, name="MLflow")
        with browser(tmp_path / "profile") as page:
            for path in pages:
                page.open(path.as_uri())
                page.wait_for_text("onerror=")
                assert not page.evaluate(MARK)
            for name, version in ((POLICY, 1), (POLICY, 2), (REWARD, 2)):
                page.open("about:blank")
                page.open(f"{url}/#/models/{name}/versions/{version}")
                # the decision is about version 1: its page shows the attacks, as text
                page.wait_for_text("came from" if version > 1 else "onerror=")
                assert not page.evaluate(MARK)
            assert not page.evaluate(
                "[...document.querySelectorAll('a')].some(each => each.href.startsWith('javascript:window'))"
            )
            assert page.dialogs == []
            assert not [each for each in page.requests if "evil" in each or each.endswith("/x")]
    finally:
        stop(server)


def test_an_attack_that_works_is_noticed(tmp_path):
    """The proof that the test above can fail: the same payload in a page that does not escape it."""
    bad = Path(tmp_path / "bad.html")
    bad.write_text(f"<!doctype html><title>t</title><body>{PAYLOADS[1]} onerror=")
    with browser(tmp_path / "profile") as page:
        page.open(bad.as_uri())
        page.wait_for("the mark", lambda: page.evaluate(MARK))


def _escaped(text: str) -> str:
    """The text as a regular expression of JavaScript that matches it alone."""
    return "".join(f"\\{each}" if each in r"\^$.*+?()[]{}|/" else each for each in text)
