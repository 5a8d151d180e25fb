"""Two questions to the graph: what made this policy, and which policies a reward model had a hand in."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tasks.ancestry.graph import VERBS, Graph, Node, Record, model_node
from tasks.values.frozen import Frozen

PARENTS = ("parent", "reference", "reward_model", "critic")


class Why(Frozen):
    """What made a policy version."""

    lineage: str
    policy: Node
    outcome: str
    parents: dict[str, str]
    """parent, reference, reward_model, critic -> id of the version."""
    data: tuple[Node, ...]
    """The tables that lie between its parents and it, and its evaluation."""
    scores: dict[str, float | None]
    """None where the measurement is not a finite number (a correlation of equal values, say)."""
    champion: str
    """Why the champion moved or stayed."""
    guards: tuple[str, ...]
    alarm: str
    decisions: tuple[str, ...]
    changed: tuple[str, ...]
    """What differs in the settings and the code from those of the parent policy: "key: recorded X, asked Y"."""


class Uses(Frozen):
    """The policies that a reward model's scores trained, and the tables that it scored."""

    lineage: str
    reward_model: Node
    policies: tuple[Node, ...]
    tables: tuple[Node, ...]


def why(
    graph: Graph,
    records: Sequence[Record],
    decisions: Sequence[Mapping[str, Any]],
    version: str,
    changed: Sequence[str],
) -> Why:
    """What made policy ``version``; ValueError names the versions that there are."""
    policy = graph.node(f"policy:{version}")
    record = next(each for each in records if model_node(each["policy"]) == policy.id)
    tables = ("prompts", "completions", "rewards", "samples", "evaluation") if record["iteration"] else ("evaluation",)
    names = {f"{name}:{0 if name == 'prompts' else record['iteration']}" for name in tables}
    return Why(
        lineage=graph.lineage,
        policy=policy,
        outcome=record.get("outcome", "updated"),
        parents={
            relation: edge.source
            for relation in PARENTS
            for edge in graph.edges
            if edge.target == policy.id and edge.relation == relation
        },
        data=tuple(node for node in graph.nodes if node.id in names),
        scores={
            name: value if math.isfinite(value) else None
            for name, value in sorted(record["metrics"].items())
            if name == "reward_mean" or name.startswith(("evaluation/", "promotion/"))
        },
        champion=record.get("promotion", ""),
        guards=tuple(record.get("guards") or ()),
        alarm=record.get("alarm", ""),
        decisions=tuple(
            f"{VERBS[each['kind']]} after iteration {each['after_iteration']} by {each['by']} at {each['at']}: {each['why']}"
            for each in decisions
            if each.get("reward") is None and model_node(each["policy"]) == policy.id
        ),
        changed=tuple(changed),
    )


def uses(graph: Graph, version: str) -> Uses:
    """What reward model ``version`` scored; ValueError names the versions that there are."""
    reward = graph.node(f"reward:{version}")
    trained = {edge.target for edge in graph.edges if edge.source == reward.id and edge.relation == "reward_model"}
    scored = {edge.target for edge in graph.edges if edge.source == reward.id and edge.relation == "wrote"}
    return Uses(
        lineage=graph.lineage,
        reward_model=reward,
        policies=tuple(node for node in graph.nodes if node.id in trained),
        tables=tuple(node for node in graph.nodes if node.id in scored),
    )
