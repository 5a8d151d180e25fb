"""Every setting of a recipe as Markdown, written from the classes that parse it: `python -m flows.recipe_reference` rewrites docs/recipes.md."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flows.config import PipelineConfig

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "recipes.md"
BEGIN = "<!-- written by `python -m flows.recipe_reference`; edit the docstrings of the settings instead -->"
LIMITS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}


def reference() -> str:
    """One table per group of settings: key, type with its limits, default, meaning."""
    schema = PipelineConfig.model_json_schema()
    lines: list[str] = []
    done: set[str] = set()
    queue: list[tuple[str, dict[str, Any]]] = [("", schema)]
    while queue:
        title, group = queue.pop(0)
        lines += _table(title, group, schema["$defs"])
        for path, name in _groups_of(title, group):
            if name not in done:
                done.add(name)
                queue.append((path, schema["$defs"][name]))
    return "\n".join(lines).rstrip() + "\n"


def document(text: str) -> str:
    """``text`` with everything below the mark replaced by the settings of today."""
    return f"{text.partition(BEGIN)[0]}{BEGIN}\n\n{reference()}"


def _table(path: str, group: dict[str, Any], defs: dict[str, Any]) -> list[str]:
    properties = group.get("properties", {})
    kind = _kind(group)
    title = f"`[{path}]`" if path else "The recipe"
    if kind is not None:
        title += f' with `kind = "{kind}"`'
    about = " ".join(group.get("description", "").split())
    rows = [
        f"| `{key}` | {_type(each, defs)} | {_default(key, each, group)} | {_cell(each.get('description', ''))} |"
        for key, each in properties.items()
        if key != "kind"  # stands in the title
    ]
    if not rows:
        return [f"### {title}", "", about, ""]
    return [f"### {title}", "", about, "", "| key | type | default | meaning |", "|---|---|---|---|", *rows, ""]


def _groups_of(path: str, group: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(key path, name of the class) of every group of settings directly below."""
    for key, each in group.get("properties", {}).items():
        for name in _references(each):
            yield f"{path}.{key}".lstrip("."), name


def _references(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"].rpartition("/")[2]
        for key, each in node.items():
            if key not in ("default", "discriminator"):
                yield from _references(each)
    elif isinstance(node, list):
        for each in node:
            yield from _references(each)


def _type(node: dict[str, Any], defs: dict[str, Any]) -> str:
    """A field's type in words; alternatives are joined by "or"."""
    if "$ref" in node:
        target = defs[node["$ref"].rpartition("/")[2]]
        kind = _kind(target)
        return f"a table of kind `{kind}`" if kind else (_type(target, defs) if "enum" in target else "a table")
    if "oneOf" in node:  # a union told apart by ``kind``
        kinds = [_kind(defs[each["$ref"].rpartition("/")[2]]) for each in node["oneOf"]]
        return "a table of kind " + ", ".join(f"`{kind}`" for kind in kinds)
    if "anyOf" in node:
        return " or ".join(dict.fromkeys(_type(each, defs) for each in node["anyOf"]))
    if "const" in node or "enum" in node:
        return " or ".join(f"`{json.dumps(each)}`" for each in node.get("enum", [node.get("const")]))
    if node.get("type") == "array":
        items = node.get("items") or {}
        return f"a list; each {_type(items, defs)}" if items else "a list"
    if node.get("type") == "null":
        return "left out"
    limits = [f"{sign} {node[name]:g}" for name, sign in LIMITS.items() if name in node]
    if "pattern" in node:
        limits.append(f"matching `{node['pattern']}`".replace("|", "\\|"))
    return " ".join([node.get("type", "anything"), ", ".join(limits)]).strip()


def _kind(group: dict[str, Any]) -> str | None:
    """What ``kind`` must say for these settings; None where there is one kind only."""
    return group.get("properties", {}).get("kind", {}).get("const")  # type: ignore[no-any-return]


def _default(key: str, node: dict[str, Any], group: dict[str, Any]) -> str:
    if key in group.get("required", []):
        return "required"
    value = node.get("default")
    if value is None:
        return "left out"
    text = json.dumps(value, ensure_ascii=False)
    return f"`{text}`".replace("|", "\\|") if len(text) <= 60 else "see its table"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    DOCUMENT.write_text(document(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
