"""Held-out evaluation: sampled and greedy completions, verified and scored, one row per prompt."""

from flows.config import PipelineConfig
from storage.refs import DatasetRef, Frozen, ModelRef, Place
from tasks.evaluate import evaluate
from tasks.generate import generate, generate_greedily
from tasks.score import score
from tasks.select_prompts import select_heldout_prompts
from tasks.values.seeds import derive_seed


class Measured(Frozen):
    """What an evaluation leaves: the table by prompt, and the completions and rewards it was made from."""

    evaluation: DatasetRef
    completions: DatasetRef
    rewards: DatasetRef


def evaluate_policy(
    place: Place, config: PipelineConfig, prompts: DatasetRef, policy: ModelRef, reward_model: ModelRef
) -> Measured:
    """Every evaluation of a lineage uses the same prompts and seeds, so that two policies are compared in pairs."""
    engine, sampling, machine = config.rollout.engine, config.rollout.sampling, config.machine
    reward = config.reward_model
    selection = select_heldout_prompts(place, prompts)
    completions = generate(
        place,
        selection,
        policy,
        engine,
        sampling,
        machine,
        config.evaluation.num_samples,
        derive_seed(config.seed, "evaluation"),
    )
    rewards = score(place, selection, completions, policy, reward_model, config.scoring, reward, machine)
    greedy_place = place.at(iteration=place.iteration, section=f"{place.section}-greedy")
    greedy_completions = generate_greedily(greedy_place, selection, policy, engine, sampling, machine)
    greedy_rewards = score(
        greedy_place, selection, greedy_completions, policy, reward_model, config.scoring, reward, machine
    )
    evaluation = evaluate(place, completions, rewards, greedy_rewards, config.evaluation)
    return Measured(evaluation=evaluation, completions=completions, rewards=rewards)
