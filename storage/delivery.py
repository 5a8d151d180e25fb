"""Tell MLflow what the journal holds: in order, each thing once, in bounded time, and never at the training's cost."""

import logging
import math
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from storage import journal, lineage_pages, registry, tracking, version_pages
from storage.errors import StorageError
from storage.mlflow_client import is_untouched, tracking_uri
from storage.refs import DatasetRef, ModelRef, Place

log = logging.getLogger(__name__)

PROBE_SECONDS = 2.0
"""How long a tracking server may take to say that it is there."""
DELIVERY_SECONDS = 60.0
"""A run's delivery begins no further entry after so long; what is left waits for the next."""
CLOSE_SECONDS = 5.0
"""The same while a run is ending."""
PAUSE_SECONDS = 30.0
"""After an attempt that failed or did not come to its end, this process leaves MLflow alone for at least so long."""
MAX_LOST_SHARE = 0.05
"""The pause grows with what the attempt cost: over a run, attempts that fail take no larger share of its time."""
NEVER = {"INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST"}
"""MLflow's error codes that a later attempt can not cure."""


class Outage(NamedTuple):
    """When the last failed attempt ended, and how long MLflow is left alone after it (monotonic seconds)."""

    since: float
    pause: float


_outages: dict[str, Outage] = {}


def deliver(place: Place, *, limit_seconds: float = DELIVERY_SECONDS) -> int:
    """Deliver what is pending, unless an attempt failed a short while ago; gives how much is left.

    MLflow is a view of the store: when it can not be reached, refuses or hangs, that costs a warning (one per outage)
    and the entries wait for the next attempt. An entry that can never be delivered is set aside with the reason. One
    attempt takes at most ``limit_seconds`` and the call that it is in, which ends after MLFLOW_HTTP_REQUEST_TIMEOUT.

    Raises:
        ForeignExperiment: the tracking server keeps another store's lineage of this name.
    """
    root = Path(place.root)
    outage = _outages.get(tracking_uri(root))
    if outage is not None and time.monotonic() - outage.since < outage.pause:
        return journal.num_pending(root, place.lineage)
    return deliver_now(place, limit_seconds=limit_seconds)


def deliver_now(place: Place, *, limit_seconds: float = math.inf) -> int:
    """``deliver`` without the pause, and unless a limit is given without one."""
    root, uri, began = Path(place.root), tracking_uri(Path(place.root)), time.monotonic()
    if not (num_waiting := journal.num_pending(root, place.lineage)):
        return 0
    if reason := unreachable(uri):
        return _postponed(place, uri, began, num_waiting, reason)
    for number, (path, entry) in enumerate(journal.pending(root, place.lineage)):
        num_left = num_waiting - number
        if time.monotonic() - began > limit_seconds:
            return _postponed(place, uri, began, num_left, f"it took more than {limit_seconds:g} s")
        try:
            DELIVERIES[entry.kind](place.at(iteration=entry.iteration), entry.content)
        except tracking.ForeignExperiment:
            raise
        except Exception as error:  # noqa: BLE001  # whatever MLflow's stores and servers raise: the store has it all
            if not _is_final(error):
                return _postponed(place, uri, began, num_left, f"{type(error).__name__}: {error}")
            aside = journal.refuse(path, f"{type(error).__name__}: {error}")
            log.warning("MLflow can not record what is now in %s: %s", aside, error)
        else:
            journal.delivered(path)
    if _outages.pop(uri, None) is not None:
        log.warning("MLflow answers again: %d things of %s were recorded", num_waiting, place.lineage)
    return 0


def close(place: Place, status: str) -> None:
    """Give the runs that are still RUNNING ``status``. Called while an error is on its way, so it only warns."""
    root = Path(place.root)
    try:
        if is_untouched(root) and not journal.num_pending(root, place.lineage):
            return
        journal.append(place, "close", {"status": status})
        deliver(place, limit_seconds=CLOSE_SECONDS)
    except Exception as error:  # noqa: BLE001  # the first error matters, not the bookkeeping's
        log.warning("the MLflow runs of %s could not be marked %s: %s", place.lineage, status, error)


def addresses(place: Place, refs: Mapping[str, ModelRef]) -> dict[str, str]:
    """Where MLflow shows the lineage ("MLflow") and the versions, under its own address; {} while it waits for entries."""
    root = Path(place.root)
    if journal.num_pending(root, place.lineage):
        return {}
    try:
        found = {"MLflow": f"#/experiments/{tracking.ensure_experiment(place)}/runs?searchFilter="}
        for what, ref in refs.items():
            name = registry.registered_name(place.lineage, ref.role)
            found[what] = lineage_pages.version_link(name, registry.number_of(place, ref))
    except Exception as error:  # noqa: BLE001  # links are a courtesy, whatever MLflow raises
        log.warning("MLflow does not say where it shows %s: %s", place.lineage, error)
        return {}
    return found


def unreachable(uri: str) -> str:
    """Why a tracking server can not be used now, "" when it answers (a database needs no server)."""
    if not uri.startswith(("http://", "https://")):
        return ""
    try:
        with urllib.request.urlopen(f"{uri.rstrip('/')}/health", timeout=PROBE_SECONDS):  # noqa: S310  # http(s), above
            return ""
    except urllib.error.HTTPError:
        return ""  # whoever answers is there
    except OSError as error:
        return f"{uri} does not answer within {PROBE_SECONDS:g} s: {getattr(error, 'reason', error)}"


def _postponed(place: Place, uri: str, began: float, num_left: int, reason: str) -> int:
    if uri not in _outages:
        log.warning(
            "MLflow was not told of %d things; they wait in %s for the next iteration or `igrpo repair-lineage`: %s",
            num_left,
            journal.folder_of(Path(place.root), place.lineage),
            reason,
        )
    now = time.monotonic()
    _outages[uri] = Outage(now, max(PAUSE_SECONDS, (now - began) / MAX_LOST_SHARE))
    return num_left


def _is_final(error: Exception) -> bool:
    """What is missing in the store, or refused for what it says; a connection's errors are none of these."""
    return isinstance(error, (StorageError, FileNotFoundError, KeyError)) or getattr(error, "error_code", "") in NEVER


def _run(place: Place, content: dict[str, Any]) -> None:
    tracking.ensure_run(place, name=content["name"], tags=content["tags"], params=content["params"])


def _metrics(place: Place, content: dict[str, Any]) -> None:
    run, stamp = tracking.run_of(place), content["created_at"]
    tracking.log_metrics(place, run, content["metrics"], step=content["step"], created_at=stamp)


def _tags(place: Place, content: dict[str, Any]) -> None:
    tracking.set_tags(place, tracking.run_of(place), content["tags"])


def _dataset(place: Place, content: dict[str, Any]) -> None:
    ref = DatasetRef.model_validate(content["ref"])
    run = tracking.run_of(place)
    tracking.log_dataset(place, run, ref, context=content["context"], profile=content["profile"])


def _version(place: Place, content: dict[str, Any]) -> None:
    ref = ModelRef.model_validate(content["ref"])
    registry.register(
        place, ref, run_id=tracking.run_of(place), tags=content["tags"], description=content["description"]
    )


def _consumed(place: Place, content: dict[str, Any]) -> None:
    refs = [ModelRef.model_validate(each) for each in content["refs"]]
    registry.log_consumed(place, tracking.run_of(place), refs)


def _alias(place: Place, content: dict[str, Any]) -> None:
    registry.set_alias(place, ModelRef.model_validate(content["ref"]), content["alias"])


def _version_tags(place: Place, content: dict[str, Any]) -> None:
    ref = ModelRef.model_validate(content["ref"])
    registry.tag_version(place, ref, content["tags"])
    version_pages.draw(place, ref, strip="", pictures={})


def _page(place: Place, content: dict[str, Any]) -> None:
    tracking.log_page(place, Path(place.root) / content["path"])


def _drawing(place: Place, content: dict[str, Any]) -> None:
    ref = ModelRef.model_validate(content["ref"])
    version_pages.draw(place, ref, strip=content["strip"], pictures=content["pictures"])


def _finish(place: Place, content: dict[str, Any]) -> None:
    tracking.finish_run(place, tracking.run_of(place), content["status"])


def _close(place: Place, content: dict[str, Any]) -> None:
    tracking.close_runs(place, content["status"])


def _retire(place: Place, content: dict[str, Any]) -> None:
    tracking.retire_run(place, content["why"])


DELIVERIES: dict[journal.Kind, Callable[[Place, dict[str, Any]], None]] = {
    "run": _run,
    "metrics": _metrics,
    "tags": _tags,
    "dataset": _dataset,
    "version": _version,
    "consumed": _consumed,
    "alias": _alias,
    "version_tags": _version_tags,
    "page": _page,
    "drawing": _drawing,
    "finish": _finish,
    "close": _close,
    "retire": _retire,
}
"""Kind of entry -> what records it; each finds what is there before it makes something, so that a repeat adds nothing."""
