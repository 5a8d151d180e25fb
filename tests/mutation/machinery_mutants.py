"""Small mistakes in how the update runs (attention, output layer, forward passes, moments, adapters), each of which a test must notice."""

from tests.mutation.mutants import Mutant

TESTS = {
    "tree_attention": ["test_tree_attention.py"],
    "output_layer": ["test_output_layer.py"],
    "adapter": ["test_adapter.py"],
    "runtime/adamw": ["test_adamw.py"],
    "runtime/blockwise": ["test_adamw.py"],
}

MUTANTS = [
    Mutant("tree_attention", ".tril_(self.num_prompt)", ".tril_(0)"),
    Mutant("tree_attention", ".tril_(self.num_prompt)", ".tril_(self.num_prompt + 1)"),
    Mutant("tree_attention", "self.num_keys :] = False", "self.num_keys :] = True"),
    Mutant("tree_attention", "torch.arange(start, start + branch.num_prompt)", "torch.arange(branch.num_prompt)"),
    Mutant(
        "tree_attention", "torch.arange(start + branch.begin, start", "torch.arange(start + branch.begin - 1, start"
    ),
    Mutant("tree_attention", "place = num_answers + index * num_queries", "place = index * num_queries"),
    Mutant("tree_attention", ">= least for", "> least for"),
    Mutant("tree_attention", "        begin += length", "        begin += max(1, length)"),
    Mutant(
        "tree_attention",
        "found = [Branch(0, num_prompt, 0)]",
        "found = [Branch(0, num_prompt, num_prompt)]",
    ),
    Mutant("output_layer", "dz_NV.scatter_add_(1, targets_N[part, None], upstream[:, None])", "pass"),
    Mutant("output_layer", "(chunk + entropy_N[part, None])", "(chunk - entropy_N[part, None])"),
    Mutant(
        "output_layer", "upstream = (g_N[part] / temperatures).to(chunk.dtype)", "upstream = g_N[part].to(chunk.dtype)"
    ),
    Mutant("output_layer", "kept = kept if len(found) == 1 else None", "kept = kept"),
    Mutant("output_layer", "return 1 - torch.tanh(", "return 1 + torch.tanh("),
    Mutant("output_layer", "entropies.append(-torch.bmm", "entropies.append(torch.bmm"),
    Mutant("adapter", 'state[f"{name}.weight"] + delta', 'state[f"{name}.weight"] - delta'),
    Mutant("adapter", "layer._disable_adapters = True", "layer._disable_adapters = False"),
    Mutant("adapter", 'if saved["base_digest"] != self.base_digest:', "if False:"),
    Mutant(
        "adapter",
        "sorted(value) if isinstance(value, set) else value",
        "list(value) if isinstance(value, set) else value",
    ),
    Mutant("adapter", "lora_alpha=config.alpha", "lora_alpha=config.rank"),
    Mutant("runtime/adamw", "second = root.square_()", "second = root"),
    Mutant("runtime/adamw", '    state["step"] = step', "    pass"),
    Mutant("runtime/adamw", "slice(begin // BLOCK, -(-end // BLOCK))", "slice(0, -(-end // BLOCK) - begin // BLOCK)"),
    Mutant("runtime/adamw", "if parameter.numel() < MIN_QUANTISED:", "if False:"),
    Mutant(
        "runtime/blockwise",
        "(blocks_MB.view(-1) > 0).to(torch.uint8)",
        "(blocks_MB.view(-1) < 0).to(torch.uint8)",
    ),
    Mutant("runtime/blockwise", "(shares_N > next_from_N)", "(shares_N >= next_from_N)"),
    Mutant("runtime/blockwise", "is_split = highest > lowest", "is_split = highest < lowest"),
    Mutant("runtime/blockwise", "scales_M = blocks_MB.abs().amax(dim=1)", "scales_M = blocks_MB.amax(dim=1)"),
    Mutant("runtime/blockwise", "(piece + 0.5) / pieces", "piece / pieces"),
]

EQUIVALENT: dict[Mutant, str] = {}
