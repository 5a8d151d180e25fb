"""`igrpo lineage`: the graph as a tree in the terminal and as JSON, what made a policy, what a reward model was used for."""

from pathlib import Path

from rich.console import Console
from rich.tree import Tree

from flows.summary_view import number
from storage import decisions, iterations, registry
from storage.manifest import differences, read_manifest
from storage.refs import ModelRef
from tasks.ancestry.answers import Uses, Why, uses, why
from tasks.ancestry.graph import Graph, Kind, Node
from tasks.draw_lineage import read_graph

Answer = Graph | Why | Uses
KINDS: dict[Kind, str] = {"policy": "policy", "reward": "reward", "critic": "critic"}
DIGEST_CHARACTERS = 12
STAGE = "policy"
"""Of a policy that an update made; the first one was made from other settings."""


def answer_to(root: Path, lineage: str, policy: str | None, reward_model: str | None) -> Answer:
    """What made ``policy``, else what ``reward_model`` was used for, else the whole graph."""
    if policy is not None:
        return answer_to_why(root, lineage, policy)
    return read_graph(root, lineage) if reward_model is None else answer_to_uses(root, lineage, reward_model)


def answer_to_why(root: Path, lineage: str, version: str) -> Why:
    """What made a policy; ``version`` is 3 or v3. ValueError names the versions that there are."""
    graph, told, taken = (
        read_graph(root, lineage),
        iterations.records(root, lineage),
        decisions.decisions(root, lineage),
    )
    asked = version.removeprefix("v")
    changed: list[str] = []
    for record in told:
        if record.policy.version == asked and record.iteration:
            changed = _changed(record.reference, record.policy)
    return why(graph, [each.model_dump() for each in told], [each.model_dump() for each in taken], asked, changed)


def answer_to_uses(root: Path, lineage: str, version: str) -> Uses:
    """The policies trained with a reward model; ``version`` is 2 or v2. ValueError names the versions that there are."""
    return uses(read_graph(root, lineage), version.removeprefix("v"))


def print_json(out: Console, answer: Answer) -> None:
    """The answer as one JSON object, not wrapped to the terminal's width."""
    out.print(answer.model_dump_json(indent=1), markup=False, highlight=False, soft_wrap=True)


def print_graph(out: Console, graph: Graph) -> None:
    """A tree per role: each version with its marks, what it came from, what it went into, what was decided about it."""
    labels = {node.id: node for node in graph.nodes}
    for kind, role in KINDS.items():
        nodes = [node for node in graph.nodes if node.kind == kind]
        if not nodes:
            continue  # only PPO has a critic
        tree = Tree(registry.registered_name(graph.lineage, role))  # type: ignore[arg-type]
        for node in nodes:
            branch = tree.add(_line(node))
            for edge in graph.edges:
                if edge.target == node.id:
                    source = labels[edge.source]
                    branch.add(f"{edge.relation.replace('_', ' ')}: {_named(graph.lineage, source)}")
            for note in node.notes:
                branch.add(note)
            branch.add(f"digest {node.digests[0][:DIGEST_CHARACTERS]}")
        _print(out, tree)


def print_answer(out: Console, answer: Answer) -> None:
    """The answer for a person."""
    if isinstance(answer, Graph):
        print_graph(out, answer)
    else:
        _print(out, _tree_of_why(answer) if isinstance(answer, Why) else _tree_of_uses(answer))


def _tree_of_why(answer: Why) -> Tree:
    tree = Tree(f"{answer.lineage}: {_line(answer.policy)}")
    if answer.outcome == "no_signal":
        tree.add("no step had a group to learn from: the weights are those of its parent")
    for relation, identity in answer.parents.items():
        kind, _, version = identity.partition(":")
        name = registry.registered_name(answer.lineage, KINDS[kind])  # type: ignore[arg-type,index]
        tree.add(f"{relation.replace('_', ' ')}: models:/{name}/{version}")
    for node in answer.data:
        tree.add(f"{node.label}: {node.detail} ({', '.join(each[:DIGEST_CHARACTERS] for each in node.digests)})")
    scores = tree.add("measured")
    for name, value in answer.scores.items():
        scores.add(f"{name} {number(value)}")
    settings = tree.add("settings that differ from its parent's (recorded: the parent's, asked: its own)")
    for line in answer.changed or ("none",):
        settings.add(line)
    for what, said in (("champion", answer.champion), ("alarm", answer.alarm)):
        if said:
            tree.add(f"{what}: {said}")
    for said in answer.guards:
        tree.add(f"guard: {said}")
    for said in answer.decisions:
        tree.add(said)
    return tree


def _tree_of_uses(answer: Uses) -> Tree:
    tree = Tree(f"{answer.lineage}: {_line(answer.reward_model)}")
    for node in answer.policies:
        tree.add(f"trained {_named(answer.lineage, node)} {node.detail}")
    for node in answer.tables:
        tree.add(f"scored {node.label}: {node.detail}")
    if not answer.policies and not answer.tables:
        tree.add("no finished iteration was scored with it")
    return tree


def _line(node: Node) -> str:
    return " ".join([node.label, node.detail, *(f"@{mark.replace(' ', '-')}" for mark in node.marks)]).rstrip()


def _named(lineage: str, node: Node) -> str:
    """models:/NAME/VERSION of a version, "samples 3, 512 rows" of a table."""
    if node.kind == "data":
        return f"{node.label}, {node.detail}"
    version = node.id.partition(":")[2]
    return f"models:/{registry.registered_name(lineage, KINDS[node.kind])}/{version}"  # type: ignore[arg-type]


def _changed(parent: ModelRef, policy: ModelRef) -> list[str]:
    before, after = read_manifest(Path(parent.uri)), read_manifest(Path(policy.uri))
    if before is None or after is None or before.provenance.stage != STAGE or after.provenance.stage != STAGE:
        return []
    lines = differences(before.provenance.config, after.provenance.config)
    return lines + differences(before.code.model_dump(), after.code.model_dump(), "code")


def _print(out: Console, tree: Tree) -> None:
    """People's and models' words are text, not markup."""
    for each in _walk(tree):
        each.label = out.render_str(str(each.label), markup=False, highlight=False)
    out.print(tree)


def _walk(tree: Tree) -> list[Tree]:
    return [tree, *(below for child in tree.children for below in _walk(child))]
