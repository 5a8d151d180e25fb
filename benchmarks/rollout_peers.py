"""What the rollout benchmark samples, and who samples it."""

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import httpx
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from tasks.policy.characters import build_tokenizer
from tasks.policy.config import ScratchPolicy, SmolLM2Policy
from tasks.policy.scratch import initialise
from tasks.policy.sources import smollm2 as load_smollm2
from tasks.rollout.config import SamplingConfig, TransformersEngineConfig
from tasks.rollout.engine import Engine, GroupRequest
from tasks.rollout.prompting import completion_length, encode_prompt, eos_token_ids
from tasks.rollout.transformers_engine import TransformersEngine
from tasks.values.seeds import derive_seed

GROUP_SIZE = 8
QUESTIONS = (
    "What is 17 + 25? Answer with the number only.",
    "Name three colours.",
    "Tom has 12 marbles and gives 5 to Ana. How many does he keep?",
    "Write one sentence about the sea.",
    "What is 9 times 6? Answer with the number only.",
    "Why is the sky blue? Explain it to a child in a few words.",
    "Is 91 a prime number? Answer yes or no.",
    "A train leaves at 9:40 and arrives at 11:05. How long does the journey take? Show your steps.",
    "What is the capital of France?",
    "Which is larger, 0.7 or 0.65? Answer with the number only.",
    "Translate 'good morning' into Spanish.",
    "Ben buys 3 pens at 4 dollars each and a book at 9 dollars. What does he pay? Show your steps.",
)

# prompt ids, completion ids, log-probabilities (None: the peer does not give them)
Sampled = Sequence[tuple[tuple[int, ...], tuple[int, ...], tuple[float, ...] | None]]


@dataclass(frozen=True)
class Workload:
    """Groups to sample, from which model, at most how many rows at a time."""

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    prompts: tuple[tuple[int, ...], ...]
    rows: int
    max_new_tokens: int
    seed: int = 0

    def first(self, num_prompts: int, *, max_new_tokens: int) -> "Workload":
        return replace(self, prompts=self.prompts[:num_prompts], max_new_tokens=max_new_tokens)

    def with_seed(self, seed: int) -> "Workload":
        return replace(self, seed=seed)

    @property
    def eos_ids(self) -> frozenset[int]:
        return eos_token_ids(self.model.generation_config, self.tokenizer)

    def requests(self) -> list[GroupRequest]:
        return [
            GroupRequest(
                str(position),
                str(position),
                prompt,
                "",
                tuple(derive_seed(self.seed, position, index) for index in range(GROUP_SIZE)),
            )
            for position, prompt in enumerate(self.prompts)
        ]


def smollm2(num_prompts: int, max_new_tokens: int) -> Workload:
    """SmolLM2-135M-Instruct on chat questions with short and long answers, 64 rows."""
    model, tokenizer, _ = load_smollm2(SmolLM2Policy(kind="smollm2"), 0, lambda done, total: None)
    asked = [QUESTIONS[index % len(QUESTIONS)] for index in range(num_prompts)]
    prompts = tuple(tuple(encode_prompt(tokenizer, _chat(question), True)) for question in asked)
    return Workload("smollm2", model.eval(), tokenizer, prompts, rows=64, max_new_tokens=max_new_tokens)


def _chat(question: str) -> str:
    return json.dumps([{"role": "user", "content": question}])


def small_workload(num_prompts: int) -> Workload:
    """The quick start's architecture with random weights, so that lengths are geometric; 256 rows, at most 48 tokens."""
    tokenizer = build_tokenizer()
    model = initialise(ScratchPolicy(kind="scratch"), tokenizer, seed=0)
    prompts = tuple(
        tuple(encode_prompt(tokenizer, f"{index % 9 + 1}+{index % 7}+{index * 37 % 100}=", False))
        for index in range(num_prompts)
    )
    return Workload("scratch", model.eval(), tokenizer, prompts, rows=256, max_new_tokens=48)


def by_engine(workload: Workload) -> Sampled:
    """Our engine, made anew as every stage of the pipeline makes it."""
    config = TransformersEngineConfig(max_batch_rows=workload.rows)
    return sampled_by(TransformersEngine(workload.model, workload.tokenizer, config), workload)


def sampled_by(engine: Engine, workload: Workload) -> Sampled:
    """What any engine of the pipeline samples for the workload."""
    result = engine.generate(
        workload.requests(), SamplingConfig(max_new_tokens=workload.max_new_tokens), lambda done, total: None
    )
    return [
        (workload.prompts[int(each.group_id)], each.completion_token_ids, each.sampler_logprobs)
        for each in result.completions
    ]


@torch.inference_mode()
def by_generate(workload: Workload) -> Sampled:
    """transformers' generate: as many groups per call as fit into the rows, prompts of like length together."""
    torch.manual_seed(workload.seed)
    prompts = sorted(workload.prompts, key=len)
    size = max(workload.rows // GROUP_SIZE, 1)
    found: list[tuple[tuple[int, ...], tuple[int, ...], tuple[float, ...] | None]] = []
    for first in range(0, len(prompts), size):
        batch = prompts[first : first + size]
        longest = max(map(len, batch))
        input_ids = torch.tensor([[0] * (longest - len(prompt)) + list(prompt) for prompt in batch])
        mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in batch])
        output = workload.model.generate(
            input_ids=input_ids,
            attention_mask=mask,
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            num_return_sequences=GROUP_SIZE,
            max_new_tokens=workload.max_new_tokens,
            eos_token_id=sorted(workload.eos_ids),
            pad_token_id=0,
        )
        for position, row in enumerate(output[:, longest:].tolist()):
            ids = tuple(row[: completion_length(row, workload.eos_ids)])
            found.append((batch[position // GROUP_SIZE], ids, None))
    return found


@torch.inference_mode()
def generate_error(workload: Workload) -> float:
    """The largest difference (nats) of the log-probabilities that generate draws from and those of a plain forward, for
    one prompt and eight tokens: generate is held to the distribution that our engine is held to."""
    prompt = workload.prompts[0]
    output = workload.model.generate(
        input_ids=torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        num_return_sequences=GROUP_SIZE,
        max_new_tokens=8,
        eos_token_id=sorted(workload.eos_ids),
        pad_token_id=0,
        output_scores=True,
        return_dict_in_generate=True,
    )
    largest = 0.0
    for position, row in enumerate(output.sequences[:, len(prompt) :].tolist()):
        ids = row[: completion_length(row, workload.eos_ids)]
        logits = workload.model(input_ids=torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1]
        expected = torch.log_softmax(logits.double(), -1)
        for step, token in enumerate(ids):
            drawn_from = torch.log_softmax(output.scores[step][position].double(), -1)[token]
            largest = max(largest, abs(float(drawn_from - expected[step, token])))
    return largest


def by_vllm(url: str) -> Callable[[Workload], Sampled]:
    """A vLLM server of the same model (``--logprobs-mode processed_logprobs``), asked for one group per request, all requests
    at once, without seeds: a generator per row would slow it."""
    client = httpx.Client(base_url=url, timeout=600)
    name = client.get("/v1/models").raise_for_status().json()["data"][0]["id"]

    def sample(workload: Workload) -> Sampled:
        def ask(request: GroupRequest) -> Sampled:
            body = {
                "model": name,
                "prompt": list(request.prompt_token_ids),
                "n": GROUP_SIZE,
                "top_p": 1.0,
                "top_k": 0,
                "max_tokens": workload.max_new_tokens,
                "temperature": 1.0,
                "logprobs": 0,
                "return_token_ids": True,
                "stop_token_ids": sorted(workload.eos_ids),
            }
            choices = client.post("/v1/completions", json=body).raise_for_status().json()["choices"]
            return [
                (request.prompt_token_ids, tuple(each["token_ids"]), tuple(each["logprobs"]["token_logprobs"]))
                for each in choices
            ]

        requests = workload.requests()
        with ThreadPoolExecutor(len(requests)) as pool:
            return [each for group in pool.map(ask, requests) for each in group]

    return sample


@torch.inference_mode()
def largest_error(workload: Workload, sampled: Sampled, *, num_checked: int = 32) -> tuple[float | None, float, float]:
    """Of every n-th completion, against a plain forward: the largest difference of a log-probability (None where the
    peer gives none), and the mean log-probability per token with its standard error over completions (nats)."""
    error, means = None, []
    for prompt, ids, logprobs in list(sampled)[:: max(len(sampled) // num_checked, 1)]:
        logits = workload.model(input_ids=torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1]
        expected = torch.log_softmax(logits.double(), -1).gather(1, torch.tensor(ids)[:, None])[:, 0]
        means.append(expected.mean().item())
        if logprobs is not None:
            off = (expected - torch.tensor(logprobs, dtype=torch.float64)).abs().max().item()
            error = off if error is None else max(error, off)
    spread = torch.tensor(means)
    return error, spread.mean().item(), (spread.std() / len(means) ** 0.5).item()
