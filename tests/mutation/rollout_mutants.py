"""Small mistakes in the engine of this process, each of which a test must notice."""

from tests.mutation.mutants import Mutant

ENGINE = ["test_transformers_engine.py", "test_engine_contract.py"]
TESTS = {
    "rollout/sampling": ["test_sampling.py"],
    "rollout/packed_linears": ["test_packed_linears.py"],
    "rollout/cache": ENGINE,
    "rollout/batch": ENGINE,
    "rollout/transformers_engine": ENGINE,
}

MUTANTS = [
    Mutant("rollout/sampling", "weights_BV.div_(temperature)", "weights_BV.mul_(temperature)"),
    Mutant("rollout/sampling", "uniforms_B1 * sums_BN[:, -1:] - before_B1", "uniforms_B1 * sums_BN[:, -1:]"),
    Mutant("rollout/sampling", ".log() - sums_BN[:, -1:].log()", ".log()"),
    Mutant("rollout/sampling", "block_B1 * size + place_B1", "place_B1"),
    Mutant("rollout/sampling", "(block_B1 - 1)", "block_B1"),
    Mutant("rollout/sampling", "below_B1, right=True", "below_B1, right=False"),
    Mutant(
        "rollout/sampling",
        "torch.minimum(target_B1, torch.nextafter(total_B1, torch.zeros_like(total_B1)))",
        "target_B1",
    ),
    Mutant("rollout/sampling", ".clamp(max=cumulative_BN.shape[1] - 1)", ""),
    Mutant("rollout/sampling", "manual_seed(seed)", "manual_seed(0)"),
    Mutant("rollout/sampling", "highest_B - logits_BV.logsumexp(dim=-1)", "highest_B"),
    Mutant("rollout/packed_linears", "return plain(input)\n    return _packed", "pass\n    return _packed"),
    Mutant("rollout/packed_linears", 'layer.__dict__.pop("forward", None)', "pass"),
    Mutant("rollout/packed_linears", '"forward" not in module.__dict__  # somebody else\'s\n        and ', ""),
    Mutant(
        "rollout/packed_linears",
        "partial(_forward, layer.forward, packed, layer.bias)",
        "partial(_forward, layer.forward, packed, None)",
    ),
    Mutant("rollout/packed_linears", "not difference <= TOLERANCE", "difference > TOLERANCE"),
    Mutant("rollout/packed_linears", "        and module.weight.numel() >= SMALLEST_WEIGHT\n", ""),
    Mutant("rollout/packed_linears", "@cache\n", ""),
    Mutant(
        "rollout/cache",
        "window.newest : window.end] = key_states",
        "window.oldest : window.oldest + key_states.shape[2]] = key_states",
    ),
    Mutant("rollout/cache", "return self._window.newest - self._window.oldest", "return self._window.newest"),
    Mutant("rollout/cache", "states[:, :, source_end - length : source_end]", "states[:, :, end - length : end]"),
    Mutant(
        "rollout/batch", "self._cache.copy([first + position], self._end, [self._num_rows], length, length)", "pass"
    ),
    Mutant(
        "rollout/batch",
        "self._cache.copy(origins, self._end, [first + index for index in copied], self._end, max(map(len, prompts)))",
        "pass",
    ),
    Mutant("rollout/batch", "targets, self._end, group.length)", "targets, group.length, group.length)"),
    Mutant("rollout/batch", "self._cache.copy(movers, self._end, holes, self._end, length)", "pass"),
    Mutant(
        "rollout/batch",
        "length = max(self.rows[index].length for index in movers) - 1",
        "length = min(self.rows[index].length for index in movers) - 1",
    ),
    Mutant("rollout/batch", "            self._move(max(lengths) - 1)\n", "            self._end = max(lengths) - 1\n"),
    Mutant("rollout/batch", "        elif self._end < length:\n            self._move(length)\n", ""),
    Mutant("rollout/batch", "numbers_T >= beginnings_B1", "numbers_T >= 0 * beginnings_B1"),
    Mutant("rollout/batch", "- beginnings_B1).clamp(min=0)", "- 0 * beginnings_B1).clamp(min=0)"),
    Mutant("rollout/transformers_engine", "if not logprob > -math.inf:", "if False:"),
    Mutant("rollout/transformers_engine", "token in self._eos_ids or", "token == max(self._eos_ids, default=-1) or"),
    Mutant("rollout/transformers_engine", "len(row.ids) >= row.max_new_tokens", "len(row.ids) > row.max_new_tokens"),
    Mutant("rollout/transformers_engine", "self._context - length)", "self._context)"),
    Mutant("rollout/transformers_engine", "length >= self._context:", "length > self._context:"),
    Mutant("rollout/transformers_engine", "budget // num_columns - 1)", "budget // num_columns)"),
    Mutant(
        "rollout/transformers_engine",
        "(len(entering) + 1) * longest <= MAX_PREFILL_TOKENS",
        "len(entering) * longest <= MAX_PREFILL_TOKENS",
    ),
    Mutant(
        "rollout/transformers_engine",
        "if batch.has_waiting and batch.room:",
        "if batch.has_waiting and not batch.rows:",
    ),
    Mutant("rollout/transformers_engine", "with packed_linears(self._model, num_rows):", "if True:"),
]

EQUIVALENT: dict[Mutant, str] = {}
