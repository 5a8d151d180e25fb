"""What `igrpo run` does around the flow: checks first, then servers, progress, and the table at the end."""

import threading
import time
from pathlib import Path

from rich.console import Console

from flows.config import PipelineConfig
from flows.display import RichDisplay
from flows.servers import Api, ensure_api
from flows.summary_view import summary_table, where_next
from storage import lineages, summaries
from storage.errors import StorageError
from storage.lock import probe
from storage.refs import check_lineage_name
from tasks.runtime.progress import shown_on


def run_lineage(out: Console, root: Path, config: PipelineConfig, lineage: str, num_iterations: int) -> None:
    """Run the iterations and print what came out.

    What can be refused is refused before a server is started: a bad name, a lineage that is held, a recipe that
    contradicts the recorded one, a policy or prompts that are not there.
    """
    check_lineage_name(lineage)
    probe(root, lineage)
    lineages.require_same_recipe(root, lineage, config.model_dump(mode="json"))
    out.print(f"lineage [bold]{lineage}[/bold] in {root}", highlight=False)
    started = time.monotonic()
    with out.status("starting (libraries and the Prefect server; about 15 s)"):
        api = _start(root, config)
    out.print(f"[dim]{api.describe()}[/dim]", highlight=False)
    from flows.iterate import iterate

    with RichDisplay(out) as display, shown_on(display):
        iterate(config, lineage, num_iterations)
    out.print(summary_table(summaries.read_summary(root, lineage)))
    out.print(f"[dim]{time.monotonic() - started:.0f} s[/dim]")
    where_next(out, root, lineage)


def _start(root: Path, config: PipelineConfig) -> Api:
    """The Prefect API; meanwhile a second thread imports what the flow needs and checks the sources."""
    failures: list[BaseException] = []

    def check() -> None:
        try:
            from tasks.curriculum.sources import check_prompts
            from tasks.policy.sources import check_source

            check_source(config.policy)
            check_prompts(config.prompts.source)
        except Exception as error:  # noqa: BLE001  # carried to the main thread and raised there
            failures.append(error)

    checking = threading.Thread(target=check, daemon=True)
    checking.start()
    checking.join(timeout=60)
    if failures:
        raise StorageError(str(failures[0])) from failures[0]
    return ensure_api(root)
