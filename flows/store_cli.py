"""The commands that look after the store: verify-store, gc, branch, export."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from flows.environment import open_store

out = Console()
store_app = typer.Typer()


@store_app.command("verify-store")
def verify_store(
    lineage: Annotated[str | None, typer.Argument(help="One lineage; all of them without.")] = None,
) -> None:
    """Read every manifest, part and reference of the store. Exit status: 0 when all is whole, 1 when something is wrong."""
    from flows.store_check import check_store

    if not check_store(out, open_store(), lineage):
        raise typer.Exit(1)


@store_app.command("gc")
def collect(
    apply: Annotated[bool, typer.Option("--apply", help="Remove them; without, only say what would go.")] = False,
    keep_last: Annotated[int, typer.Option(min=1, help="Finished iterations of each lineage whose weights stay.")] = 3,
    lineage: Annotated[str | None, typer.Option(help="Only this one; all of them without.")] = None,
) -> None:
    """Weights that nothing needs any more: what would go, and what stays and why. Tables and records always stay."""
    from flows.store_collect import apply_plans, show_plans

    act = apply_plans if apply else show_plans
    act(out, open_store(), lineage, keep_last)


@store_app.command("branch")
def branch(
    source: Annotated[str, typer.Argument(metavar="LINEAGE@VERSION", help="The policy version to go on from.")],
    name: Annotated[str, typer.Argument(metavar="NEW", help="Name of the new lineage.")],
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of the recipe for the new lineage."),
    ] = None,
) -> None:
    """Fork a lineage: a new one that goes on from any version whose weights are there. No weights are copied."""
    from flows.store_branch import branch_lineage

    branch_lineage(out, open_store(), source, name, overrides or [])


@store_app.command("export")
def export(
    lineage: Annotated[str, typer.Argument(help="Name of the lineage.")],
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="A folder that is not there yet, or is empty.")],
    version: Annotated[int | None, typer.Option(min=1, help="Of the policy; the champion by default.")] = None,
) -> None:
    """Weights, tokenizer, tables and a model card in one folder that transformers loads."""
    from flows.store_export import export_version

    export_version(out, open_store(), lineage, version, to)
