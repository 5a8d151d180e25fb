"""The whole ancestry of a lineage, read from the store alone: the graph, and the page that shows it beside the tables."""

import os
from collections.abc import Mapping
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage import decisions, iterations, lineages, registry, reports, stages
from storage.errors import UnknownLineage
from storage.manifest import read_manifest
from storage.refs import Place
from tasks.ancestry.graph import Graph, Node, graph_of
from tasks.reporting.lineage_page import render_lineage

WEIGHTS_REMOVED = "its weights were removed to save space; the numbers and tables stand"
GONE = "it is not in this store any more"


@task(cache_policy=NO_CACHE, retries=2, retry_delay_seconds=2)
def draw_lineage(place: Place) -> None:
    """Write the page of the lineage's graph anew. A view: nothing depends on it."""
    make_lineage_page(Path(place.root), place.lineage)


def make_lineage_page(root: Path, lineage: str) -> Path:
    """Write ROOT/LINEAGE/lineage.html and give its path.

    Raises:
        UnknownLineage: the lineage has no finished iteration.
    """
    graph = read_graph(root, lineage)
    links = {node.id: _links(root / lineage, node) for node in graph.nodes}
    return reports.write_lineage_page(root, lineage, render_lineage(graph, links).encode("utf-8"))


def read_graph(root: Path, lineage: str) -> Graph:
    """The graph of the finished iterations; what was removed from the store since is said at its node.

    Raises:
        UnknownLineage: there is no finished iteration. CorruptArtifact: a record or manifest can not be read.
    """
    told, taken = iterations.records(root, lineage), decisions.decisions(root, lineage)
    if not told:
        raise UnknownLineage(f"lineage {lineage!r} has no finished iteration yet; there is nothing to draw")
    parent = lineages.read_parent(root, lineage)
    graph = graph_of(
        lineage,
        [each.model_dump() for each in told],
        [decisions.in_force(each, taken).model_dump() for each in told],
        {each.iteration: _by_table(root, lineage, each.iteration) for each in told},
        [each.model_dump() for each in taken],
    )
    nodes = [_with_state(node) for node in graph.nodes]
    if parent is not None:
        first = f"policy:{told[0].policy.version}"
        said = f"branched from models:/{registry.registered_name(parent.lineage, 'policy')}/{parent.version}"
        nodes = [node.model_copy(update={"notes": (said, *node.notes)}) if node.id == first else node for node in nodes]
    return graph.model_copy(update={"nodes": tuple(nodes)})


def _by_table(root: Path, lineage: str, iteration: int) -> dict[str, list[dict[str, object]]]:
    found: dict[str, list[dict[str, object]]] = {}
    for name, ref in stages.step_tables(root, lineage, iteration).items():
        found.setdefault(name.partition("_")[0], []).append(ref.model_dump())
    return found


def _with_state(node: Node) -> Node:
    """The node with a note if what it names is not in the store any more."""
    manifests = [read_manifest(Path(uri)) for uri in node.uris]
    if any(each is None for each in manifests):
        return node.model_copy(update={"notes": (*node.notes, GONE)})
    if any(each is not None and each.pruned for each in manifests):
        return node.model_copy(update={"notes": (*node.notes, WEIGHTS_REMOVED)})
    return node


def _links(lineage_folder: Path, node: Node) -> list[tuple[str, str]]:
    """(name, address relative to the page) of the report of the node's iteration and of its folders, where they are."""
    report = reports.report_path(lineage_folder.parent, lineage_folder.name, node.iteration)
    named: Mapping[str, Path] = {
        f"report of iteration {node.iteration}": report,
        **{
            f"folder {number}" if len(node.uris) > 1 else "folder": Path(uri) for number, uri in enumerate(node.uris, 1)
        },
    }
    return [
        (name, os.path.relpath(path, lineage_folder) + "/" * path.is_dir())
        for name, path in named.items()
        if path.exists()
    ]
