"""How many rows a source may fail on before the stage fails."""

from collections.abc import Mapping, Sequence

from tasks.verifiers.verdict import Verdict

FAILED = ("error", "timeout")
MAX_EXAMPLES = 3
HOPELESS_ROWS = 64
"""A source that failed on each of its first rows, this many, is broken: the stage does not wait for the share."""


class FailureBudget:
    """Counts the failures of each source while the rows are scored, and stops as soon as the share can not be kept."""

    def __init__(self, sources: Sequence[str], num_rows: int, max_failed_share: float) -> None:
        self._sources = sources
        self._num_rows = num_rows
        self._max_failed_share = max_failed_share
        self._num_seen = [0] * len(sources)
        self._num_failed = [0] * len(sources)
        self._reasons: list[dict[str, None]] = [{} for _ in sources]

    def count(self, source: int, verdicts: Sequence[Verdict]) -> None:
        """Add what the source at this position said.

        Raises:
            ValueError: it failed on more rows than the share allows, or on all of the first ``HOPELESS_ROWS`` (unless
                the share is 1); names it, with examples of the reasons.
        """
        self._num_seen[source] += len(verdicts)
        failures = [each for each in verdicts if each.status in FAILED]
        if not failures:
            return
        self._num_failed[source] += len(failures)
        self._reasons[source] |= {each.reason: None for each in failures[:MAX_EXAMPLES]}
        self._reasons[source] = dict.fromkeys(list(self._reasons[source])[:MAX_EXAMPLES])
        num_failed, is_hopeless = self._num_failed[source], self._num_failed[source] == self._num_seen[source]
        if num_failed > self._max_failed_share * self._num_rows or (
            is_hopeless and num_failed >= HOPELESS_ROWS and self._max_failed_share < 1
        ):
            raise ValueError(
                _sentence(self._sources[source], num_failed, self._num_rows, self._max_failed_share)
                + f". Reasons: {'; '.join(self._reasons[source])}"
            )


def check_failures(metrics: Mapping[str, float], max_failed_share: float) -> None:
    """ValueError when a source failed on more than ``max_failed_share`` of the rows; names source and share."""
    for name in metrics:
        if name.startswith("num_") and name.endswith("_error"):
            source = name.removeprefix("num_").removesuffix("_error")
            num_failed = sum(metrics[f"num_{source}_{status}"] for status in FAILED)
            if num_failed > max_failed_share * metrics["num_rows"]:
                raise ValueError(_sentence(source, num_failed, metrics["num_rows"], max_failed_share))


def _sentence(source: str, num_failed: float, num_rows: float, max_failed_share: float) -> str:
    return (
        f"{source}: {num_failed:.0f} of {num_rows:.0f} rows failed, against scoring.max_failed_share "
        f"{max_failed_share:g}; mend what the reasons name, give it more time (scoring.row_deadline_seconds, or "
        "deadline_seconds of the verifier), or raise the share"
    )
