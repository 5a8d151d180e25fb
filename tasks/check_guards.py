"""Hold what a step or an iteration measured against the guards of the recipe."""

import logging

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage import checkpoints, journal, tables
from storage.iterations import IterationRecord
from storage.refs import DatasetRef, Frozen
from tasks.evaluation.guards import Breach, breaches, evaluation_measures, gravest
from tasks.evaluation.guards_config import Action, GuardsConfig
from tasks.report import Opened, Step
from tasks.reporting.steps import summed

log = logging.getLogger(__name__)

CURE = (
    "look at the iteration (igrpo show, igrpo report), then go back to the champion (igrpo rollback LINEAGE), or go on by "
    "changing the guard in the recipe or with --set"
)


class GuardStopped(ValueError):
    """A guard whose action is "stop" was passed; everything that was finished is kept."""


class Guarded(Frozen):
    """What the guards say: the evidence of every bound that was passed, and the gravest action, None without any."""

    evidence: tuple[str, ...] = ()
    action: Action | None = None


@task(cache_policy=NO_CACHE)
def check_step(opened: Opened, step: Step, config: GuardsConfig) -> Guarded:
    """What a step measured, against the guards of steps.

    Raises:
        GuardStopped: an action is "stop". The step stays finished, so the next run comes here again.
    """
    sections = [
        {
            "completions": tables.metrics_of(each.completions),
            "rewards": tables.metrics_of(each.rewards),
            "samples": tables.metrics_of(each.samples),
            **({"policy": checkpoints.metrics_of(step.policy)} if number == 0 else {}),
        }
        for number, each in enumerate(step.rounds)
    ]
    found = breaches(summed(sections), config, f"iteration {opened.place.iteration}, step {step.number}")
    _record(opened, found, f"grpo.guards.step-{step.number:03d}")
    if gravest(found) == "stop":
        raise GuardStopped(f"{'; '.join(each.evidence for each in found)}. Stopped before the next step: {CURE}")
    return _guarded(found)


@task(cache_policy=NO_CACHE)
def check_evaluation(
    opened: Opened, evaluation: DatasetRef, last: IterationRecord, config: GuardsConfig, earlier: list[Guarded]
) -> Guarded:
    """What the iteration's evaluation measured, against the guards of iterations, with what its steps had said ``earlier``."""
    measured = evaluation_measures(tables.metrics_of(evaluation), accuracy_of(last))
    found = breaches(measured, config, f"the evaluation of iteration {opened.place.iteration}")
    _record(opened, found, "grpo.guards.evaluation")
    said = [*earlier, _guarded(found)]
    actions: list[Action] = [each.action for each in said if each.action is not None]
    return Guarded(
        evidence=tuple(line for each in said for line in each.evidence),
        action="stop" if "stop" in actions else "rollback" if "rollback" in actions else "warn" if actions else None,
    )


@task(cache_policy=NO_CACHE)
def check_record(record: IterationRecord, config: GuardsConfig) -> None:
    """The iteration that a run would go on from, against the guards as they are set now.

    Raises:
        GuardStopped: an action is "stop", and nobody has rolled the lineage back since.
    """
    if record.rolled_back_to is not None:
        return
    evaluated = {
        name.removeprefix("evaluation/"): value
        for name, value in record.metrics.items()
        if name.startswith("evaluation/")
    }
    measured = evaluation_measures(evaluated, evaluated.get("accuracy_before"))
    found = breaches(measured, config, f"the evaluation of iteration {record.iteration}")
    if gravest(found) == "stop":
        raise GuardStopped(
            f"{'; '.join(each.evidence for each in found)}. The iteration is recorded; no further one starts: {CURE}"
        )


def accuracy_of(record: IterationRecord) -> float | None:
    """Held-out accuracy of the policy that the next iteration starts from, None when it was not measured."""
    if record.rolled_back_to is not None:
        return tables.metrics_of(record.tables["champion_evaluation"]).get("accuracy")
    return record.metrics.get("evaluation/accuracy")


def _guarded(found: tuple[Breach, ...]) -> Guarded:
    return Guarded(evidence=tuple(each.evidence for each in found), action=gravest(found))


def _record(opened: Opened, found: tuple[Breach, ...], tag: str) -> None:
    for each in found:
        log.warning("%s", each.evidence)
    if found:
        journal.append(opened.place, "tags", {"tags": {tag: "; ".join(each.evidence for each in found)}})
