"""Another training of a lineage's reward model between two iterations."""

from flows.config import PipelineConfig
from flows.evaluate_policy import evaluate_policy
from flows.label_completions import label_completions
from storage.iterations import IterationRecord
from storage.refs import Frozen, ModelRef, Place
from tasks.adopt_reward import adopt_reward, plan_retraining
from tasks.chosen_models import reward_that_scored
from tasks.draw_lineage import draw_lineage
from tasks.lineage import label_history
from tasks.mix_replay import mix_replay
from tasks.promote_reward import promote_reward
from tasks.retrain_reward import retrain_reward
from tasks.values.seeds import derive_seed


class Retrained(Frozen):
    """The reward model in use afterwards, and whether the retrained one was refused."""

    reward: ModelRef
    is_refused: bool
    reason: str


def retrain_between(place: Place, config: PipelineConfig, last: IterationRecord, why: str) -> Retrained:
    """The newest labels with a new draw of replay train the reward model in use; the anchor set blocks what forgot.

    Its stages stand in ROOT/LINEAGE/iteration-0003/retrain-01/. The evaluation of the iteration is found, not made again.
    """
    number = plan_retraining(place, last)
    prompts, anchor, reward = last.tables["prompts"], last.tables["anchor"], config.reward_model
    here = place.at(iteration=last.iteration, section=f"retrain-{number:02d}")
    training = mix_replay(
        here,
        prompts,
        last.tables["labels"],
        label_history(here),
        anchor,
        reward.labels,
        reward.replay,
        derive_seed(config.seed, last.iteration, "replay", number),
    )
    evaluated = place.at(iteration=last.iteration, section="evaluation")
    scored_by = reward_that_scored(place, last.iteration)
    measured = evaluate_policy(evaluated, config, prompts, last.policy, scored_by)
    heldout_labels = label_completions(
        evaluated,
        config,
        prompts,
        [measured.completions],
        [measured.rewards],
        last.policy,
        derive_seed(config.seed, "evaluation-labels"),
    )
    seed = derive_seed(config.seed, last.iteration, "reward", number)
    candidate = retrain_reward(here, training, heldout_labels, anchor, last.reward, reward, config.machine, seed)
    chosen = promote_reward(candidate, last, reward.anchor)
    in_use = adopt_reward(here, last, candidate, chosen, training, why)
    draw_lineage(place)
    return Retrained(reward=in_use, is_refused=chosen.is_refused, reason=chosen.reason)
