"""The entry points of deployments/prefect.yaml: what a schedule, the UI, an automation or the API starts.

A run that finds nothing to do, or the lineage held by another, ends in the state Skipped and says why.
"""

from datetime import datetime
from typing import Any

from prefect import flow, runtime
from prefect.client.schemas.objects import State
from prefect.states import Completed

from flows.bootstrap import bootstrap
from flows.config import PipelineConfig
from flows.evaluate_policy import evaluate_policy
from flows.iterate import advance, finish
from flows.recipes import apply_overrides, load_recipe
from flows.retrain_reward import retrain_between
from flows.run_request import (
    BootstrapRequest,
    CollectGarbageRequest,
    EvaluateRequest,
    IterateRequest,
    RetrainRewardRequest,
)
from tasks.announce import announce_reward
from tasks.appointment import hold_when_free, nothing_to_do, recorded_recipe
from tasks.chosen_models import choose_models
from tasks.collect_garbage import collect_garbage
from tasks.lineage import last_record, remember_recipe
from tasks.record_measurement import record_measurement


def _lineage_name() -> str:
    """The name of a run; Prefect asks for it before and after it has made a model of the request."""
    request = runtime.flow_run.parameters["request"]
    return str(request["lineage"] if isinstance(request, dict) else request.lineage)


@flow(name="iterate-lineage", flow_run_name=_lineage_name, persist_result=False)
def iterate_lineage(request: IterateRequest) -> State[Any]:
    """Continue a lineage by some iterations, or finish those of an interrupted run."""
    config = _recorded(request.lineage, request.overrides)
    with hold_when_free(request.lineage, request.when_busy, request.max_wait_minutes) as held:
        if held.place is None:
            return skipped(held.busy)
        if why := nothing_to_do(held.place, _scheduled_at(), request.stop_at_iteration):
            return skipped(why)
        last = advance(held.place, config, request.num_iterations)
    return Completed(message=f"{request.lineage} stands at iteration {last.iteration}")


@flow(name="bootstrap-lineage", flow_run_name=_lineage_name, persist_result=False)
def bootstrap_lineage(request: BootstrapRequest) -> State[Any]:
    """Iteration 0 of a new lineage: the first policy and reward model, the prompts, the baseline."""
    config = load_recipe(request.recipe, request.overrides)
    with hold_when_free(request.lineage, request.when_busy, request.max_wait_minutes) as held:
        if held.place is None:
            return skipped(held.busy)
        remember_recipe(held.place, config.model_dump(mode="json"))
        if found := last_record(held.place):
            return skipped(f"{request.lineage} has its bootstrap, and stands at iteration {found.iteration}")
        record = bootstrap(held.place, config)
        finish(held.place, record)
    return Completed(message=f"{request.lineage} has its bootstrap")


@flow(name="evaluate-policy", flow_run_name=_lineage_name, persist_result=False)
def evaluate_version(request: EvaluateRequest) -> State[Any]:
    """Measure a policy on the held-out prompts, scored with a reward model."""
    config = _recorded(request.lineage, [])
    with hold_when_free(request.lineage, request.when_busy, request.max_wait_minutes) as held:
        if held.place is None:
            return skipped(held.busy)
        chosen = choose_models(held.place, request.policy_version, request.reward_version)
        record = chosen.record
        section = f"evaluation-p{record.policy.version}-r{chosen.reward.version}"
        here = held.place.at(iteration=record.iteration, section=section)
        measured = evaluate_policy(here, config, record.tables["prompts"], record.policy, chosen.reward)
        said = record_measurement(here, chosen, measured.evaluation)
    return Completed(message=said)


@flow(name="retrain-reward-model", flow_run_name=_lineage_name, persist_result=False)
def retrain_reward_model(request: RetrainRewardRequest) -> State[Any]:
    """Train the reward model once more between two iterations; what forgot its anchor set is refused."""
    config = _recorded(request.lineage, [])
    with hold_when_free(request.lineage, request.when_busy, request.max_wait_minutes) as held:
        if held.place is None:
            return skipped(held.busy)
        record = choose_models(held.place, None, None).record
        done = retrain_between(held.place, config, record, request.why)
        if not done.is_refused:
            announce_reward(held.place.at(iteration=record.iteration), record.policy, done.reward)
    return Completed(message=f"reward model v{done.reward.version} is in use: {done.reason}")


@flow(name="collect-garbage", flow_run_name=_lineage_name, persist_result=False)
def collect_weights(request: CollectGarbageRequest) -> State[Any]:
    """Weights of a lineage that nothing needs any more: a table of what goes and stays, and with "remove" they go."""
    recorded_recipe(request.lineage)
    with hold_when_free(request.lineage, request.when_busy, request.max_wait_minutes) as held:
        if held.place is None:
            return skipped(held.busy)
        said = collect_garbage(held.place, request.keep_last, request.action)
    return Completed(message=f"{request.lineage}: {said}")


def skipped(why: str) -> State[Any]:
    """A run that had nothing to do: green, with a name of its own and the reason."""
    return Completed(name="Skipped", message=why)


def _recorded(lineage: str, overrides: list[str]) -> PipelineConfig:
    settings = recorded_recipe(lineage)
    apply_overrides(settings, overrides)
    return PipelineConfig.model_validate(settings)


def _scheduled_at() -> datetime | None:
    """When a schedule wanted this run; None for a run that a person or an automation started."""
    is_of_schedule = "auto-scheduled" in (runtime.flow_run.tags or [])
    return runtime.flow_run.scheduled_start_time if is_of_schedule else None
