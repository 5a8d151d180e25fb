"""The steps of our own loop, one at a time on request: the whole flow with its Prefect server, store and MLflow.

    python -m benchmarks.iteration_ours quickstart START FOLDER     (started by benchmarks.iteration)

Says "ready" before each step, begins it at a line on standard input, and prints its seconds by share as JSON.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from benchmarks.shares import StopWatch
from flows.environment import prepare_environment
from flows.recipes import load_recipe
from flows.servers import ensure_api

MOST_STEPS = 99
SMALL = [
    "prompts.num_heldout=4",
    "evaluation.num_samples=2",
    "evaluation.ks=[1]",
    f"num_steps={MOST_STEPS}",
    "scoring.reward_model_weight=0.0",
]
RECIPES = {
    "quickstart": [*SMALL, "reward_model.num_initial_prompts=16"],
    "smollm2": [*SMALL, "reward_model.num_initial_prompts=2", "rollout.group_size=8", "machine.num_threads=2"],
}


def recipe(name: str, start: str) -> list[str]:
    """The settings over those of the shipped recipe: a given first policy, and little to do before the first step."""
    given = [f'policy={{ kind = "local", path = "{start}" }}'] if name == "quickstart" else []
    return RECIPES[name] + given


def instrument(watch: StopWatch) -> None:
    """Book every part of a step. What a verb does itself stays with "verbs"; what is left of the step is Prefect."""
    import tasks.build_samples
    import tasks.generate
    import tasks.score
    import tasks.update_policy
    from flows import iterate
    from storage import checkpoints, tables, tracking
    from tasks.grpo.trainer import PolicyTrainer
    from tasks.verifiers.pool import VerifierPool

    watch.measure(tables, "find read publish metrics_of", "storage")
    watch.measure(checkpoints, "find open_folder publish metrics_of", "storage")
    watch.measure(tracking, "ensure_run log_metrics", "tracking")
    make_engine = tasks.generate.make_engine

    def engine_of(*args: Any) -> Any:
        engine = make_engine(*args)
        watch.measure(engine, "generate", "generation")
        return engine

    tasks.generate.make_engine = engine_of
    watch.measure(tasks.generate, "requests_for completion_rows", "generation")
    watch.measure(tasks.generate, "load_model load_tokenizer", "storage")
    watch.measure(tasks.update_policy, "load_model load_tokenizer", "storage")
    watch.measure(VerifierPool, "score", "scoring")
    watch.measure(tasks.score, "score_rows reward_rows items_of", "scoring")
    watch.measure(PolicyTrainer, "update", "update")
    watch.measure(tasks.build_samples, "samples_of", "update")
    verbs = "select_prompts generate score build_samples update_policy report_step num_missing_groups"
    for verb in verbs.split():
        watch.measure(getattr(iterate, verb), "fn", "verbs")


def steps_on_request(watch: StopWatch) -> None:
    """Let the flow's steps wait for a line each; the process ends with the standard input."""
    from flows import iterate

    run_step, report_step = iterate.run_step, iterate.report_step

    def wait(*args: Any) -> Any:
        print("ready", flush=True)
        if not sys.stdin.readline():
            os._exit(0)  # in the middle of a flow: the store is thrown away, the server ends with this process
        watch.seconds.clear()
        return watch.measured(run_step, "orchestration")(*args)

    def report(opened: Any, step: Any) -> None:
        watch.measured(report_step, "orchestration")(opened, step)
        metrics = {"tokens": mean_tokens(step)}
        print(json.dumps({"shares": watch.seconds, **metrics}), flush=True)

    iterate.run_step, iterate.report_step = wait, report


def mean_tokens(step: Any) -> float:
    """Tokens of a completion, on average."""
    from storage import tables

    rows = tables.read(step.rounds[0].completions)
    return sum(len(row["completion_token_ids"]) for row in rows) / len(rows)


def main(name: str, start: str, folder: str) -> None:
    os.environ["IGRPO_HOME"] = folder
    prepare_environment(Path(folder))
    config = load_recipe(name, recipe(name, start))
    ensure_api(Path(folder))
    from flows.iterate import iterate

    watch = StopWatch()
    instrument(watch)
    steps_on_request(watch)
    iterate(config, name, 1)


if __name__ == "__main__":
    main(*sys.argv[1:])
