"""The report of an iteration: a page for people beside what it describes, rewritten freely, part of no provenance."""

from pathlib import Path

from storage import files, working_copy
from storage.refs import iteration_name

REPORT_FILE = "report.html"


def report_path(root: Path, lineage: str, iteration: int) -> Path:
    """ROOT/LINEAGE/iteration-0003/report.html."""
    return root / lineage / iteration_name(iteration) / REPORT_FILE


def write_report(root: Path, lineage: str, iteration: int, page: bytes) -> Path:
    """Write the page in one step, over the one that is there; the lineage need not be held, nothing depends on it."""
    path = report_path(root, lineage, iteration)
    files.write_atomic(path, page)
    working_copy.send_file(path)
    return path
