"""`igrpo promote` and `igrpo rollback`: a person moves the champion, or the place from which a lineage goes on."""

import getpass
from pathlib import Path
from typing import Literal

from rich.console import Console

from storage import checkpoints, decisions, delivery, iterations, journal, lineages, lock, version_entries
from storage.decisions import Decision
from storage.errors import StorageError
from storage.iterations import IterationRecord
from tasks.draw_lineage import make_lineage_page


def decide(
    out: Console,
    root: Path,
    lineage: str,
    kind: Literal["promote", "rollback"],
    version: int | None,
    why: str,
    by: str | None,
) -> Decision:
    """Take the decision, move the aliases, tag the version and say what follows.

    Args:
        version: of the policy; None takes the champion.
        by: who decides; None takes the user of the operating system.

    Raises:
        StorageError: the lineage has no such version, or no finished iteration.
        ValueError: why is empty.
    """
    if not why.strip():
        raise ValueError("say why: --why TEXT is kept with the decision")
    lineages.read_recipe(root, lineage)  # UnknownLineage names those that there are
    with lock.hold(root, lineage) as place:
        records = iterations.records(root, lineage)
        if not records:
            raise StorageError(f"lineage {lineage!r} has no finished iteration yet; there is nothing to choose from")
        last = decisions.in_force(records[-1], decisions.decisions(root, lineage))
        chosen = _chosen(records, str(version) if version is not None else last.champion.version, lineage)
        checkpoints.open_folder(chosen.policy)  # its weights are there, and are those that were committed
        decision = decisions.take(place, kind, chosen, last, why.strip(), by or getpass.getuser())
        here = place.at(iteration=last.iteration)
        taken = decisions.decisions(root, lineage)
        version_entries.write_aliases(here, decisions.in_force(records[-1], taken), decision.sentence)
        version_entries.write_decision_tags(here, decision, taken)
        if kind == "rollback":
            journal.append(place.at(iteration=last.iteration + 1), "retire", {"why": decision.sentence})
        delivery.deliver(here)
        make_lineage_page(root, lineage)
    out.print(f"{lineage}: {decision.sentence}", highlight=False, markup=False, soft_wrap=True)
    goes_on = chosen.policy if kind == "rollback" else last.start
    out.print(f"iteration {last.iteration + 1} starts from policy v{goes_on.version}", highlight=False)
    return decision


def _chosen(records: list[IterationRecord], version: str, lineage: str) -> IterationRecord:
    for record in records:
        if record.policy.version == version:
            return record
    known = ", ".join(f"v{record.policy.version}" for record in records)
    raise StorageError(f"lineage {lineage!r} has no policy v{version}; there are: {known}")
