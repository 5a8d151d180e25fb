"""What is known of the licences of the data and the weights that a lineage began with; what is not known is said so."""

from collections.abc import Mapping
from typing import Any

UNKNOWN = "unknown"

PROMPTS: Mapping[str, str] = {
    "arithmetic": "none needed: made by this code",
    "reasoning_gym": "Apache-2.0 (reasoning-gym, which makes the tasks)",
    "jsonl": f"{UNKNOWN}: the user's file",
    "parquet": f"{UNKNOWN}: the user's file",
    "datasets": f"{UNKNOWN}: see the page of the data set",
}
"""Kind of a prompt source -> its licence."""

POLICIES: Mapping[str, str] = {
    "scratch": "none needed: made by this code",
    "smollm2": "Apache-2.0 (SmolLM2-135M-Instruct)",
    "local": f"{UNKNOWN}: the user's folder",
    "hub": f"{UNKNOWN}: see the page of the model",
}
"""Kind of a first policy -> its licence."""


def licences(recipe: Mapping[str, Any]) -> dict[str, str]:
    """What -> licence, for the prompts and the first policy of a recipe; a kind without a row is unknown."""
    source, policy = recipe["prompts"]["source"], recipe["policy"]
    return {
        f"prompts: {described(source)}": PROMPTS.get(source["kind"], UNKNOWN),
        f"first policy: {described(policy)}": POLICIES.get(policy["kind"], UNKNOWN),
    }


def described(settings: Mapping[str, Any]) -> str:
    """A kind with what names it: "jsonl train.jsonl", "hub name@revision"."""
    named = settings.get("path") or settings.get("name") or settings.get("task") or ""
    revision = f"@{settings['revision']}" if named and settings.get("revision") else ""
    return f"{settings['kind']} {named}{revision}".strip()


def card_licence(recipe: Mapping[str, Any]) -> str:
    """The identifier for a model card: that of the first policy's weights where it is known, else "unknown"."""
    return "apache-2.0" if recipe["policy"]["kind"] == "smollm2" else UNKNOWN
