"""What `igrpo run` does around the flow: checks first, then servers, progress, and the table at the end."""

import time
from pathlib import Path

from rich.console import Console

from flows.config import PipelineConfig
from flows.display import RichDisplay
from flows.recipes import RecipeError
from flows.servers import Api, ensure_api
from flows.summary_view import alarm_lines, summary_table, where_next
from storage import iterations, lineages, summaries
from storage.home import described
from storage.lock import probe
from storage.refs import check_lineage_name
from tasks.runtime.progress import shown_on
from tasks.values.seeds import derive_seed


def run_lineage(out: Console, root: Path, config: PipelineConfig, lineage: str, num_iterations: int) -> None:
    """Run the iterations and print what came out.

    What can be refused is refused before a server is started: a bad name, a lineage that is held, a recipe that
    contradicts the recorded one, a policy, prompts, an extra or a verifier that are not there.
    """
    try:
        check_lineage_name(lineage)
    except ValueError as error:
        raise RecipeError(str(error)) from error
    probe(root, lineage)
    lineages.require_same_recipe(root, lineage, config.model_dump(mode="json"))
    out.print(f"lineage [bold]{lineage}[/bold] in {described(root)}", highlight=False)
    started = time.monotonic()
    with out.status("starting (libraries and the Prefect server; about 15 s)"):
        api = _start(root, config, lineage)
    out.print(f"[dim]{api.describe()}[/dim]", highlight=False)
    from flows.iterate import iterate

    with RichDisplay(out) as display, shown_on(display):
        iterate(config, lineage, num_iterations)
    summary = summaries.read_summary(root, lineage)
    out.print(summary_table(summary))
    for line in alarm_lines(summary):
        out.print(line, style="bold red", markup=False, highlight=False, soft_wrap=True)
    out.print(f"[dim]{time.monotonic() - started:.0f} s[/dim]")
    where_next(out, root, lineage)


def _start(root: Path, config: PipelineConfig, lineage: str) -> Api:
    """The Prefect API, once a new lineage was looked at.

    The policy and the engine are there, the prompts can be read, the verifiers start.
    """
    if iterations.latest_record(root, lineage) is None:
        try:
            _check_sources(config)
        except ValueError as error:
            raise RecipeError(str(error)) from error
    return ensure_api(root)


def _check_sources(config: PipelineConfig) -> None:
    from tasks.curriculum.sources import load_prompts
    from tasks.policy.sources import check_source
    from tasks.rollout.vllm_server import check_engine
    from tasks.verifiers.extras import check_extras
    from tasks.verifiers.resident import resident_pool

    check_extras(config.scoring.verifiers)
    check_source(config.policy)
    check_engine(config.rollout.engine)
    found = len(load_prompts(config.prompts.source, seed=derive_seed(config.seed, "prompts")).prompts)
    if found <= config.prompts.num_heldout:
        raise ValueError(
            f"{found} prompts leave none to train on beside prompts.num_heldout {config.prompts.num_heldout}; "
            "lower it or give more prompts"
        )
    resident_pool(config.scoring)
