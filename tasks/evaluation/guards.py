"""Guards: which bounds were passed, by how much, and what is to be done about it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tasks.evaluation.guards_config import Action, GuardsConfig

SEVERITY: dict[Action, int] = {"warn": 0, "rollback": 1, "stop": 2}
"""When several guards are passed, the gravest action is taken."""


@dataclass(frozen=True)
class Breach:
    """One bound that was passed."""

    measure: str
    value: float
    bound: float
    is_above: bool
    action: Action
    where: str
    """For example "step 3" or "evaluation"."""

    @property
    def evidence(self) -> str:
        """One sentence with the numbers, for people."""
        side, name = ("above", "max") if self.is_above else ("below", "min")
        return (
            f"guard {self.measure} ({self.action}): {self.value:.4g} at {self.where} is {side} "
            f"guards.{self.measure}.{name} {self.bound:.4g}"
        )


def breaches(measured: Mapping[str, float | None], config: GuardsConfig, where: str) -> tuple[Breach, ...]:
    """The guards whose bound is passed, in the order of the settings.

    A measure that is missing or None was not measured and passes no bound; NaN passes every bound, for nobody can say
    that it keeps one.
    """
    found = []
    for name in type(config).model_fields:
        guard, value = getattr(config, name), measured.get(name)
        if guard is None or value is None:
            continue
        if guard.max is not None and not value <= guard.max:
            found.append(Breach(name, value, guard.max, True, guard.action, where))
        elif guard.min is not None and not value >= guard.min:
            found.append(Breach(name, value, guard.min, False, guard.action, where))
    return tuple(found)


def gravest(found: Sequence[Breach]) -> Action | None:
    """The gravest action among the breaches, None when there are none."""
    return max((breach.action for breach in found), key=SEVERITY.__getitem__, default=None)


def evaluation_measures(metrics: Mapping[str, float], accuracy_before: float | None) -> dict[str, float | None]:
    """What the guards of an iteration look at, from the held-out evaluation's metrics; None where it was not measured."""
    accuracy = metrics.get("accuracy")
    lost = None if accuracy is None or accuracy_before is None else accuracy_before - accuracy
    return {"reward_model_gap": metrics.get("reward_model_gap"), "accuracy_drop": lost}
