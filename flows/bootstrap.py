"""Iteration 0: the first policy, the prompts, the first reward model, the baseline."""

from prefect import flow

from flows.config import PipelineConfig
from flows.evaluate_policy import evaluate_policy
from flows.label_completions import label_completions
from storage.iterations import IterationRecord
from storage.refs import DatasetRef, ModelRef, Place
from tasks.draw_anchor import draw_anchor
from tasks.generate import generate
from tasks.ingest_prompts import ingest_prompts
from tasks.mix_replay import mix_replay
from tasks.record import record_bootstrap
from tasks.report import open_iteration
from tasks.retrain_reward import found_reward_model
from tasks.score import check_verifiers, score
from tasks.select_prompts import select_prompts
from tasks.update_critic import found_critic
from tasks.values.seeds import derive_seed
from tasks.warm_start import warm_start


@flow(name="bootstrap")
def bootstrap(place: Place, config: PipelineConfig) -> IterationRecord:
    """policy <- initial policy; reward model <- initial reward model."""
    seed, machine = config.seed, config.machine
    opened = open_iteration(place)
    check_verifiers(config.scoring)  # before the costly stages, not after them
    policy = warm_start(place, config.policy, machine, derive_seed(seed, "policy"))
    prompts = ingest_prompts(place, config.prompts, policy, derive_seed(seed, "prompts"))
    labels = initial_labels(place, config, prompts, policy)
    reward = config.reward_model
    anchor = draw_anchor(place, labels, reward.labels, reward.anchor, derive_seed(seed, "anchor"))
    training = mix_replay(
        place, prompts, labels, [], anchor, reward.labels, reward.replay, derive_seed(seed, 0, "replay")
    )
    reward_model = found_reward_model(place, training, anchor, policy, reward, machine, derive_seed(seed, 0, "reward"))
    critic = None
    if config.update.critic is not None:
        critic = found_critic(place, policy, machine, derive_seed(seed, "critic"))
    measured = evaluate_policy(place.at(iteration=0, section="evaluation"), config, prompts, policy, reward_model)
    return record_bootstrap(
        opened,
        policy,
        reward_model,
        critic,
        {
            "prompts": prompts,
            "labels": labels,
            "anchor": anchor,
            "reward_training": training,
            "evaluation": measured.evaluation,
            "champion_evaluation": measured.evaluation,
        },
    )


def initial_labels(place: Place, config: PipelineConfig, prompts: DatasetRef, policy: ModelRef) -> DatasetRef:
    """The reward model's initial set: completions of the first policy, labelled by the verifier."""
    seed, reward = config.seed, config.reward_model
    here = place.at(iteration=0, section="initial")
    selection = select_prompts(here, prompts, reward.num_initial_prompts, 0, derive_seed(seed, "initial"))
    completions = generate(
        here,
        selection,
        policy,
        config.rollout.engine,
        config.rollout.sampling,
        config.machine,
        config.rollout.group_size,
        derive_seed(seed, "initial-rollouts"),
    )
    rewards = score(here, selection, completions, policy, None, config.scoring, reward, config.machine)
    return label_completions(place, config, prompts, [completions], [rewards], policy, derive_seed(seed, 0, "labels"))
