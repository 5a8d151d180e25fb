"""What the reward model learns from an iteration: its completions, labelled and mixed with replay."""

from flows.config import PipelineConfig
from flows.evaluate_policy import Measured
from flows.label_completions import label_completions
from storage.iterations import IterationRecord
from storage.refs import DatasetRef, Frozen, ModelRef, Place
from tasks.lineage import label_history
from tasks.mix_replay import mix_replay
from tasks.promote_reward import RewardChoice, promote_reward
from tasks.report import Step
from tasks.retrain_reward import retrain_reward
from tasks.values.seeds import derive_seed


class Learnt(Frozen):
    """The reward model after an iteration, and what it learned from."""

    labels: DatasetRef
    training: DatasetRef
    candidate: ModelRef
    """The retrained reward model, whether or not it takes the place of the last good one."""
    chosen: RewardChoice


def learn_reward(
    place: Place, config: PipelineConfig, last: IterationRecord, steps: list[Step], measured: Measured
) -> Learnt:
    """The iteration's completions, labelled and mixed with replay, retrain the reward model; the anchor set blocks what forgot.

    A refused model stays where it was made: the loop, and the next retraining, go on with the last good one.
    """
    seed, prompts, reward = config.seed, last.tables["prompts"], config.reward_model
    policy, anchor = steps[-1].policy, last.tables["anchor"]
    labels = label_completions(
        place,
        config,
        prompts,
        [each.completions for step in steps for each in step.rounds],
        [each.rewards for step in steps for each in step.rounds],
        policy,
        derive_seed(seed, place.iteration, "labels"),
    )
    training = mix_replay(
        place,
        prompts,
        labels,
        label_history(place),
        anchor,
        reward.labels,
        reward.replay,
        derive_seed(seed, place.iteration, "replay"),
    )
    heldout_labels = label_completions(
        place.at(iteration=place.iteration, section="evaluation"),
        config,
        prompts,
        [measured.completions],
        [measured.rewards],
        policy,
        derive_seed(seed, "evaluation-labels"),
    )
    candidate = retrain_reward(
        place,
        training,
        heldout_labels,
        anchor,
        last.reward,
        reward,
        config.machine,
        derive_seed(seed, place.iteration, "reward"),
    )
    chosen = promote_reward(candidate, last, reward.anchor)
    return Learnt(labels=labels, training=training, candidate=candidate, chosen=chosen)
