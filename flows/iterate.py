"""Algorithm 1 of DeepSeekMath (arXiv:2402.03300): iterations of a lineage, each durable and recorded."""

from prefect import flow

from flows.bootstrap import bootstrap
from flows.config import PipelineConfig
from flows.evaluate_policy import Measured, evaluate_policy
from storage.iterations import IterationRecord
from storage.refs import DatasetRef, Frozen, ModelRef, Place
from tasks.build_samples import build_samples
from tasks.generate import generate
from tasks.label_samples import label_samples
from tasks.lineage import end_request, hold_lineage, last_record, pair_history, plan_iterations, remember_recipe
from tasks.mix_replay import mix_replay
from tasks.promote import promote
from tasks.report import Step, open_iteration, record_iteration, report_step, tidy_up
from tasks.retrain_reward import retrain_reward
from tasks.score import score
from tasks.select_prompts import select_prompts
from tasks.update_policy import update_policy
from tasks.values.seeds import derive_seed


@flow(name="iterate", flow_run_name="{lineage}")
def iterate(config: PipelineConfig, lineage: str, num_iterations: int) -> int:
    """Run ``num_iterations`` further iterations of ``lineage`` (or finish those of an interrupted run); gives the last.

    The same call after a crash goes on where it stopped: every finished stage is found by its provenance.
    """
    with hold_lineage(lineage) as place:
        remember_recipe(place, config.model_dump(mode="json"))
        last = last_record(place) or bootstrap(place, config)
        tidy_up(place.at(iteration=last.iteration), last)
        for iteration in plan_iterations(place, last.iteration, num_iterations):
            last = run_iteration(place.at(iteration=iteration), config, last)
            tidy_up(place.at(iteration=iteration), last)
        end_request(place)
    return last.iteration


@flow(name="iteration")
def run_iteration(place: Place, config: PipelineConfig, last: IterationRecord) -> IterationRecord:
    """One outer iteration: the reference is frozen, the policy takes M steps, the reward model learns from them."""
    seed, prompts = config.seed, last.tables["prompts"]
    opened = open_iteration(place)
    policy = last.policy  # also the reference, frozen until the next iteration

    steps: list[Step] = []
    for number in range(1, config.num_steps + 1):
        step = run_step(place.at(iteration=place.iteration, section=f"step-{number:03d}"), config, last, policy, number)
        report_step(opened, step)
        policy = step.policy
        steps.append(step)

    measured = evaluate_policy(
        place.at(iteration=place.iteration, section="evaluation"), config, prompts, policy, last.reward
    )
    learnt = learn_reward(place, config, last, steps, measured)
    champion = promote(place, policy, measured.evaluation, last, config.promotion, derive_seed(seed, "promotion"))
    tables = {
        "prompts": prompts,
        "pairs": learnt.pairs,
        "reward_training": learnt.training,
        "evaluation": measured.evaluation,
    }
    return record_iteration(opened, last, policy, learnt.reward_model, champion, tables, steps)


class Learnt(Frozen):
    """The reward model after an iteration, and what it learned from."""

    pairs: DatasetRef
    training: DatasetRef
    reward_model: ModelRef


def learn_reward(
    place: Place, config: PipelineConfig, last: IterationRecord, steps: list[Step], measured: Measured
) -> Learnt:
    """The iteration's completions, labelled and mixed with replay, retrain the reward model."""
    seed, prompts = config.seed, last.tables["prompts"]
    source, pairing = config.scoring.correctness, config.reward_model.pairs
    pairs = label_samples(
        place,
        prompts,
        [step.completions for step in steps],
        [step.rewards for step in steps],
        pairing,
        source,
        derive_seed(seed, place.iteration, "pairs"),
    )
    training = mix_replay(
        place,
        prompts,
        pairs,
        pair_history(place),
        config.reward_model.replay,
        derive_seed(seed, place.iteration, "replay"),
    )
    heldout_pairs = label_samples(
        place.at(iteration=place.iteration, section="evaluation"),
        prompts,
        [measured.completions],
        [measured.rewards],
        pairing,
        source,
        derive_seed(seed, "evaluation-pairs"),
    )
    reward_model = retrain_reward(
        place,
        training,
        heldout_pairs,
        last.reward,
        config.reward_model.training,
        config.machine,
        derive_seed(seed, place.iteration, "reward"),
    )
    return Learnt(pairs=pairs, training=training, reward_model=reward_model)


def run_step(place: Place, config: PipelineConfig, last: IterationRecord, policy: ModelRef, number: int) -> Step:
    """One inner step: prompts, completions, rewards, samples, policy."""
    seed, machine, prompts = config.seed, config.machine, last.tables["prompts"]
    step_index = (place.iteration - 1) * config.num_steps + number - 1
    selection = select_prompts(
        place, prompts, config.rollout.prompts_per_step, step_index, derive_seed(seed, "selection")
    )
    completions = generate(
        place,
        selection,
        policy,
        config.rollout.engine,
        config.rollout.sampling,
        machine,
        config.rollout.group_size,
        derive_seed(seed, place.iteration, number, "rollouts"),
    )
    rewards = score(place, selection, completions, last.reward, config.scoring, config.reward_model.training, machine)
    samples = build_samples(place, completions, rewards, config.update.advantages)
    updated = update_policy(
        place,
        samples,
        policy,
        last.policy,
        config.update,
        machine,
        derive_seed(seed, place.iteration, number, "update"),
    )
    return Step(
        number=number, selection=selection, completions=completions, rewards=rewards, samples=samples, policy=updated
    )
