"""A real language model behind vLLM: parity before and after new weights."""

import pytest
import torch

from tasks.policy.config import SmolLM2Policy
from tasks.policy.loading import save_model
from tasks.policy.sources import materialise
from tasks.rollout.config import SamplingConfig
from tasks.rollout.engine import check_result
from tasks.rollout.vllm_engine import VllmEngine, VllmServers
from tests.vllm.conftest import CONFIG, request, silent, weights_of

pytestmark = [pytest.mark.vllm, pytest.mark.smollm2]


def test_smollm2_is_sampled_from_its_own_weights_before_and_after_an_update(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    materialise(SmolLM2Policy(kind="smollm2"), first, seed=0, on_progress=silent)
    weights = weights_of(first, tmp_path / "logs")
    texts = ("The capital of France is", "Two and two make", "Once upon a time there was a small")
    requests = [request(text, tuple(weights.tokenizer(text)["input_ids"]), samples=2) for text in texts]
    sampling = SamplingConfig(max_new_tokens=16)
    servers = VllmServers(CONFIG, tmp_path / "logs")
    try:
        before = VllmEngine(weights, CONFIG, servers).generate(requests, sampling, silent)
        check_result(requests, before)
        with torch.no_grad():
            for parameter in weights.model.parameters():
                parameter.mul_(1 + 0.02 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
        save_model(weights.model, weights.tokenizer, second)
        after = VllmEngine(weights_of(second, tmp_path / "logs"), CONFIG, servers).generate(requests, sampling, silent)
    finally:
        servers.close()
    for result in (before, after):
        print("SmolLM2, nats:", dict(result.metrics))
        assert result.metrics["parity_max_difference"] < 1e-3
    assert after.metrics["num_engine_starts"] == after.metrics["num_rejected_reloads"] == 0
    assert before.completions != after.completions
