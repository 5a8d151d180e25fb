"""Label the steps of completions by what the policy makes of them: continue, verify, count. Each is a stage of its own."""

from collections.abc import Mapping

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage import checkpoints, tables
from storage.manifest import Provenance
from storage.refs import DatasetRef, Frozen, ModelRef, Place
from tasks.curriculum.config import PromptFormat
from tasks.policy.loading import load_model, load_tokenizer
from tasks.reward.step_continuations import continuation_items, continuation_requests
from tasks.reward.step_file_rows import coding_of, file_label_rows
from tasks.reward.step_files import read_step_file
from tasks.reward.step_kinds import StepFileConfig, StepsConfig
from tasks.reward.step_labels import step_label_rows
from tasks.reward.step_plan import Plan, plan_steps
from tasks.rollout.config import OPERATIONAL, EngineConfig, SamplingConfig
from tasks.rollout.engine import PolicyWeights
from tasks.rollout.engines import make_engine
from tasks.rollout.prompting import eos_token_ids
from tasks.rollout.rollouts import completion_rows
from tasks.runtime import residents
from tasks.runtime.config import MachineConfig
from tasks.runtime.inline import prepare
from tasks.runtime.progress import progress
from tasks.verifiers.config import ScoringConfig
from tasks.verifiers.failures import check_failures
from tasks.verifiers.pool import VerifierPool
from tasks.verifiers.totals import reward_rows


class Steps(Frozen):
    """The completions whose steps are labelled, their rewards, and the policy that continues them."""

    prompts: DatasetRef
    completions: list[DatasetRef]
    rewards: list[DatasetRef]
    policy: ModelRef


@task(cache_policy=NO_CACHE)
def continue_steps(
    place: Place,
    steps: Steps,
    config: StepsConfig,
    engine: EngineConfig,
    sampling: SamplingConfig,
    machine: MachineConfig,
    seed: int,
) -> DatasetRef:
    """A completions table whose groups are prefixes: prompt_token_ids are the prompt's and the prefix's, as sampled."""
    settings = {
        "engine": engine.model_dump(mode="json", exclude=OPERATIONAL),
        "sampling": sampling.model_dump(mode="json"),
    }
    provenance = _provenance("completions", steps, config, seed, settings=settings)
    if found := tables.find(place, "completions", provenance):
        return found
    folder = checkpoints.open_folder(steps.policy)
    tokenizer = load_tokenizer(folder)
    device = prepare(machine)
    model = residents.get("policy", steps.policy.digest, lambda: load_model(folder, device=device))
    requests = continuation_requests(
        _plan(steps, config, seed),
        {row["prompt_id"]: row for row in tables.read(steps.prompts)},
        num_samples=config.continuations,
        max_new_tokens=sampling.max_new_tokens,
        seed=seed,
    )
    weights = PolicyWeights(model, tokenizer, steps.policy.digest, folder, place.log_folder)
    with progress("continue steps", "continuations") as on_progress:
        result = make_engine(engine, weights).generate(requests, sampling, on_progress)
    rows, metrics = completion_rows(
        requests,
        result,
        tokenizer=tokenizer,
        eos_ids=eos_token_ids(model.generation_config, tokenizer),
        temperature=sampling.temperature,
        policy_digest=steps.policy.digest,
    )
    return tables.publish(place, "completions", rows, provenance, metrics=metrics)


@task(cache_policy=NO_CACHE)
def score_continuations(
    place: Place, steps: Steps, continuations: DatasetRef, config: StepsConfig, scoring: ScoringConfig, seed: int
) -> DatasetRef:
    """The rewards of the continuations: of each whole completion, prefix included, and by the verifier of correctness only.

    Raises:
        ValueError: more rows failed than ``scoring.max_failed_share`` allows; nothing is committed.
    """
    verifying = scoring.correctness_only()
    settings = {"scoring": verifying.model_dump(mode="json")}
    made_from = {"continuations": continuations.digest}
    provenance = _provenance("rewards", steps, config, seed, settings=settings, made_from=made_from)
    if found := tables.find(place, "rewards", provenance):
        return found
    rows = tables.read(continuations)
    items = continuation_items(
        _plan(steps, config, seed),
        rows,
        {row["prompt_id"]: row for row in tables.read(steps.prompts)},
        coding_of(load_tokenizer(checkpoints.open_folder(steps.policy))).decode,
    )
    pool = residents.get(
        "step verifier",  # beside the pool of all verifiers: to start one costs seconds
        verifying.model_dump_json(),
        lambda: VerifierPool(verifying.verifiers, verifying.num_workers, verifying.row_deadline_seconds),
    )
    with progress("verify continuations", "continuations") as on_progress:
        verdicts = pool.score(items, on_progress)
    rewarded, metrics = reward_rows(rows, verdicts, None, verifying)
    check_failures(metrics, verifying.max_failed_share)
    return tables.publish(place, "rewards", rewarded, provenance, sources=verifying.sources, metrics=metrics)


@task(cache_policy=NO_CACHE)
def label_steps(
    place: Place,
    steps: Steps,
    continuations: DatasetRef,
    continued: DatasetRef,
    known: DatasetRef | None,
    config: StepsConfig,
    seed: int,
) -> DatasetRef:
    """The step_labels table, from the rewards of the continuations; the rows of ``known`` stand behind them."""
    made_from = {"continuations": continuations.digest, "continued": continued.digest}
    if known is not None:
        made_from["known"] = known.digest
    provenance = _provenance("step_labels", steps, config, seed, made_from=made_from)
    if found := tables.find(place, "step_labels", provenance):
        return found
    rows, metrics = step_label_rows(
        _plan(steps, config, seed),
        [row for ref in steps.rewards for row in tables.read(ref)],
        tables.read(continued),
        {row["prompt_id"]: row["prompt_key"] for row in tables.read(steps.prompts)},
        config,
        origin_iteration=place.iteration,
    )
    metrics["num_continuation_tokens"] = tables.metrics_of(continuations)["num_completion_tokens"]
    if known is not None:
        rows += tables.read(known)
        metrics |= tables.metrics_of(known)
    return tables.publish(place, "step_labels", rows, provenance, metrics=metrics)


@task(cache_policy=NO_CACHE)
def read_step_labels(
    place: Place, prompts: DatasetRef, policy: ModelRef, config: StepFileConfig, style: PromptFormat
) -> DatasetRef:
    """The step_labels table of a file, in the ids of ``policy``'s tokenizer; held-out prompts are left out.

    Raises:
        ValueError: a line can not be read; names file, line and cure.
    """
    settings = {"file": config.model_dump(mode="json"), "style": style.model_dump(mode="json")}
    inputs = {"prompts": prompts.digest, "policy": policy.digest}
    provenance = Provenance(stage="step_labels", inputs=inputs, config=settings)
    if found := tables.find(place, "step_labels", provenance):
        return found
    rows, metrics = file_label_rows(
        read_step_file(config),
        config,
        style,
        coding_of(load_tokenizer(checkpoints.open_folder(policy))),
        heldout_keys={row["prompt_key"] for row in tables.read(prompts) if row["split"] == "heldout"},
        origin_iteration=place.iteration,
    )
    return tables.publish(place, "step_labels", rows, provenance, metrics=metrics)


def _provenance(
    stage: str,
    steps: Steps,
    config: StepsConfig,
    seed: int,
    *,
    settings: Mapping[str, object] = {},
    made_from: Mapping[str, str] = {},
) -> Provenance:
    inputs = {"prompts": steps.prompts.digest, "policy": steps.policy.digest, **made_from}
    for index, (completed, rewarded) in enumerate(zip(steps.completions, steps.rewards, strict=True)):
        inputs[f"completions_{index:03d}"] = completed.digest
        inputs[f"rewards_{index:03d}"] = rewarded.digest
    return Provenance(stage=stage, inputs=inputs, config={**config.model_dump(mode="json"), **settings}, seed=seed)


def _plan(steps: Steps, config: StepsConfig, seed: int) -> Plan:
    """Made anew by each stage: the same completions, settings and seed give the same plan."""
    completions = [row for ref in steps.completions for row in tables.read(ref)]
    coding = coding_of(load_tokenizer(checkpoints.open_folder(steps.policy)))
    return plan_steps(completions, config, coding.prefix_lengths, seed=seed)
