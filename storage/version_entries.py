"""What the journal says of versions: what each came from, what was decided about it, where the aliases point."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from storage import checkpoints, journal, registry, version_pages
from storage.decisions import Decision
from storage.iterations import IterationRecord
from storage.manifest import read_manifest
from storage.refs import DatasetRef, ModelRef, Place

VERBS = {"promote": "grpo.promote", "rollback": "grpo.rollback"}
"""Kind of a decision by hand -> the tag of the policy version that it was taken for."""


class Made(NamedTuple):
    """A model that an iteration made: its parents by relation, its sentence, and the tags that only it has."""

    ref: ModelRef
    parents: Mapping[str, ModelRef]
    sentence: str
    said: Mapping[str, str]


def write_version(place: Place, made: Made, datasets: Mapping[str, DatasetRef]) -> None:
    """One version, with every edge as a tag, from which its page is drawn."""
    tags = {f"grpo.{relation}": registry.model_uri(place.lineage, ref) for relation, ref in made.parents.items()}
    tags[version_pages.SENTENCE] = made.sentence
    tags[version_pages.DATASETS] = version_pages.tag_of(
        {name: (each.digest, each.num_rows) for name, each in datasets.items()}
    )
    tags["grpo.code"] = commit_of(made.ref)
    rank = checkpoints.metrics_of(made.ref).get("lora_rank")
    if rank and "reference" in made.parents:
        tags |= {"grpo.lora_rank": f"{rank:g}", "grpo.lora_base": made.parents["reference"].digest}
    tags |= {name: text for name, text in made.said.items() if text}
    content = {"ref": made.ref.model_dump(), "tags": tags, "description": made.sentence}
    journal.append(place, "version", content)


def write_champion(place: Place, record: IterationRecord) -> None:
    """What the iteration decided about the champion, as a tag of the version that holds it since."""
    why = record.promotion or "the first policy"
    tags = {"grpo.champion": f"iteration {record.iteration}: {why}"}
    journal.append(place, "version_tags", {"ref": record.champion.model_dump(), "tags": tags})


def write_aliases(place: Place, record: IterationRecord, cause: str) -> None:
    """Where "current" and "champion" point after ``record``, decisions included."""
    critic = [record.critic] if record.critic is not None else []
    held = {"current": [record.start, record.reward, *critic], "champion": [record.champion, record.reward, *critic]}
    for alias, refs in held.items():
        for ref in refs:
            journal.append(place, "alias", {"ref": ref.model_dump(), "alias": alias, "cause": cause})


def write_decision_tags(place: Place, decision: Decision, taken: Sequence[Decision]) -> None:
    """Every decision of this kind about this version, in one tag: who, when and why."""
    if decision.kind not in VERBS:
        return  # about a reward model; its version says so itself
    same = [each.sentence for each in taken if each.kind == decision.kind and each.policy == decision.policy]
    tags = {VERBS[decision.kind]: "; ".join(same)}
    journal.append(place, "version_tags", {"ref": decision.policy.model_dump(), "tags": tags})


def models_of(
    lineage: str, record: IterationRecord, before: IterationRecord | None, measured: str, learnt: str
) -> list[Made]:
    """Every model that the iteration made.

    Args:
        before: the record that it went on from, decisions included; None for the first.
        measured: what the policy's sentence says. learnt: the same of the reward model, "" for nothing.
    """
    named = f"iteration {record.iteration}"
    if before is None:
        parents = {"parent": record.policy}
        first = [
            Made(record.policy, {}, f"{named} · first policy · {measured}", {}),
            Made(record.reward, parents, f"{named} · first reward model", {}),
        ]
        return [*first, *([Made(record.critic, parents, f"{named} · first critic", {})] if record.critic else [])]
    policy_parents = {"parent": record.reference, "reference": record.reference, "reward_model": before.reward}
    if before.critic is not None:
        policy_parents["critic"] = before.critic
    refused = record.reward_promotion if record.refused_reward is not None else ""
    about_reward = " · ".join(part for part in (named, learnt, refused) if part)
    decided = {
        "grpo.promotion": record.promotion,
        "grpo.alarm": record.alarm,
        "grpo.guards": "; ".join(record.guards),
        "grpo.rolled_back_to": ""
        if record.rolled_back_to is None
        else registry.model_uri(lineage, record.rolled_back_to),
    }
    verdict = {"grpo.refused": refused} if refused else {"grpo.reward_promotion": record.reward_promotion}
    models = [
        Made(record.policy, policy_parents, f"{named} · {measured}", decided),
        Made(record.refused_reward or record.reward, {"parent": before.reward}, about_reward, verdict),
    ]
    if record.critic is not None and before.critic is not None:
        models.append(Made(record.critic, {"parent": before.critic}, f"{named} · critic", {}))
    return models


def commit_of(ref: ModelRef) -> str:
    """The git commit of the code that made a model, from its manifest."""
    manifest = read_manifest(Path(ref.uri))
    return "unknown" if manifest is None else manifest.code.commit
