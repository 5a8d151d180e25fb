"""Record an iteration: the registered versions, the datasets, the lineage record and the summary."""

import time
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage import checkpoints, iterations, lineage_pages, registry, summaries, tables, tracking
from storage.iterations import IterationRecord
from storage.manifest import code, created_at
from storage.refs import DatasetRef, ModelRef, Place
from tasks.check_guards import Guarded, accuracy_of
from tasks.promote import Champion
from tasks.promote_reward import RewardChoice
from tasks.report import Opened, Step


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=2)
def record_bootstrap(
    opened: Opened,
    policy: ModelRef,
    reward_model: ModelRef,
    critic: ModelRef | None,
    tables_by_name: dict[str, DatasetRef],
) -> IterationRecord:
    """Register the first policy and reward model, both current, the policy also champion, and commit record 0."""
    place = opened.place
    if finished := iterations.find_record(place):
        return finished
    evaluated = tables.metrics_of(tables_by_name["evaluation"])
    accuracy = f"accuracy {evaluated['accuracy']:.3f}" if "accuracy" in evaluated else "accuracy unknown"
    inputs = {name: ref for name, ref in tables_by_name.items() if name != "champion_evaluation"}
    policy = _register(opened, policy, {}, inputs, f"iteration 0 · first policy · {accuracy}")
    reward_model = _register(opened, reward_model, {"parent": policy}, inputs, "iteration 0 · first reward model")
    if critic is not None:
        critic = _register(opened, critic, {"parent": policy}, inputs, "iteration 0 · first critic")
    _log_datasets(opened, inputs)
    for ref in (policy, reward_model, *([critic] if critic else [])):
        registry.set_alias(place, ref, "current")
        registry.set_alias(place, ref, "champion")
    metrics = {f"evaluation/{name}": value for name, value in evaluated.items()}
    return _commit(
        opened,
        IterationRecord(
            iteration=0,
            policy=policy,
            reference=policy,
            reward=reward_model,
            champion=policy,
            critic=critic,
            tables=tables_by_name,
            metrics=metrics,
            seconds=time.monotonic() - opened.began,
            best_iteration=0 if "accuracy" in evaluated else None,
        ),
        scored_by=reward_model,
    )


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=2)
def record_iteration(
    opened: Opened,
    last: IterationRecord,
    policy: ModelRef,
    candidate: ModelRef,
    critic: ModelRef | None,
    champion: Champion,
    chosen: RewardChoice,
    tables_by_name: dict[str, DatasetRef],
    steps: list[Step],
    guarded: Guarded,
) -> IterationRecord:
    """Register what the iteration made, move the aliases, log the datasets, and commit its record last.

    Everything before the record finds what an interrupted run left; everything after it can be repeated.
    """
    place = opened.place
    if finished := iterations.find_record(place):
        return finished
    metrics = _iteration_metrics(last, candidate, champion, tables_by_name, steps)
    inputs = {name: ref for step in steps for name, ref in _step_tables(step).items()}
    datasets = {**inputs, **{name: ref for name, ref in tables_by_name.items() if name != "champion_evaluation"}}
    policy, candidate, critic = _register_learnt(opened, last, (policy, candidate, critic), metrics, datasets, chosen)
    reward_model = last.reward if chosen.is_refused else candidate
    registry.log_consumed(place, opened.run_id, [each for each in (last.start, last.reward, last.critic) if each])
    _log_datasets(opened, datasets)
    holder = policy if champion.is_new else champion.policy
    for ref in (reward_model, holder, *([critic] if critic else [])):
        registry.set_alias(place, ref, "champion")
    is_rolled_back = guarded.action == "rollback"
    if is_rolled_back:
        registry.set_alias(place, holder, "current")
    return _commit(
        opened,
        IterationRecord(
            iteration=place.iteration,
            policy=policy,
            reference=last.start,
            reward=reward_model,
            champion=holder,
            critic=critic,
            outcome="updated" if metrics["update/num_updates"] else "no_signal",
            tables={**tables_by_name, "champion_evaluation": champion.evaluation},
            metrics=metrics,
            seconds=time.monotonic() - opened.began,
            promotion=champion.reason,
            alarm=champion.alarm,
            best_iteration=champion.best_iteration,
            reward_promotion=chosen.reason,
            refused_reward=candidate if chosen.is_refused else None,
            guards=guarded.evidence,
            rolled_back_to=holder if is_rolled_back else None,
        ),
        scored_by=last.reward,
    )


@task(cache_policy=NO_CACHE)
def tidy_up(place: Place, record: IterationRecord) -> None:
    """After an iteration's record: rewrite the summary, drop the weights of the steps before the last one.

    Repeated at the next start, in case a kill came between the record and this.
    """
    summaries.write_summary(place, summaries.summary_of(Path(place.root), place.lineage))
    checkpoints.prune_steps(place, [record.policy, *([record.critic] if record.critic else [])])


def _step_tables(step: Step) -> dict[str, DatasetRef]:
    """completions_001, rewards_001, samples_001; those of a round of replacement end in -r01, -r02, ..."""
    named: dict[str, DatasetRef] = {}
    for number, each in enumerate(step.rounds):
        suffix = f"{step.number:03d}" + (f"-r{number:02d}" if number else "")
        named |= {
            f"completions_{suffix}": each.completions,
            f"rewards_{suffix}": each.rewards,
            f"samples_{suffix}": each.samples,
        }
    return named


def _iteration_metrics(
    last: IterationRecord,
    reward_model: ModelRef,
    champion: Champion,
    tables_by_name: dict[str, DatasetRef],
    steps: list[Step],
) -> dict[str, float]:
    metrics = {f"evaluation/{name}": value for name, value in tables.metrics_of(tables_by_name["evaluation"]).items()}
    metrics |= {f"reward_model/{name}": value for name, value in checkpoints.metrics_of(reward_model).items()}
    metrics |= {f"labels/{name}": value for name, value in tables.metrics_of(tables_by_name["labels"]).items()}
    metrics |= {f"replay/{name}": value for name, value in tables.metrics_of(tables_by_name["reward_training"]).items()}
    metrics |= {f"promotion/{name}": value for name, value in champion.metrics.items()}
    metrics["alarm/is_standing"] = float(bool(champion.alarm))
    if champion.best_iteration is not None:
        metrics["alarm/best_iteration"] = float(champion.best_iteration)
    if (before := accuracy_of(last)) is not None:
        metrics["evaluation/accuracy_before"] = before
    updates = [checkpoints.metrics_of(step.policy) for step in steps]
    metrics["update/num_updates"] = sum(each["num_updates"] for each in updates)
    metrics["update/num_steps_without_signal"] = float(sum(not each["num_updates"] for each in updates))
    means = [tables.metrics_of(each.rewards) for step in steps for each in step.rounds]
    if weighted := [(m["reward_mean"], m["num_rows"] - m["num_without_reward"]) for m in means if "reward_mean" in m]:
        metrics["reward_mean"] = sum(mean * rows for mean, rows in weighted) / sum(rows for _, rows in weighted)
    return metrics


def _register_learnt(
    opened: Opened,
    last: IterationRecord,
    learnt: tuple[ModelRef, ModelRef, ModelRef | None],
    metrics: dict[str, float],
    datasets: dict[str, DatasetRef],
    chosen: RewardChoice,
) -> tuple[ModelRef, ModelRef, ModelRef | None]:
    """Policy, reward model and critic with their versions, each made current; a refused reward model gets no alias."""
    place = opened.place
    policy, reward_model, critic = learnt
    accuracy = metrics.get("evaluation/accuracy")
    measured = "accuracy unknown" if accuracy is None else f"accuracy {accuracy:.3f}"
    measured += " · over-optimisation alarm" if metrics["alarm/is_standing"] else ""
    replayed = f"{metrics['replay/num_fresh']:.0f} new and {metrics['replay/num_replayed']:.0f} replayed labels"
    parents = {"parent": last.start, "reference": last.start, "reward_model": last.reward}
    if last.critic is not None:
        parents["critic"] = last.critic
    named = f"iteration {place.iteration}"
    policy = _register(opened, policy, parents, datasets, f"{named} · {measured}")
    said = f"{named} · {replayed}" + (f" · {chosen.reason}" if chosen.is_refused else "")
    reward_model = _register(
        opened,
        reward_model,
        {"parent": last.reward},
        datasets,
        said,
        refused=chosen.reason if chosen.is_refused else "",
    )
    if critic is not None and last.critic is not None:
        critic = _register(opened, critic, {"parent": last.critic}, datasets, f"{named} · critic")
    for ref in (policy, last.reward if chosen.is_refused else reward_model, *([critic] if critic else [])):
        registry.set_alias(place, ref, "current")
    return policy, reward_model, critic


def _register(
    opened: Opened,
    ref: ModelRef,
    parents: dict[str, ModelRef],
    datasets: dict[str, DatasetRef],
    sentence: str,
    *,
    refused: str = "",
) -> ModelRef:
    place = opened.place
    experiment = tracking.ensure_experiment(place)
    tags = {f"grpo.{role}": registry.model_uri(place.lineage, parent) for role, parent in parents.items()}
    tags["grpo.datasets"] = ",".join(f"{name}:{each.digest[:32]}" for name, each in sorted(datasets.items()))
    tags["grpo.code"] = code().commit
    if rank := checkpoints.metrics_of(ref).get("lora_rank"):
        tags |= {"grpo.lora_rank": f"{rank:g}", "grpo.lora_base": parents["reference"].digest}
    if refused:
        tags["grpo.refused"] = refused
    came_from = {
        role.replace("_", " "): f"[{registry.registered_name(place.lineage, parent.role)} v{parent.version}]"
        f"({lineage_pages.version_link(registry.registered_name(place.lineage, parent.role), parent.version)})"
        for role, parent in parents.items()
    }
    came_from["run"] = f"[iteration {place.iteration}]({lineage_pages.run_link(experiment, opened.run_id)})"
    for name in ("prompts", "labels", "anchor", "reward_training", "evaluation"):
        if name in datasets:
            query = f"dataset.digest = '{datasets[name].digest[:32]}'"
            came_from[name.replace("_", " ")] = (
                f"[{datasets[name].num_rows} rows]({lineage_pages.search_link(experiment, query)}) `{datasets[name].digest[:12]}`"
            )
    query = f"tags.`grpo.iteration` = '{place.iteration + 1}'"
    description = lineage_pages.describe(sentence, came_from, lineage_pages.search_link(experiment, query))
    return registry.register(place, ref, run_id=opened.run_id, tags=tags, description=description)


def _log_datasets(opened: Opened, datasets: dict[str, DatasetRef]) -> None:
    for name, ref in datasets.items():
        tracking.log_dataset(
            opened.place,
            opened.run_id,
            ref,
            context=name,
            profile={"iteration": opened.place.iteration, **tables.metrics_of(ref)},
        )


def _commit(opened: Opened, record: IterationRecord, scored_by: ModelRef) -> IterationRecord:
    place = opened.place
    tracking.log_metrics(
        place, opened.run_id, record.metrics, step=0, created_at=created_at(Path(record.tables["evaluation"].uri))
    )
    decisions = {"grpo.promotion": record.promotion, "grpo.alarm": record.alarm}
    if record.rolled_back_to is not None:
        decisions["grpo.rolled_back_to"] = registry.model_uri(place.lineage, record.rolled_back_to)
    tracking.set_tags(place, opened.run_id, {name: said for name, said in decisions.items() if said})
    tracking.finish_run(place, opened.run_id)
    return iterations.publish_record(place, record, scored_by)
