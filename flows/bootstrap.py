"""Iteration 0: the first policy, the prompts, the first reward model, the baseline."""

from prefect import flow

from flows.config import PipelineConfig
from flows.evaluate_policy import evaluate_policy
from storage.iterations import IterationRecord
from storage.refs import Place
from tasks.generate import generate
from tasks.ingest_prompts import ingest_prompts
from tasks.label_samples import label_samples
from tasks.mix_replay import mix_replay
from tasks.report import open_iteration, record_bootstrap, tidy_up
from tasks.retrain_reward import found_reward_model
from tasks.score import score
from tasks.select_prompts import select_prompts
from tasks.values.seeds import derive_seed
from tasks.warm_start import warm_start


@flow(name="bootstrap")
def bootstrap(place: Place, config: PipelineConfig) -> IterationRecord:
    """policy <- initial policy; reward model <- initial reward model."""
    seed, machine = config.seed, config.machine
    opened = open_iteration(place)
    policy = warm_start(place, config.policy, machine, derive_seed(seed, "policy"))
    prompts = ingest_prompts(place, config.prompts, policy, derive_seed(seed, "prompts"))

    here = place.at(iteration=0, section="initial")
    selection = select_prompts(
        here, prompts, config.reward_model.num_initial_prompts, step_index=0, seed=derive_seed(seed, "initial")
    )
    completions = generate(
        here,
        selection,
        policy,
        config.rollout.engine,
        config.rollout.sampling,
        machine,
        config.rollout.group_size,
        derive_seed(seed, "initial-rollouts"),
    )
    rewards = score(here, selection, completions, None, config.scoring, config.reward_model.training, machine)
    pairs = label_samples(
        place,
        prompts,
        [completions],
        [rewards],
        config.reward_model.pairs,
        config.scoring.correctness,
        derive_seed(seed, 0, "pairs"),
    )
    training = mix_replay(place, prompts, pairs, [], config.reward_model.replay, derive_seed(seed, 0, "replay"))
    reward_model = found_reward_model(
        place, training, policy, config.reward_model.training, machine, derive_seed(seed, 0, "reward")
    )
    measured = evaluate_policy(place.at(iteration=0, section="evaluation"), config, prompts, policy, reward_model)
    record = record_bootstrap(
        opened,
        policy,
        reward_model,
        {
            "prompts": prompts,
            "pairs": pairs,
            "reward_training": training,
            "evaluation": measured.evaluation,
            "champion_evaluation": measured.evaluation,
        },
    )
    tidy_up(place, record, [])
    return record
