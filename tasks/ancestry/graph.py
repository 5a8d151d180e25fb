"""The ancestry of a lineage as nodes and edges: which model and which table came from which."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from tasks.values.frozen import Frozen

Kind = Literal["policy", "reward", "critic", "data"]
Relation = Literal[
    "parent", "reference", "reward_model", "critic", "read", "wrote", "learnt_from", "replayed", "measured"
]
Record = Mapping[str, Any]
StepTables = Mapping[str, Sequence[Record]]

FORMAT = 1
"""Of the JSON form; it grows by new keys, a key that stands here keeps its meaning."""

TITLES = {
    "prompts": "prompts",
    "completions": "rollouts",
    "rewards": "rewards",
    "samples": "samples",
    "labels": "labels",
    "anchor": "anchor",
    "reward_training": "reward training set",
    "evaluation": "evaluation",
}
"""Table -> what a person calls it."""
VERBS = {"promote": "made champion", "rollback": "gone back to", "reward": "taken as the reward model"}
"""Kind of a decision by hand -> what it did to the version that it names."""


class Node(Frozen):
    """A model version or a table of one iteration."""

    id: str
    """policy:3 (a version) or completions:2 (a table, by iteration)."""
    kind: Kind
    iteration: int
    label: str
    detail: str = ""
    digests: tuple[str, ...] = ()
    """sha256 in hex: of the model, or of each table in the order of the steps."""
    uris: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    """champion, current, refused, rolled back, guard, alarm."""
    notes: tuple[str, ...] = ()
    """The evidence of guards, why the champion moved or stayed, what people decided."""


class Edge(Frozen):
    """``target`` came from ``source``."""

    source: str
    target: str
    relation: Relation


class Graph(Frozen):
    """A whole lineage; nodes in the order of iterations, then of the loop's stages."""

    format: int = FORMAT
    lineage: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]

    def node(self, identity: str) -> Node:
        """The node of that id; ValueError names those that there are of its kind."""
        for each in self.nodes:
            if each.id == identity:
                return each
        kind = identity.partition(":")[0]
        known = ", ".join(each.id for each in self.nodes if each.id.partition(":")[0] == kind) or "none"
        raise ValueError(f"lineage {self.lineage!r} has no {identity}; there are: {known}")


def model_node(ref: Record) -> str:
    return f"{ref['role']}:{ref['version']}"


def graph_of(
    lineage: str,
    records: Sequence[Record],
    standing: Sequence[Record],
    step_tables: Mapping[int, StepTables],
    decisions: Sequence[Record],
) -> Graph:
    """The graph of finished iterations.

    Args:
        records: the iterations' records from the first one on.
        standing: the same with what people decided after each of them, as the iteration that followed saw it.
        step_tables: iteration -> completions, rewards, samples -> the tables of its steps (refs).
        decisions: what people decided by hand, in order.
    """
    nodes: dict[str, Node] = {}
    edges: dict[tuple[str, str, str], Edge] = {}

    def join(source: str, target: str, relation: Relation) -> None:
        if source in nodes and target in nodes:
            edges.setdefault((source, target, relation), Edge(source=source, target=target, relation=relation))

    for position, record in enumerate(records):
        before = standing[position - 1] if position else None
        for node in _nodes(record, before, step_tables.get(record["iteration"], {})):
            nodes.setdefault(node.id, node)
        for source, target, relation in _edges(record, before, records[:position]):
            join(source, target, relation)
        if (retrained := model_node(standing[position]["reward"])) not in nodes:
            detail = f"retrained after iteration {record['iteration']}"
            nodes[retrained] = _model(standing[position]["reward"], record["iteration"], detail)
            join(model_node(record["reward"]), retrained, "parent")
    last = standing[-1] if standing else None
    return Graph(lineage=lineage, nodes=tuple(_marked(nodes, records, last, decisions)), edges=tuple(edges.values()))


def _nodes(record: Record, before: Record | None, steps: StepTables) -> list[Node]:
    iteration = record["iteration"]
    tables = {name: list(refs) for name, refs in steps.items() if refs}
    for name in ("prompts", "labels", "anchor", "reward_training", "evaluation"):
        if name in record["tables"] and (before is None or name not in ("prompts", "anchor")):
            tables[name] = [record["tables"][name]]
    accuracy = record["metrics"].get("evaluation/accuracy")
    measured = f"iteration {iteration}" + ("" if accuracy is None else f" · accuracy {accuracy:.3f}")
    models = [_model(record["policy"], iteration, measured)]
    learnt = record.get("refused_reward") or record["reward"]
    auc = record["metrics"].get("reward_model/heldout_accuracy_after")
    models.append(
        _model(learnt, iteration, f"iteration {iteration}" + ("" if auc is None else f" · accuracy {auc:.3f}"))
    )
    if record.get("critic"):
        models.append(_model(record["critic"], iteration, f"iteration {iteration}"))
    data = [_data(name, iteration, tables[name]) for name in TITLES if name in tables]
    # a branch begins with a later iteration, and with the prompts that its parent began with
    lasting = {f"{name}:{iteration}": f"{name}:0" for name in ("prompts", "anchor")}
    return [node.model_copy(update={"id": lasting.get(node.id, node.id)}) for node in data] + models


def _model(ref: Record, iteration: int, detail: str) -> Node:
    name = {"policy": "policy", "reward": "reward model", "critic": "critic"}[ref["role"]]
    return Node(
        id=model_node(ref),
        kind=ref["role"],
        iteration=iteration,
        label=f"{name} v{ref['version']}",
        detail=detail,
        digests=(ref["digest"],),
        uris=(ref["uri"],),
    )


def _data(name: str, iteration: int, refs: Sequence[Record]) -> Node:
    return Node(
        id=f"{name}:{iteration}",
        kind="data",
        iteration=iteration,
        label=f"{TITLES[name]} {iteration}",
        detail=f"{sum(ref['num_rows'] for ref in refs)} rows",
        digests=tuple(ref["digest"] for ref in refs),
        uris=tuple(ref["uri"] for ref in refs),
    )


def _edges(record: Record, before: Record | None, earlier: Sequence[Record]) -> list[tuple[str, str, Relation]]:
    now = record["iteration"]
    policy, learnt = model_node(record["policy"]), model_node(record.get("refused_reward") or record["reward"])
    found: list[tuple[str, str, Relation]] = [
        (policy, f"evaluation:{now}", "measured"),
        (f"labels:{now}", f"reward_training:{now}", "read"),
        (f"reward_training:{now}", learnt, "learnt_from"),
    ]
    if before is None:
        return [*found, (policy, learnt, "parent"), (policy, f"labels:{now}", "wrote")]
    start, scorer = model_node(record["reference"]), model_node(before["reward"])
    found += [
        (start, policy, "parent"),
        (start, policy, "reference"),
        (scorer, policy, "reward_model"),
        ("prompts:0", f"completions:{now}", "read"),
        (start, f"completions:{now}", "wrote"),
        (f"completions:{now}", f"rewards:{now}", "read"),
        (scorer, f"rewards:{now}", "wrote"),
        (f"rewards:{now}", f"samples:{now}", "read"),
        (f"samples:{now}", policy, "learnt_from"),
        (f"rewards:{now}", f"labels:{now}", "read"),
        (scorer, learnt, "parent"),
        ("prompts:0", f"evaluation:{now}", "read"),
    ]
    if record["metrics"].get("replay/num_replayed"):
        found += [(f"labels:{each['iteration']}", f"reward_training:{now}", "replayed") for each in earlier]
    if record.get("critic") and before.get("critic"):
        critic = model_node(record["critic"])
        found += [
            (model_node(before["critic"]), critic, "parent"),
            (model_node(before["critic"]), policy, "critic"),
            (f"samples:{now}", critic, "learnt_from"),
        ]
    return found


def _marked(
    nodes: Mapping[str, Node], records: Sequence[Record], last: Record | None, decisions: Sequence[Record]
) -> list[Node]:
    """The nodes with what was decided about them; ``last``, decisions included, says who is champion and current."""
    marks: dict[str, list[str]] = {}
    notes: dict[str, list[str]] = {}
    for record in records:
        policy = model_node(record["policy"])
        notes.setdefault(policy, []).extend(record.get("guards") or ())
        if record.get("guards"):
            marks.setdefault(policy, []).append("guard")
        if record.get("alarm"):
            marks.setdefault(policy, []).append("alarm")
        notes[policy] += [said for said in (record.get("promotion"), record.get("alarm")) if said]
        if record.get("rolled_back_to"):
            marks.setdefault(policy, []).append("rolled back")
            notes[policy].append(f"the next iteration starts from policy v{record['rolled_back_to']['version']}")
        learnt = model_node(record.get("refused_reward") or record["reward"])
        if record.get("refused_reward"):
            marks.setdefault(learnt, []).append("refused")
        if record.get("reward_promotion"):
            notes.setdefault(learnt, []).append(record["reward_promotion"])
    for decision in decisions:
        about = decision.get("reward") or decision["policy"]
        when = f"after iteration {decision['after_iteration']} by {decision['by']} at {decision['at']}"
        notes.setdefault(model_node(about), []).append(f"{VERBS[decision['kind']]} {when}: {decision['why']}")
    for alias, identity in _aliases(last):
        marks.setdefault(identity, []).insert(0, alias)
    return [
        node.model_copy(update={"marks": tuple(marks.get(node.id, ())), "notes": tuple(notes.get(node.id, ()))})
        for node in nodes.values()
    ]


def _aliases(last: Record | None) -> list[tuple[str, str]]:
    if last is None:
        return []
    current = last.get("rolled_back_to") or last["policy"]
    return [
        ("current", model_node(current)),
        ("champion", model_node(last["champion"])),
        ("current", model_node(last["reward"])),
    ]
