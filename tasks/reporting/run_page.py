"""An iteration as the table and the text that Prefect shows on the page of a run."""

from collections.abc import Mapping

SHOWN = {
    "reward_mean": "mean reward of the rollouts",
    "evaluation/accuracy": "held-out accuracy",
    "evaluation/greedy_accuracy": "held-out accuracy, greedy",
    "evaluation/reward_model_mean": "reward model's held-out mean",
    "evaluation/reward_model_gap": "reward model's mean less accuracy",
    "reward_model/heldout_accuracy_after": "reward model's accuracy on held-out labels",
    "reward_model/anchor_accuracy_after": "reward model's accuracy on anchor labels",
}
"""Measures of a record, in the order in which they are shown."""


def iteration_rows(before: Mapping[str, float], after: Mapping[str, float]) -> list[dict[str, str]]:
    """One row per measure that the iteration has: its value in the record before ("" where that has none) and now."""
    return [
        {"measure": label, "before": _shown(before.get(name)), "after": _shown(after[name])}
        for name, label in SHOWN.items()
        if name in after
    ]


def iteration_text(title: str, facts: Mapping[str, str], links: Mapping[str, str]) -> str:
    """Markdown: a heading, a line per fact that is not empty, a line of links. A path becomes code, an address a link."""
    lines = [f"## {escaped(title)}", ""]
    lines += [f"- **{name}** {escaped(fact)}" for name, fact in facts.items() if fact]
    shown = [
        f"[{name}]({target})" if target.startswith("http") else f"{name} `{target}`" for name, target in links.items()
    ]
    return "\n".join([*lines, "", " · ".join(shown), ""])


def escaped(text: str) -> str:
    """Text as Markdown that shows it as it is: no tag, link or emphasis of its own."""
    return "".join(f"\\{letter}" if letter in r"\`*_[]<>#|~!" else letter for letter in text.replace("\n", " "))


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
