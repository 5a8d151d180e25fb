"""Small mistakes in sharing an update among ranks, each of which a test must notice."""

from tests.mutation.mutants import Mutant

TESTS = {
    "shares": ["test_shares.py"],
    "collective": ["test_collective.py"],
    "tally": ["test_collective.py"],
    "trainer": ["test_trainer.py", "test_sharded.py"],
    "sharded": ["test_sharded.py"],
    "runtime/shards": ["../grpo/test_sharded.py"],
    "runtime/launcher": ["test_launching.py"],
}

MUTANTS = [
    Mutant("shares", "(-num_packed_tokens(each), each[0].row)", "each[0].row"),
    Mutant("shares", "(tokens[each], each)", "each"),
    Mutant("shares", "tokens[least] += num_packed_tokens(unit)", "tokens[least] += 1"),
    Mutant("collective", "while any(self", "while all(self"),
    Mutant("collective", ".logprobs_BC.sum() * 0.0", ".logprobs_BC.sum()"),
    Mutant("tally", "sum(sums.get(name, 0.0) for sums, _ in every)", "own.get(name, 0.0)"),
    Mutant("tally", "max(ratio for _, ratio in every)", "largest"),
    # the mean of the ranks' gradients; FSDP's own division, which gloo is not asked for
    Mutant("sharded", "set_gradient_divide_factor(1.0)", "set_gradient_divide_factor(2.0)"),
    Mutant("sharded", "sum(self.gathered(float(tensor)))", "max(self.gathered(float(tensor)))"),
    Mutant("sharded", "share_of(UNITS[layout](sequences, max_tokens), self.rank, self._size)", "sequences"),
    # the denominator of a rank's own part of the minibatch
    Mutant(
        "trainer",
        "lengths = [frozen.num_tokens(index) for index in minibatch]",
        "lengths = [frozen.num_tokens(index) for index in minibatch[self.collective.rank :: len(self.collective.gathered(0))]]",
    ),
    # the norm of a rank's own pieces, and states of them
    Mutant("runtime/shards", "return tensor.full_tensor()", "return tensor.to_local()"),
    Mutant("runtime/launcher", "statuses[rank] >= 0, rank", "statuses[rank] < 0, rank"),
]
