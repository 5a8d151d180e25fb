"""`igrpo repair-lineage`: MLflow told anew what the store holds of a lineage, the pages of all its versions redrawn."""

from pathlib import Path

from rich.console import Console

from storage import decisions, delivery, iterations, journal, lineages, lock, version_entries
from storage.errors import StorageError
from storage.refs import check_lineage_name
from tasks.adopt_reward import write_decided_retraining
from tasks.draw_lineage import make_lineage_page
from tasks.journal_iteration import write_entries, write_steps


def repair(out: Console, root: Path, lineage: str) -> None:
    """Write every finished iteration and decision into the journal again and deliver it; what MLflow has stays as it is.

    Raises:
        StorageError: MLflow did not take everything; the rest waits in the journal.
    """
    check_lineage_name(lineage)
    lineages.read_recipe(root, lineage)  # names the lineages that there are
    with lock.hold(root, lineage) as place:
        records, taken = iterations.records(root, lineage), decisions.decisions(root, lineage)
        for number, record in enumerate(records, 1):
            here = place.at(iteration=record.iteration)
            write_steps(here, record)
            write_entries(here, records[:number], taken)
            for decision in taken:
                if decision.after_iteration == record.iteration:
                    write_decided_retraining(here, record, decision, taken)
                    version_entries.write_decision_tags(here, decision, taken)
        if records:
            last = decisions.in_force(records[-1], taken)
            here = place.at(iteration=last.iteration)
            version_entries.write_aliases(here, last, f"iteration {last.iteration}: {last.promotion}")
            make_lineage_page(root, lineage)
        left = delivery.deliver_now(place)
        if not left:
            journal.forget_refused(place)
            if records:
                journal.mark_recorded(place, records[-1])
    if left:
        raise StorageError(f"MLflow did not take {left} things of {lineage}; start it (`igrpo ui`), then repeat this")
    out.print(f"{lineage}: MLflow holds {len(records)} iterations and {len(taken)} decisions", highlight=False)
