"""One server, the weights that it holds, and how it gets others: reloaded, restarted, proven."""

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from tasks.rollout.config import SamplingConfig, VllmEngineConfig
from tasks.rollout.engine import Completion, EngineError, Greedy, GroupRequest, PolicyWeights
from tasks.rollout.vllm_answers import Sample, body_of, completion_of
from tasks.rollout.vllm_counts import Counts
from tasks.rollout.vllm_parity import MAX_PROBE_TOKENS, differences
from tasks.rollout.vllm_replica import RELOAD, RELOAD_AND_REPACK, NotConnected, Replica, ReplicaFailed
from tasks.rollout.vllm_server import OwnedServer

log = logging.getLogger(__name__)

Ask = Callable[[Sample], Completion]


class Station:
    """A server that is owned, or that runs already at ``url``. Its methods may be called from several threads.

    The weights are named by the digest of their checkpoint. They count as held only once they are proven: completions
    of the server are scored by the trainer's own weights, and must agree within ``server.parity_tolerance``.
    """

    def __init__(
        self, config: VllmEngineConfig, counts: Counts, *, log_file: Path | None = None, url: str = ""
    ) -> None:
        self._config = config
        self._counts = counts
        self._owned = None if log_file is None else OwnedServer(config, log_file)
        self._url = url
        self._lock = threading.RLock()
        self._replica: Replica | None = None
        self._weights: PolicyWeights | None = None
        self._probes: Sequence[GroupRequest] = ()
        self._held = ""
        self._trusts_reload = config.server.weight_update == "reload"
        self._num_deaths = 0
        self.epoch = 0
        self.model_name, self.context = "", 0

    def serve(self, weights: PolicyWeights, probes: Sequence[GroupRequest]) -> None:
        """Hold ``weights``: start, connect, reload or restart as needed, and prove it.

        Raises:
            EngineError: the server can not be brought to agree with the trainer's weights, or does not start.
            ReplicaFailed: a server that is not owned does not answer.
        """
        with self._lock:
            self._weights, self._probes = weights, probes
            if self._owned is not None and self._replica is not None and not self._owned.is_running():
                self._died("it ended between two stages")
                return
            try:
                if self._owned is None:
                    self._connect()
                if self._config.server.sleeps and self._replica is not None:
                    self._replica.wake_up()
                if self._held != weights.digest:
                    self._take_weights()
            except ReplicaFailed as failure:
                self._failed(failure)

    def ask(self, sample: Sample, sampling: SamplingConfig | Greedy, eos_ids: frozenset[int]) -> Completion:
        """One completion. ReplicaFailed: no answer; EngineError: one that does not fit."""
        with self._lock:  # not while it is started anew: an attempt would be lost
            replica = self.replica
        return completion_of(sample, replica.complete(body_of(sample, sampling, eos_ids, self.model_name)))

    def revive(self, epoch: int, failure: ReplicaFailed) -> bool:
        """After a failure in ``epoch``: whether the server can be asked again; an owned one that died is started again.

        Raises:
            EngineError: it died more often than ``server.max_restarts`` allows.
        """
        with self._lock:
            if self.epoch != epoch or self._replica is None:  # another thread saw to it
                return self._replica is not None
            if self._replica.is_healthy() and (self._owned is not None or self._still_holds(self._replica)):
                return True
            if self._owned is None:
                self._lose(failure)
                return False
            self._died(str(failure))
            return True

    def sleep(self) -> None:
        """Give the memory back until the next ``serve``."""
        with self._lock:
            self.replica.sleep()

    def close(self) -> None:
        """Drop the connections and end an owned server; ``serve`` begins anew."""
        replica, self._replica = self._replica, None  # without the lock: whoever holds it may be waiting for an answer
        if replica is not None:
            replica.close()
        if self._owned is not None:
            self._owned.stop()
        self._held = ""

    @property
    def replica(self) -> Replica:
        """The client. NotConnected: there is none (any more)."""
        replica = self._replica
        if replica is None:
            raise NotConnected(f"the connection to vLLM {self._url} is closed")
        return replica

    @property
    def _wanted(self) -> tuple[PolicyWeights, Path]:
        assert self._weights is not None
        if self._weights.folder is None:
            raise EngineError("vLLM reads weights from a checkpoint folder, and was given none")
        return self._weights, self._weights.folder

    def _start(self) -> None:
        weights, folder = self._wanted
        assert self._owned is not None
        self._held = ""
        if self._replica is not None:
            self._replica.close()
        self._replica = self._owned.start(folder)
        self._counts.add("num_engine_starts")
        self.epoch += 1
        self.model_name, self.context = self._replica.model()
        self._replica.set_version(weights.digest)

    def _connect(self) -> None:
        if self._replica is None:
            server = self._config.server
            self._replica = Replica(
                self._url,
                timeout_seconds=server.request_timeout_seconds,
                max_connections=server.max_concurrent_requests,
            )
        self.model_name, self.context = self._replica.model()
        if self._replica.weight_version() != self._held:  # somebody restarted it
            self._held = ""

    def _take_weights(self) -> None:
        """Start or restart with the weights wanted, or read them in place."""
        if self._owned is not None and (self._replica is None or not self._trusts_reload):
            self._start()
            self._prove()
            return
        try:
            self._reload()
        except EngineError as error:
            if self._owned is None:
                raise
            # Once wrong, always wrong: from now on this server is restarted for new weights.
            log.warning("vLLM does not take new weights in place (%s); it is started again", error)
            self._trusts_reload = False
            self._counts.add("num_rejected_reloads")
            self._counts.add("num_engine_restarts")
            self._start()
            self._prove()

    def _reload(self) -> None:
        weights, folder = self._wanted
        self._held = ""
        self.replica.load_weights(folder, weights.digest, RELOAD if self._owned is None else RELOAD_AND_REPACK)
        self._prove()

    def _still_holds(self, replica: Replica) -> bool:
        """Whether a server that is healthy again was not started anew meanwhile, by somebody else, with other weights."""
        try:
            return replica.weight_version() == self._held
        except ReplicaFailed:
            return False

    def _died(self, how: str) -> None:
        """Start again and prove it, until that works or ``max_restarts`` is reached."""
        while True:
            if self._num_deaths >= self._config.server.max_restarts:
                raise EngineError(
                    f"the vLLM server died {self._num_deaths + 1} times (rollout.engine.server.max_restarts "
                    f"{self._config.server.max_restarts}); the last time: {how}"
                )
            self._num_deaths += 1
            log.warning("the vLLM server died (%s); it is started again", how)
            self._counts.add("num_engine_restarts")
            try:
                self._start()
                self._prove()
            except ReplicaFailed as again:
                how = str(again)
            else:
                return

    def _failed(self, failure: ReplicaFailed) -> None:
        """A failure between two stages, while weights were changed among others."""
        if self._owned is None:
            self._lose(failure)
            raise failure
        self._died(str(failure))

    def _lose(self, failure: ReplicaFailed) -> None:
        log.warning("the vLLM server %s is left out of this stage: %s", self._url, failure)
        self._counts.add("num_lost_servers")
        self.epoch += 1
        self._held = ""
        if self._replica is not None:
            self._replica.close()
            self._replica = None

    def _prove(self) -> None:
        """Compare the server with the trainer's weights; EngineError beyond the tolerance."""
        weights, folder = self._wanted
        sampling = SamplingConfig(temperature=1.0, max_new_tokens=MAX_PROBE_TOKENS)
        rooms = [(probe, self.context - len(probe.prompt_token_ids)) for probe in self._probes]
        samples = [Sample(probe, 0, min(probe.limit(MAX_PROBE_TOKENS), room)) for probe, room in rooms if room > 0]
        answers = [self.ask(sample, sampling, frozenset()) for sample in samples]
        found = differences(weights.model, self._probes, answers)
        if not found:
            raise EngineError(f"vLLM gave no log-probability in {len(answers)} completions to compare with")
        self._counts.measured(found)
        if not max(found) <= (tolerance := self._config.server.parity_tolerance):
            raise EngineError(
                f"vLLM and the trainer differ by up to {max(found):.3g} nats (mean {sum(found) / len(found):.3g}) on "
                f"{len(found)} tokens, more than parity_tolerance {tolerance:g}: the server does not sample from the weights "
                f"of {folder}"
            )
        self._held = weights.digest
