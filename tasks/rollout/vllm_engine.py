"""The engine in other processes: vLLM servers, asked over HTTP."""

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from tasks.rollout.config import SamplingConfig, VllmEngineConfig
from tasks.rollout.engine import (
    EngineError,
    GenerationResult,
    Greedy,
    GroupRequest,
    OnProgress,
    PolicyWeights,
    Skipped,
)
from tasks.rollout.prompting import eos_token_ids
from tasks.rollout.vllm_answers import Sample
from tasks.rollout.vllm_counts import Counts
from tasks.rollout.vllm_dispatch import Lane, answer_all
from tasks.rollout.vllm_parity import probes_of
from tasks.rollout.vllm_replica import ReplicaFailed
from tasks.rollout.vllm_server import LOG_NAME
from tasks.rollout.vllm_station import Station
from tasks.runtime import residents

NO_LIMIT = 1 << 62


class VllmServers:
    """The servers of one engine's settings: kept between stages, told about new weights, closed at the end of the run."""

    def __init__(self, config: VllmEngineConfig, log_folder: Path) -> None:
        self.counts = Counts()
        self._config = config
        self._probes: list[GroupRequest] = []
        urls = config.server.urls
        self._stations = (
            [Station(config, self.counts, url=url) for url in urls]
            if urls
            else [Station(config, self.counts, log_file=log_folder / LOG_NAME)]
        )

    def serve(self, weights: PolicyWeights, samples: Sequence[Sample]) -> list[Station]:
        """The servers that hold ``weights`` now.

        The probes are made of the first prompts that were ever asked for: what was cached for them under earlier weights
        and is still served shows as a difference.

        Raises:
            EngineError: none is left, or one does not agree with the weights.
        """
        if not self._probes:
            self._probes = probes_of([sample.request for sample in samples], self._config.server.num_probes)

        def failure_of(station: Station) -> str:
            try:
                station.serve(weights, self._probes)
            except ReplicaFailed as failure:
                return str(failure)
            return ""

        with ThreadPoolExecutor(len(self._stations)) as pool:  # large checkpoints take minutes each
            failures = list(pool.map(failure_of, self._stations))
        ready = [station for station, failure in zip(self._stations, failures, strict=True) if not failure]
        if not ready:
            raise EngineError(f"no vLLM server answers: {'; '.join(filter(None, failures))}")
        return ready

    def rest(self, stations: Sequence[Station]) -> None:
        """Between two stages: asleep, when the settings say so."""
        if self._config.server.sleeps:
            for station in stations:
                try:
                    station.sleep()
                except ReplicaFailed:
                    continue  # lost during the stage, and said so then

    def close(self) -> None:
        """End what is owned; the next ``serve`` starts again."""
        for station in self._stations:
            station.close()


class VllmEngine:
    """Samples over ``servers`` from ``weights``: ids in, ids and log-probabilities out, each sample with its own seed.

    The log-probabilities are those of the distribution sampled from (after the temperature), NaN where vLLM has none.
    A server that fails loses nothing: its samples go to the others, or it is started again.

    Source: vLLM, arXiv:2309.06180; the completions endpoint of its OpenAI-compatible server, version 0.32.
    """

    def __init__(self, weights: PolicyWeights, config: VllmEngineConfig, servers: VllmServers) -> None:
        self._weights = weights
        self._config = config
        self._servers = servers
        self._eos_ids = eos_token_ids(weights.model.generation_config, weights.tokenizer)

    def generate(
        self, requests: Sequence[GroupRequest], sampling: SamplingConfig | Greedy, on_progress: OnProgress
    ) -> GenerationResult:
        """One completion per seed of every request; prompts that leave no room in the context are skipped unasked.

        Raises:
            EngineError: no server is left, one does not hold the weights, or an answer does not fit; all are closed.
        """
        samples, skipped = samples_of(requests, sampling, self._context())
        if not samples:
            return GenerationResult([], skipped)
        try:
            stations = self._servers.serve(self._weights, samples)
            context = min(station.context for station in stations)
            samples, skipped = samples_of(requests, sampling, min(context, self._context()))
            lanes = [
                Lane(
                    ask=partial(station.ask, sampling=sampling, eos_ids=self._eos_ids),
                    epoch=partial(getattr, station, "epoch"),
                    revive=station.revive,
                    num_workers=self._config.server.max_concurrent_requests,
                )
                for station in stations
            ]
            completions, num_retries = answer_all(samples, lanes, on_progress)
            self._servers.rest(stations)
        except BaseException:
            self._servers.close()
            raise
        counts = self._servers.counts
        counts.add("num_retried_requests", num_retries)
        counts.add(
            "num_unknown_logprobs", sum(map(math.isnan, (v for c in completions for v in c.sampler_logprobs or ())))
        )
        order = {request.group_id: position for position, request in enumerate(requests)}
        completions.sort(key=lambda completion: (order[completion.group_id], completion.sample_index))
        return GenerationResult(completions, skipped, counts.taken())

    def _context(self) -> int:
        own = getattr(self._weights.model.config, "max_position_embeddings", None) or NO_LIMIT
        return min(own, self._config.max_model_len or NO_LIMIT)


def samples_of(
    requests: Sequence[GroupRequest], sampling: SamplingConfig | Greedy, context: int
) -> tuple[list[Sample], list[Skipped]]:
    """What to ask for: every sample with the tokens it may have, and the prompts that leave no room for one."""
    samples, skipped = [], []
    for request in requests:
        room = context - len(request.prompt_token_ids)
        if room < 1:
            skipped.append(Skipped(request.group_id, request.prompt_id, "prompt_too_long"))
            continue
        limit = min(request.limit(sampling.max_new_tokens), room)
        samples += [Sample(request, index, limit) for index in range(len(request.seeds))]
    return samples, skipped


def resident_vllm(weights: PolicyWeights, config: VllmEngineConfig) -> VllmEngine:
    """An engine over the servers of these settings, which stay between stages and iterations.

    Source: vLLM, arXiv:2309.06180, see ``VllmEngine``.

    Raises:
        ValueError: no folder for the server's log was given.
    """
    if weights.log_folder is None:
        raise ValueError("the vLLM engine needs a folder for its server's log (PolicyWeights.log_folder)")
    log_folder = weights.log_folder
    settings = f"{log_folder}\n{config.model_dump_json()}"
    return VllmEngine(weights, config, residents.get("engine", settings, lambda: VllmServers(config, log_folder)))
