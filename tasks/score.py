"""Score every completion: verifiers in child processes, and the current reward model."""

from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage import checkpoints, tables
from storage.manifest import Provenance
from storage.refs import DatasetRef, ModelRef, Place
from tasks.policy.loading import load_tokenizer
from tasks.reward.config import RewardModelConfig
from tasks.reward.head import RewardModel
from tasks.reward.scorer import score_rows
from tasks.reward.step_plan import PrefixLengths
from tasks.reward.step_scorer import score_steps
from tasks.rollout.prompting import eos_token_ids, prefix_lengths
from tasks.runtime import residents
from tasks.runtime.config import MachineConfig
from tasks.runtime.inline import prepare
from tasks.runtime.progress import progress
from tasks.verifiers.config import ScoringConfig
from tasks.verifiers.failures import check_failures
from tasks.verifiers.resident import resident_pool
from tasks.verifiers.steps import StepRewards
from tasks.verifiers.totals import items_of, of_log_odds, reward_rows
from tasks.verifiers.verdict import Verdict


@task(cache_policy=NO_CACHE)
def score(
    place: Place,
    selection: DatasetRef,
    completions: DatasetRef,
    policy: ModelRef,
    reward_model: ModelRef | None,
    config: ScoringConfig,
    reward: RewardModelConfig,
    machine: MachineConfig,
) -> DatasetRef:
    """The rewards table. Without a reward model (before the first one exists) its column is ``unscored``.

    ``policy`` sampled the completions; only its tokenizer is read, and only when a process is supervised or the reward
    model reads steps, to find the tokens at which steps end.

    Raises:
        ValueError: more rows failed than ``config.max_failed_share`` allows; nothing is committed.
    """
    inputs = {"selection": selection.digest, "completions": completions.digest}
    if reward_model is not None:
        inputs["reward_model"] = reward_model.digest
    reads_steps = reward.steps is not None and reward_model is not None
    if reads_steps or config.process is not None:
        inputs["policy"] = policy.digest
    settings = {**config.model_dump(mode="json"), "max_tokens": reward.training.max_tokens}
    if reward.steps is not None and reads_steps:
        settings["steps"] = reward.steps.model_dump(mode="json", include={"split", "reduction"})
    provenance = Provenance(stage="rewards", inputs=inputs, config=settings)
    if found := tables.find(place, "rewards", provenance):
        return found
    rows = tables.read(completions)
    items = items_of(rows, tables.read(selection))
    pool = resident_pool(config)
    with progress("verify", "completions") as on_progress:
        verdicts = pool.score(items, on_progress)
    lengths = None
    if "policy" in inputs:
        tokenizer = load_tokenizer(checkpoints.open_folder(policy))
        lengths = prefix_lengths(tokenizer, eos_token_ids(None, tokenizer))
    judged, steps = None, None
    if reward_model is not None:
        judged, steps = _judged(rows, reward_model, reward, machine, lengths)
    rewarded, metrics = reward_rows(rows, verdicts, judged, config, lengths, steps)
    metrics["num_replaced_verifier_processes"] = float(pool.num_replaced)
    check_failures(metrics, config.max_failed_share)
    return tables.publish(place, "rewards", rewarded, provenance, sources=config.sources, metrics=metrics)


def _judged(
    rows: list[dict[str, Any]],
    reward_model: ModelRef,
    reward: RewardModelConfig,
    machine: MachineConfig,
    lengths: PrefixLengths | None,
) -> tuple[list[Verdict], list[StepRewards | None] | None]:
    """The reward model's verdicts on every row, and the steps of a process reward model."""
    folder = checkpoints.open_folder(reward_model)
    device = prepare(machine)
    model = residents.get("reward", reward_model.digest, lambda: RewardModel.load(folder, device=device))
    budget, most = reward.training.micro_batch_tokens, reward.training.max_tokens
    if reward.steps is None or lengths is None:
        scores = score_rows(model, rows, micro_batch_tokens=budget, max_tokens=most)
        return [of_log_odds(score) for score in scores], None
    return score_steps(model, rows, reward.steps, lengths, micro_batch_tokens=budget, max_tokens=most)


@task(cache_policy=NO_CACHE)
def check_verifiers(config: ScoringConfig) -> None:
    """Start the verifier processes, which the first scoring then finds running.

    Raises:
        CannotStart: a verifier lacks what it needs: a library, the function that it names, the key of its endpoint.
    """
    resident_pool(config)
