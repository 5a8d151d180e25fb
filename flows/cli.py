"""The command line. Heavy imports happen inside the commands, so that --help answers at once."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from flows.environment import open_store
from flows.store_cli import store_app
from storage.errors import RecipeConflict, StorageError, UnknownLineage

EXIT_FAILED = 1
EXIT_USAGE = 2

app = typer.Typer(
    name="igrpo",
    help="Iterative GRPO: a durable, lineage-tracked training loop.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(store_app)
out = Console()
err = Console(stderr=True)


@app.command()
def run(
    recipe: Annotated[str, typer.Argument(help="A shipped recipe's name (see `igrpo recipes`) or a TOML file.")],
    lineage: Annotated[str | None, typer.Option(help="Name of the lineage; the recipe's own name by default.")] = None,
    iterations: Annotated[int | None, typer.Option(min=1, help="Iterations to run; the recipe's by default.")] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting: --set update.kl.beta=0.01."),
    ] = None,
) -> None:
    """Run further iterations of a lineage; after an interruption the same command goes on where it stopped."""
    from flows.recipes import load_recipe

    config = load_recipe(recipe, overrides or [])
    from flows.running import run_lineage

    run_lineage(out, open_store(), config, lineage or config.name, iterations or config.num_iterations)


@app.command()
def recipes() -> None:
    """List the shipped recipes."""
    from flows.recipes import shipped

    for name, sentence in shipped().items():
        out.print(f"[bold]{name:12}[/bold] {sentence}", highlight=False)


@app.command()
def algorithms() -> None:
    """List the algorithms of the policy update: what each is made of and where it comes from."""
    from flows.algorithms_view import show_algorithms

    show_algorithms(out)


@app.command()
def verify(
    kind: Annotated[
        str | None, typer.Argument(metavar="VERIFIER", help="A verifier's kind, for example math; none with --recipe.")
    ] = None,
    completion: Annotated[str, typer.Option(help="The completion: text, @FILE, or - for standard input.")] = "-",
    answer: Annotated[str, typer.Option(help="The gold answer; JSON where the kind's answers are.")] = "",
    prompt: Annotated[str, typer.Option(help="The prompt, for verifiers that read it.")] = "",
    metadata: Annotated[str, typer.Option(help="The prompt's other columns, a JSON object.")] = "{}",
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of the verifier, or of the recipe."),
    ] = None,
    recipe: Annotated[str | None, typer.Option(help="Try the verifiers of this recipe, and their total.")] = None,
    deadline: Annotated[float | None, typer.Option(min=0.01, help="Seconds for each verifier; 5 by default.")] = None,
) -> None:
    """Score one completion by hand. Exit status: 0 when every verifier decided (a reward of 0 too), 1 when one failed."""
    from flows import verify_view
    from tasks.verifiers.verdict import ScoreItem

    if (kind is None) == (recipe is None):
        raise typer.BadParameter("give a verifier's kind or --recipe, one of the two")
    changes = overrides or []
    if recipe is not None:
        trial = verify_view.trial_of_recipe(recipe, changes, deadline)
    else:
        trial = verify_view.trial_of_kind(str(kind), changes, deadline or verify_view.DEADLINE_SECONDS)
    columns, text = verify_view.metadata_of(metadata), verify_view.completion_of(completion)
    if not verify_view.show_verdicts(out, trial, ScoreItem(prompt, answer, text, columns)):
        raise typer.Exit(EXIT_FAILED)


@app.command()
def lineage(
    name: Annotated[str | None, typer.Argument(help="Show one lineage; all are listed without.")] = None,
    why: Annotated[str | None, typer.Option(metavar="POLICY", help="What made this policy version, 3 or v3.")] = None,
    uses: Annotated[
        str | None,
        typer.Option(metavar="REWARD_MODEL", help="What this version of the reward model trained and scored."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The graph, or the answer, as one JSON object.")] = False,
) -> None:
    """Versions, parents, scores and aliases of a lineage; what made a policy, what a reward model was used for."""
    from flows import lineage_answers, lineage_view

    root = open_store()
    if why is not None and uses is not None:
        raise typer.BadParameter("ask one thing: --why POLICY or --uses REWARD_MODEL")
    if name is None:
        if why is not None or uses is not None or as_json:
            raise typer.BadParameter("name the lineage that is asked about: igrpo lineage NAME --why 3")
        lineage_view.show_all(out, root)
    elif why is None and uses is None and not as_json:
        lineage_view.show_lineage(out, root, name)
    else:
        lineage_view.require_lineage(root, name)
        answer = lineage_answers.answer_to(root, name, why, uses)
        show = lineage_answers.print_json if as_json else lineage_answers.print_answer
        show(out, answer)


@app.command("repair-lineage")
def repair_lineage(
    name: Annotated[str, typer.Argument(metavar="LINEAGE", help="Name of the lineage.")],
) -> None:
    """Tell MLflow everything that the store holds of a lineage, and redraw the pages of its versions."""
    from flows.repair import repair

    repair(out, open_store(), name)


@app.command()
def show(
    table_path: Annotated[Path, typer.Argument(help="Folder of a table, for example .../step-001/rewards.")],
    best: Annotated[bool, typer.Option("--best", help="Highest rewards first.")] = False,
    worst: Annotated[bool, typer.Option("--worst", help="Lowest rewards first.")] = False,
    disagree: Annotated[
        bool, typer.Option("--disagree", help="Where verifier and reward model disagree most, first.")
    ] = False,
    num: Annotated[int, typer.Option(min=1, help="Rows to show.")] = 5,
) -> None:
    """Show the rows of a table: completions with their rewards, other tables as they are."""
    from flows.table_view import Order, show_table

    asked: dict[Order, bool] = {"best": best, "worst": worst, "disagree": disagree}
    orders = [order for order, is_asked in asked.items() if is_asked]
    if len(orders) > 1:
        raise typer.BadParameter("take one of --best, --worst and --disagree")
    show_table(out, table_path, order=orders[0] if orders else "stored", num=num)


@app.command()
def report(
    name: Annotated[str, typer.Argument(metavar="LINEAGE", help="Name of the lineage.")],
    iteration: Annotated[int | None, typer.Option(min=0, help="The newest finished one by default.")] = None,
) -> None:
    """Write an iteration's report (HTML) anew and print its path."""
    from flows.report_view import show_report

    show_report(out, open_store(), name, iteration)


@app.command()
def promote(
    name: Annotated[str, typer.Argument(metavar="LINEAGE", help="Name of the lineage.")],
    version: Annotated[int, typer.Argument(min=1, help="The policy's version.")],
    why: Annotated[str, typer.Option(help="Kept with the decision.")],
    by: Annotated[str | None, typer.Option(help="Who decides; the user of this machine by default.")] = None,
) -> None:
    """Make a policy version the champion by hand."""
    from flows.decide import decide

    decide(out, open_store(), name, "promote", version, why, by)


@app.command()
def rollback(
    name: Annotated[str, typer.Argument(metavar="LINEAGE", help="Name of the lineage.")],
    why: Annotated[str, typer.Option(help="Kept with the decision.")],
    to: Annotated[int | None, typer.Option(min=1, help="The policy's version; the champion by default.")] = None,
    by: Annotated[str | None, typer.Option(help="Who decides; the user of this machine by default.")] = None,
) -> None:
    """Let the next iteration start from an earlier policy, which becomes champion and current."""
    from flows.decide import decide

    decide(out, open_store(), name, "rollback", to, why, by)


@app.command()
def ui(
    prefect_port: Annotated[int, typer.Option(help="Port of the Prefect UI.")] = 4200,
    mlflow_port: Annotated[int, typer.Option(help="Port of the MLflow UI.")] = 5000,
    host: Annotated[str, typer.Option(help="Another than this machine's own needs IGRPO_UI_PASSWORD.")] = "127.0.0.1",
) -> None:
    """Start the Prefect and MLflow servers over the store; Ctrl-C stops both."""
    from flows.ui import serve

    serve(out, open_store(), prefect_port, mlflow_port, host)


@app.command()
def deploy(
    limit: Annotated[int, typer.Option(min=1, help="Runs that the worker does at a time.")] = 1,
    prefect_port: Annotated[int, typer.Option(help="Port of the Prefect UI.")] = 4200,
    mlflow_port: Annotated[int, typer.Option(help="Port of the MLflow UI.")] = 5000,
    host: Annotated[str, typer.Option(help="Another than this machine's own needs IGRPO_UI_PASSWORD.")] = "127.0.0.1",
) -> None:
    """Servers, deployments, automations and a worker: what is missing is started, and kept up until Ctrl-C."""
    from flows.deploying import deploy as bring_up

    bring_up(out, open_store(), limit, prefect_port, mlflow_port, host)


@app.command()
def doctor() -> None:
    """Check versions, devices, threads and the store; say what is missing and how to get it."""
    from flows.doctor import examine

    if not examine(out, open_store()):
        raise typer.Exit(EXIT_FAILED)


def main() -> None:
    """Entry point: every expected error becomes one readable line and an exit status (1 failed, 2 wrong input)."""
    from pydantic import ValidationError

    from flows.recipes import RecipeError, readable

    try:
        app()
    except (RecipeError, RecipeConflict, UnknownLineage) as error:
        _fail(str(error), EXIT_USAGE)
    except ValidationError as error:
        _fail(readable(error), EXIT_USAGE)
    except KeyboardInterrupt:
        _fail("stopped; the same command goes on from the last finished stage", EXIT_FAILED)
    except (StorageError, OSError, ValueError) as error:
        _fail(str(error), EXIT_FAILED)
    except Exception as error:
        if os.environ.get("IGRPO_TRACEBACK"):
            raise
        _fail(f"{type(error).__name__}: {error} (IGRPO_TRACEBACK=1 shows where)", EXIT_FAILED)


def _fail(message: str, status: int) -> None:
    err.print("[bold red]error:[/bold red] ", end="")
    err.print(message, markup=False, highlight=False, soft_wrap=True)
    sys.exit(status)


if __name__ == "__main__":
    main()
