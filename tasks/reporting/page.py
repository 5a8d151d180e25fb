"""The report as one HTML file: everything escaped, nothing loaded, no script allowed, light and dark."""

import base64
import hashlib
from dataclasses import fields
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from tasks.reporting import chart
from tasks.reporting.contents import MISSING, Contents
from tasks.reporting.visible import visible

FOLDER = Path(__file__).parent
TEMPLATE = "iteration.html"
STYLE = "iteration.css"


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["visible"] = visible
    return environment.get_template(TEMPLATE)


def render(contents: Contents) -> str:
    """The page. Completions are untrusted text: the template escapes every value, ``visible`` shows what would hide, and
    the page's own policy refuses scripts, frames, forms and everything that would be fetched; the one style sheet that it
    allows is named by its hash.
    """
    style = (FOLDER / STYLE).read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    values = {field.name: getattr(contents, field.name) for field in fields(contents)}
    page = _template().render(**values, style=style, style_digest=digest, size=chart, missing=MISSING)
    return f"{page}\n"
