"""The model card of an exported version: what it is, its scores with intervals, how it was trained, from what data."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tasks.evaluation.bootstrap import paired_bootstrap
from tasks.reporting.licences import card_licence, licences

CONFIDENCE = 0.95
NUM_RESAMPLES = 2000


class Score(NamedTuple):
    """A mean over held-out prompts with the ends of its interval (percentile bootstrap over prompts, 95 %)."""

    name: str
    mean: float
    low: float
    high: float
    num_prompts: int


class Data(NamedTuple):
    """A table beside the card: rows, and the digest that it has in the store."""

    name: str
    num_rows: int
    digest: str


class Version(NamedTuple):
    """What an exported version is and came from; ``parents`` are named as in MLflow (role -> models:/NAME/VERSION)."""

    lineage: str
    version: str
    iteration: int
    digest: str
    code: str
    created_at: str
    parents: Mapping[str, str]
    note: str


def scores(rows: Sequence[Mapping[str, Any]], *, seed: int) -> list[Score]:
    """Sampled and greedy accuracy of the rows of an evaluation table; a measure without a value is left out."""
    measures = {"accuracy, sampled": "pass_at_1", "accuracy, greedy": "greedy_correct"}
    found = []
    for name, column in measures.items():
        if values := [float(row[column]) for row in rows if row[column] is not None]:
            each = paired_bootstrap(values, confidence=CONFIDENCE, num_resamples=NUM_RESAMPLES, seed=seed)
            found.append(Score(name, each.mean, each.low, each.high, len(values)))
    return found


def model_card(version: Version, recipe: Mapping[str, Any], measured: Sequence[Score], data: Sequence[Data]) -> str:
    """Markdown with the front matter that model hubs read."""
    update = recipe["update"]
    head = ["---", "library_name: transformers", f"license: {card_licence(recipe)}"]
    head += ["tags: [grpo, reinforcement-learning, iterative-grpo]", "---", ""]
    title = [f"# {version.lineage}, policy v{version.version}", ""]
    title += [f"A policy after {version.iteration} iterations of GRPO with a reward model that learns beside it"]
    title += ["(DeepSeekMath, arXiv:2402.03300, Algorithm 1).", ""]
    title += ["```python", "from transformers import AutoModelForCausalLM, AutoTokenizer", ""]
    title += ['model = AutoModelForCausalLM.from_pretrained("DIR")', 'tokenizer = AutoTokenizer.from_pretrained("DIR")']
    title += ["```", ""]
    body = [
        *_section(
            "Scores",
            ("measure", "mean", "95 % interval", "held-out prompts"),
            [(s.name, f"{s.mean:.3f}", f"{s.low:.3f} to {s.high:.3f}", str(s.num_prompts)) for s in measured],
            "Percentile bootstrap over prompts. The prompts were held out of training; the policy was chosen with them.",
        ),
        *_section("How it was trained", ("what", "value"), _trained(version, recipe, update), version.note),
        *_section(
            "Data",
            ("table", "rows", "sha256 in the store"),
            [(f"data/{each.name}.parquet", str(each.num_rows), each.digest) for each in data],
            "Completions and labels were made by the models of this lineage.",
        ),
        *_section(
            "Licences",
            ("what", "licence"),
            list(licences(recipe).items()),
            "Unknown means that nobody recorded one: find out before you pass this on.",
        ),
    ]
    shown = json.dumps(recipe, indent=1, ensure_ascii=False)
    return "\n".join([*head, *title, *body, "## Recipe", "", "```json", shown, "```", ""])


def _trained(version: Version, recipe: Mapping[str, Any], update: Mapping[str, Any]) -> list[tuple[str, str]]:
    rollout = recipe["rollout"]
    rows = [
        ("algorithm", str(update.get("algorithm", "grpo"))),
        ("iterations", str(version.iteration)),
        ("steps per iteration", str(recipe["num_steps"])),
        ("prompts per step, completions per prompt", f"{rollout['prompts_per_step']}, {rollout['group_size']}"),
        ("verifiers", ", ".join(each["kind"] for each in recipe["scoring"]["verifiers"])),
        ("weight of the reward model", str(recipe["scoring"].get("reward_model_weight", 0))),
        ("seed", str(recipe["seed"])),
        ("sha256 of the weights in the store", version.digest),
        ("code", version.code),
        ("made at", version.created_at),
    ]
    return rows + [(role.replace("_", " "), name) for role, name in version.parents.items()]


def _section(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], note: str) -> list[str]:
    if not rows:
        return [f"## {title}", "", "Not measured.", ""]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    lines += [f"| {' | '.join(_cell(each) for each in row)} |" for row in rows]
    return [f"## {title}", "", *lines, "", *([note, ""] if note else [])]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
