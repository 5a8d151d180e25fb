"""Algorithm 1 of DeepSeekMath (arXiv:2402.03300): iterations of a lineage, each durable and recorded."""

from pathlib import Path

from prefect import flow

from flows.bootstrap import bootstrap
from flows.config import PipelineConfig
from flows.evaluate_policy import evaluate_policy
from flows.learn_reward import learn_reward
from flows.servers import mlflow_address
from storage.iterations import IterationRecord
from storage.refs import DatasetRef, Frozen, ModelRef, Place
from tasks.announce import announce_reward
from tasks.build_samples import build_samples, num_missing_groups
from tasks.check_guards import Guarded, check_evaluation, check_record, check_step
from tasks.draw_lineage import draw_lineage
from tasks.generate import generate
from tasks.journal_iteration import journal_iteration
from tasks.lineage import (
    check_signal,
    end_request,
    first_policy,
    hold_lineage,
    last_record,
    plan_iterations,
    remember_recipe,
)
from tasks.promote import promote
from tasks.record import record_iteration, tidy_up
from tasks.report import Round, Step, open_iteration, report_step
from tasks.score import score
from tasks.select_prompts import select_prompts, select_replacements
from tasks.show_run import Shown, open_progress, show_iteration, show_step
from tasks.update_critic import update_critic
from tasks.update_policy import update_policy
from tasks.values.seeds import derive_seed
from tasks.write_report import write_report


@flow(name="iterate", flow_run_name="{lineage}")
def iterate(config: PipelineConfig, lineage: str, num_iterations: int) -> int:
    """Run ``num_iterations`` further iterations of ``lineage`` (or finish those of an interrupted run); gives the last.

    The same call after a crash goes on where it stopped: every finished stage is found by its provenance.
    """
    with hold_lineage(lineage) as place:
        return advance(place, config, num_iterations).iteration


def advance(place: Place, config: PipelineConfig, num_iterations: int) -> IterationRecord:
    """The lineage that is held at ``place``, ``num_iterations`` further; gives the last record."""
    remember_recipe(place, config.model_dump(mode="json"))
    last = last_record(place) or bootstrap(place, config)
    finish(place.at(iteration=last.iteration), last)
    check_record(last, config.guards)
    iterations = plan_iterations(place, last.iteration, num_iterations)
    shown = open_progress(place.lineage, iterations, config.num_steps)
    address = mlflow_address(Path(place.root))
    for iteration in iterations:
        before, last = last, run_iteration(place.at(iteration=iteration), config, last, shown)
        finish(place.at(iteration=iteration), last)
        show_iteration(place.at(iteration=iteration), before, last, address)
        if last.refused_reward is None:
            announce_reward(place.at(iteration=iteration), last.policy, last.reward)
        check_record(last, config.guards)
        check_signal(place, config.max_no_signal_iterations)
    end_request(place)
    return last


def finish(place: Place, record: IterationRecord) -> None:
    """What follows a record and may be repeated: the summary, the weights of earlier steps, MLflow, the report."""
    tidy_up(place, record)
    journal_iteration(place, record)
    write_report(place)
    draw_lineage(place)


@flow(name="iteration")
def run_iteration(place: Place, config: PipelineConfig, last: IterationRecord, shown: Shown) -> IterationRecord:
    """One outer iteration: the reference is frozen, the policy takes M steps, the reward model learns from them."""
    seed, prompts = config.seed, last.tables["prompts"]
    opened = open_iteration(place)
    policy = last.start  # also the reference, frozen until the next iteration

    sampler = first_policy(place) if config.update.rollout_policy == "initial" else None
    critic = last.critic
    steps: list[Step] = []
    guarded: list[Guarded] = []
    for number in range(1, config.num_steps + 1):
        at_step = place.at(iteration=place.iteration, section=f"step-{number:03d}")
        step = run_step(
            at_step, config, last, Learners(policy=policy, critic=critic, sampler=sampler or policy), number
        )
        report_step(opened, step)
        show_step(shown, place.iteration, number)
        policy, critic = step.policy, step.critic
        steps.append(step)
        guarded.append(check_step(opened, step, config.guards))
        if guarded[-1].action == "rollback":
            break

    measured = evaluate_policy(
        place.at(iteration=place.iteration, section="evaluation"), config, prompts, policy, last.reward
    )
    learnt = learn_reward(place, config, last, steps, measured)
    gate, alarm = config.promotion, config.evaluation.alarm
    champion = promote(place, policy, measured.evaluation, last, gate, alarm, derive_seed(seed, "promotion"))
    said = check_evaluation(opened, measured.evaluation, last, config.guards, guarded)
    tables = {
        "prompts": prompts,
        "labels": learnt.labels,
        "anchor": last.tables["anchor"],
        "reward_training": learnt.training,
        "evaluation": measured.evaluation,
    }
    return record_iteration(
        opened, last, policy, learnt.candidate, critic, champion, learnt.chosen, tables, steps, said
    )


class Learners(Frozen):
    """The models that a step begins with; ``sampler`` writes the completions."""

    policy: ModelRef
    critic: ModelRef | None
    sampler: ModelRef


def run_step(place: Place, config: PipelineConfig, last: IterationRecord, models: Learners, number: int) -> Step:
    """One inner step: prompts, completions, rewards, samples, policy (and critic)."""
    update, machine = config.update, config.machine
    rounds = draw_rounds(place, config, last, models, number)
    samples = [each.samples for each in rounds]
    seed = derive_seed(config.seed, place.iteration, number, "update")
    max_new_tokens = config.rollout.sampling.max_new_tokens
    updated = update_policy(place, samples, models.policy, last.start, update, max_new_tokens, machine, seed)
    critic = models.critic
    if critic is not None and update.critic is not None:
        critic_seed = derive_seed(config.seed, place.iteration, number, "critic")
        critic = update_critic(place, samples, critic, update.critic, machine, critic_seed)
    return Step(number=number, rounds=rounds, policy=updated, critic=critic)


def draw_rounds(
    place: Place, config: PipelineConfig, last: IterationRecord, models: Learners, number: int
) -> list[Round]:
    """The step's groups; under dynamic sampling those without signal are replaced, a bounded number of times."""
    wanted, prompts = config.rollout.prompts_per_step, last.tables["prompts"]
    step_index = (place.iteration - 1) * config.num_steps + number - 1
    seed = derive_seed(config.seed, "selection")
    selection = select_prompts(place, prompts, wanted, step_index, seed)
    rounds = [draw_round(place, config, last, models, selection, number)]
    group_filter = config.update.group_filter
    max_rounds = group_filter.max_rounds if group_filter.kind == "dynamic" else 0
    for round_number in range(1, max_rounds + 1):
        missing = num_missing_groups([each.samples for each in rounds], wanted)
        if missing == 0:
            break
        here = place.at(iteration=place.iteration, section=f"{place.section}-round-{round_number:02d}")
        taken = [each.selection for each in rounds]
        selection = select_replacements(here, prompts, taken, missing, step_index, round_number, seed)
        if selection.num_rows == 0:
            break
        rounds.append(draw_round(here, config, last, models, selection, number))
    return rounds


def draw_round(
    place: Place, config: PipelineConfig, last: IterationRecord, models: Learners, selection: DatasetRef, number: int
) -> Round:
    """Completions of the selected prompts, their rewards, and the samples made from both."""
    rollout, machine = config.rollout, config.machine
    completions = generate(
        place,
        selection,
        models.sampler,
        rollout.engine,
        rollout.sampling,
        machine,
        rollout.group_size,
        derive_seed(config.seed, place.iteration, number, "rollouts"),
    )
    rewards = score(
        place,
        selection,
        completions,
        models.sampler,
        last.reward,
        config.scoring,
        config.reward_model,
        machine,
    )
    samples = build_samples(
        place,
        completions,
        rewards,
        models.sampler,
        last.start,
        models.critic,
        config.update,
        config.scoring.weights,
        rollout.sampling.max_new_tokens,
        machine,
    )
    return Round(selection=selection, completions=completions, rewards=rewards, samples=samples)
