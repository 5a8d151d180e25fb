"""What happened to the servers since the last stage: counted in several threads, reported with the completions."""

import threading
from collections import Counter
from collections.abc import Sequence

NAMES = (
    "num_engine_starts",
    "num_engine_restarts",
    "num_rejected_reloads",
    "num_lost_servers",
    "num_retried_requests",
    "num_unknown_logprobs",
)


class Counts:
    """Counters, and the differences of the parity probes in nats."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counter: Counter[str] = Counter()
        self._differences: list[float] = []

    def add(self, name: str, number: int = 1) -> None:
        """Count ``number`` more of one of ``NAMES``."""
        assert name in NAMES
        with self._lock:
            self._counter[name] += number

    def measured(self, differences: Sequence[float]) -> None:
        """Keep the differences of the newest probe; those of a probe that was rejected are replaced by its successor's."""
        with self._lock:
            self._differences = list(differences)

    def taken(self) -> dict[str, float]:
        """The metrics of a stage, and begin anew; the parity stands in it when it was measured."""
        with self._lock:
            metrics = {name: float(self._counter[name]) for name in NAMES}
            if self._differences:
                metrics["parity_max_difference"] = max(self._differences)
                metrics["parity_mean_difference"] = sum(self._differences) / len(self._differences)
                metrics["num_parity_tokens"] = float(len(self._differences))
            self._counter.clear()
            self._differences = []
            return metrics
