"""Pages for people beside what they describe, rewritten freely, part of no provenance: reports, the lineage's graph."""

from pathlib import Path

from storage import files, working_copy
from storage.refs import iteration_name

REPORT_FILE = "report.html"
LINEAGE_FILE = "lineage.html"


def report_path(root: Path, lineage: str, iteration: int) -> Path:
    """ROOT/LINEAGE/iteration-0003/report.html."""
    return root / lineage / iteration_name(iteration) / REPORT_FILE


def write_report(root: Path, lineage: str, iteration: int, page: bytes) -> Path:
    """Write the page in one step, over the one that is there; the lineage need not be held, nothing depends on it."""
    path = report_path(root, lineage, iteration)
    files.write_atomic(path, page)
    working_copy.send_file(path)
    return path


def write_lineage_page(root: Path, lineage: str, page: bytes) -> Path:
    """Write ROOT/LINEAGE/lineage.html like ``write_report``."""
    path = root / lineage / LINEAGE_FILE
    files.write_atomic(path, page)
    working_copy.send_file(path)
    return path
