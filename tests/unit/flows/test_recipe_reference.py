from flows.config import PipelineConfig
from flows.recipe_reference import BEGIN, DOCUMENT, document, reference


def row_of(key: str, table: str) -> str:
    part = reference().split(f"### {table}\n", 1)[1].split("\n### ", 1)[0]
    return next(line for line in part.splitlines() if line.startswith(f"| `{key}` "))


def test_the_document_lists_the_settings_of_today():
    text = DOCUMENT.read_text(encoding="utf-8")
    assert document(text) == text, "run `python -m flows.recipe_reference`"


def test_what_stands_above_the_mark_is_kept():
    assert document(f"# By hand\n\n{BEGIN}\nold").startswith(f"# By hand\n\n{BEGIN}\n\n### The recipe\n")


def test_every_group_of_settings_has_exactly_one_table():
    text, schema = reference(), PipelineConfig.model_json_schema()
    groups = [name for name, group in schema["$defs"].items() if group.get("type") == "object"]
    assert text.count("\n### `[") == len(groups)


def test_a_limit_a_default_and_a_meaning_stand_in_the_row():
    assert row_of("num_iterations", "The recipe") == (
        "| `num_iterations` | integer >= 1 | `1` | Iterations per run (I of Algorithm 1) unless --iterations says otherwise. |"
    )


def test_a_setting_without_default_is_required_and_one_that_may_be_left_out_says_so():
    assert "| required |" in row_of("num_steps", "The recipe")
    assert "| integer >= 1 or left out | left out |" in row_of("minibatch_completions", "`[update]`")


def test_kinds_of_a_group_are_named_in_the_row_and_in_the_titles():
    assert "a table of kind `scratch`, `local`, `hub`, `smollm2`" in row_of("policy", "The recipe")
    assert '### `[policy]` with `kind = "hub"`\n' in reference()
