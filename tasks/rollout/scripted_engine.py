"""A deterministic stand-in engine: completions from a script, no model asked."""

from collections.abc import Sequence

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from tasks.rollout.config import SamplingConfig, ScriptedEngineConfig
from tasks.rollout.engine import Completion, GenerationResult, Greedy, GroupRequest, OnProgress


class ScriptedEngine:
    """Sample i of a group is script[seed_i mod length], with "{answer}" filled in, encoded and ended by eos.

    It knows no log-probabilities (None): the trainer takes those of the weights before the update.

    Source: ours.
    """

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, config: ScriptedEngineConfig
    ) -> None:
        del model  # part of every engine's signature
        self._tokenizer = tokenizer
        self._script = config.script

    def generate(
        self, requests: Sequence[GroupRequest], sampling: SamplingConfig | Greedy, on_progress: OnProgress
    ) -> GenerationResult:
        completions = [
            self._completion(request, index, seed, request.limit(sampling.max_new_tokens))
            for request in requests
            for index, seed in enumerate(request.seeds)
        ]
        on_progress(len(completions), len(completions))
        return GenerationResult(completions, [])

    def _completion(self, request: GroupRequest, index: int, seed: int, max_new_tokens: int) -> Completion:
        text = self._script[seed % len(self._script)].replace("{answer}", request.answer)
        ids = [*self._tokenizer(text, add_special_tokens=False)["input_ids"], self._tokenizer.eos_token_id]
        cut = tuple(ids[:max_new_tokens])
        return Completion(request.group_id, index, cut, None, "stop" if len(cut) == len(ids) else "length")
