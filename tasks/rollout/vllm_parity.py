"""Whether a server samples from the trainer's own weights: its log-probabilities against a plain forward pass."""

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from transformers import PreTrainedModel

from tasks.rollout.engine import Completion, GroupRequest

MAX_PROBE_TOKENS = 16
PROBE_SEED = 20_240_205

_one_at_a_time = threading.Lock()


def probes_of(requests: Sequence[GroupRequest], num_probes: int) -> list[GroupRequest]:
    """Requests to compare with: the first prompts that differ, repeated under other seeds when there are few."""
    prompts = list(dict.fromkeys(request.prompt_token_ids for request in requests))
    return [
        GroupRequest(
            group_id=f"parity-{index}",
            prompt_id=f"parity-{index}",
            prompt_token_ids=prompts[index % len(prompts)],
            answer="",
            seeds=(PROBE_SEED + index,),
            max_new_tokens=MAX_PROBE_TOKENS,
        )
        for index in range(num_probes if prompts else 0)
    ]


@torch.inference_mode()
def forward_logprobs(model: PreTrainedModel, prompt: Sequence[int], completion: Sequence[int]) -> list[float]:
    """Nats of each completion token at temperature 1: one forward pass over prompt and completion, no cache.

    log softmax(logits)[token],  float32
    """
    ids_1T = torch.tensor([[*prompt, *completion]], device=model.device)
    logits_TV = model(input_ids=ids_1T, use_cache=False).logits[0, len(prompt) - 1 : -1].float()
    tokens_T1 = torch.tensor(completion, device=model.device)[:, None]
    found: list[float] = torch.log_softmax(logits_TV, dim=-1).gather(1, tokens_T1)[:, 0].tolist()
    return found


def differences(model: PreTrainedModel, probes: Sequence[GroupRequest], answers: Sequence[Completion]) -> list[float]:
    """|server's - trainer's| log-probability in nats of every token that the server knows one of.

    Answers are matched to probes by group id. The model's mode (training or not) is put back afterwards.
    """
    prompts = {probe.group_id: probe.prompt_token_ids for probe in probes}
    found: list[float] = []
    with _in_eval_mode(model):
        for answer in answers:
            ids = answer.completion_token_ids
            if not ids or answer.sampler_logprobs is None:
                continue
            own = forward_logprobs(model, prompts[answer.group_id], ids)
            pairs = zip(answer.sampler_logprobs, own, strict=True)
            found += [abs(theirs - ours) for theirs, ours in pairs if not math.isnan(theirs)]
    return found


@contextmanager
def _in_eval_mode(model: PreTrainedModel) -> Iterator[None]:
    with _one_at_a_time:  # two servers may be proven at once, by one model
        was_training = model.training
        model.eval()
        try:
            yield
        finally:
            model.train(was_training)
