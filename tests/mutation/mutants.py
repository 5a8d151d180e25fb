"""Small mistakes in the formulas of the policy update, each of which a test must notice.

A mutant is (file under tasks/grpo, what stands there once, what is put in its place). Those that no test can notice stand
in ``EQUIVALENT`` with the reason.
"""

from typing import NamedTuple


class Mutant(NamedTuple):
    file: str
    old: str
    new: str


TESTS = {
    "advantages": ["test_advantages.py", "test_estimators.py"],
    "estimators": ["test_estimators.py"],
    "losses": ["test_losses.py", "test_algorithms.py"],
    "kl": ["test_kl.py"],
    "batch": ["test_logprobs.py", "test_trainer.py"],
    "aggregation": ["test_algorithms.py", "test_losses.py"],
    "algorithms": ["test_algorithms.py"],
    "logprobs": ["test_logprobs.py", "test_trainer.py"],
    "shaping": ["test_shaping.py", "test_samples.py"],
    "correction": ["test_correction.py", "test_trainer.py"],
    "frozen": ["test_forward_passes.py", "test_trainer.py"],
    "samples": ["test_samples.py"],
    "critic": ["test_critic.py"],
    "trainer": ["test_trainer.py"],
    "packing": ["test_packing.py"],
    "layouts": ["test_packing.py"],
}
"""The tests that are asked, of tests/unit/tasks/grpo; the first that fails ends the question."""

MUTANTS = [
    Mutant("advantages", "return [value - mean for value in values]", "return [mean - value for value in values]"),
    Mutant("advantages", "mean = math.fsum(values) / len(values)", "mean = max(values) / 2"),
    Mutant("advantages", "/ (len(values) - ddof))", "/ len(values))"),
    Mutant("advantages", "/ (len(values) - ddof))", "/ (len(values) - 1))"),
    Mutant("advantages", "value / (std + std_eps)", "value / std"),
    Mutant(
        "advantages",
        "math.sqrt(math.fsum(value * value for value in centred)",
        "(math.fsum(value * value for value in centred)",
    ),
    Mutant("advantages", "max(1.0, *(abs(value)", "max(0.0, *(abs(value)"),
    Mutant("advantages", "*(abs(value) for value in values)", "*(value for value in values)"),
    Mutant("advantages", "share = len(values) / (len(values) - 1)", "share = 1.0"),
    Mutant("advantages", "found = value + discount * found", "found = value + found"),
    Mutant("advantages", "return sums[::-1]", "return sums"),
    Mutant("advantages", "if not last < end < num_tokens:", "if not last <= end < num_tokens:"),
    Mutant("advantages", "if not last < end < num_tokens:", "if not last < end <= num_tokens:"),
    Mutant("advantages", "at_token[end] = reward", "at_token[end - 1] = reward"),
    Mutant("advantages", "following = [*values[1:], 0.0]", "following = [*values[1:], values[-1]]"),
    Mutant("advantages", "reward + gamma * after - value", "reward + after - value"),
    Mutant("advantages", "reward + gamma * after - value", "reward + gamma * value - after"),
    Mutant("advantages", "gamma * gae_lambda)", "gae_lambda)"),
    Mutant("advantages", "members[group].append(index)", "members[group[:0]].append(index)"),
    Mutant("estimators", "return self.reward - math.fsum", "return self.reward + math.fsum"),
    Mutant("estimators", "rewards[-1] += reward", "rewards[0] += reward"),
    Mutant("estimators", "[-penalty for penalty in self.penalties]", "[penalty for penalty in self.penalties]"),
    Mutant("estimators", "totals[index] += episodes[index].weights[name] * advantage", "totals[index] += advantage"),
    Mutant("estimators", 'if config.baseline == "group_mean":', 'if config.baseline == "none":'),
    Mutant(
        "estimators",
        "[episode.group_id for episode in episodes for _ in episode.step_rewards]",
        '["" for episode in episodes for _ in episode.step_rewards]',
    ),
    Mutant(
        "estimators",
        "advantage + value for advantage, value in zip(row",
        "advantage - value for advantage, value in zip(row",
    ),
    Mutant(
        "estimators", "Advantage(1.0 if episode.is_correct else 0.0", "Advantage(1.0 if episode.is_correct else -1.0"
    ),
    Mutant("estimators", "_over_tokens(raw, STD_EPS, 1)", "_over_tokens(raw, STD_EPS, 0)"),
    Mutant(
        "losses",
        "objective_BT = torch.minimum(plain_BT, clipped_BT)",
        "objective_BT = torch.maximum(plain_BT, clipped_BT)",
    ),
    Mutant(
        "losses", "1.0 - clip_low, 1.0 + clip_high) * advantages_BT", "1.0 - clip_high, 1.0 + clip_low) * advantages_BT"
    ),
    Mutant("losses", "is_clipped_BT = clipped_BT < plain_BT", "is_clipped_BT = clipped_BT != plain_BT"),
    Mutant(
        "losses",
        "loss = -(weights_BT * objective_BT).sum() / denominator",
        "loss = (weights_BT * objective_BT).sum() / denominator",
    ),
    Mutant(
        "losses",
        "loss = -(weights_BT * objective_BT).sum() / denominator",
        "loss = -(weights_BT * objective_BT).sum() / weights_BT.sum()",
    ),
    Mutant(
        "losses", "loss = -(weights_BT * objective_BT).sum() / denominator", "loss = -objective_BT.sum() / denominator"
    ),
    Mutant(
        "losses",
        "is_floored_BT = (advantages_BT < 0) & (objective_BT < floor_BT)",
        "is_floored_BT = objective_BT < floor_BT",
    ),
    Mutant(
        "losses",
        "is_floored_BT = (advantages_BT < 0) & (objective_BT < floor_BT)",
        "is_floored_BT = (advantages_BT > 0) & (objective_BT < floor_BT)",
    ),
    Mutant(
        "losses",
        "return torch.exp(torch.clamp(log_ratio_BT, -RATIO_EXPONENT_BOUND, RATIO_EXPONENT_BOUND))",
        "return torch.exp(log_ratio_BT)",
    ),
    Mutant("losses", "/ mask_BT.sum(dim=1, keepdim=True).clamp(min=1)", "/ mask_BT.shape[1]"),
    Mutant(
        "losses",
        "log_ratio_BT.sum(dim=1, keepdim=True).expand_as(log_ratio_BT), 0.0)",
        "log_ratio_BT.mean(dim=1, keepdim=True).expand_as(log_ratio_BT), 0.0)",
    ),
    Mutant("losses", "proximal_logprobs_BT, mask_BT).detach()", "proximal_logprobs_BT, mask_BT)"),
    Mutant("losses", "(policy_BT - policy_BT.detach())", "(policy_BT.detach() - policy_BT)"),
    Mutant(
        "losses",
        "torch.where(takes_part_BT, log_ratio_BT, 0.0)).detach()",
        "torch.where(takes_part_BT, log_ratio_BT, 0.0))",
    ),
    Mutant(
        "losses",
        "0.0 if clip_low is None else 1.0 - clip_low, 1.0 + clip_high",
        "0.0 if clip_low is None else 1.0 - clip_low, clip_high",
    ),
    Mutant("losses", "0.0 if clip_low is None else 1.0 - clip_low", "0.0"),
    Mutant(
        "losses",
        "return -(weights_BT * advantages_BT * policy_BT).sum() / denominator",
        "return -(advantages_BT * policy_BT).sum() / denominator",
    ),
    Mutant(
        "losses",
        "error_BT = torch.maximum(error_BT, held_error_BT)",
        "error_BT = torch.minimum(error_BT, held_error_BT)",
    ),
    Mutant(
        "losses",
        "return (weights_BT * 0.5 * error_BT).sum() / denominator",
        "return (weights_BT * error_BT).sum() / denominator",
    ),
    Mutant(
        "losses",
        "return (weights_BT * torch.where(weights_BT != 0, values_BT, 0.0)).sum() / denominator",
        "return (weights_BT * values_BT).sum() / denominator",
    ),
    Mutant("kl", "return torch.exp(d) - d - 1.0", "return torch.exp(d) - d"),
    Mutant("kl", "return torch.exp(d) - d - 1.0", "return torch.exp(-d) + d - 1.0"),
    Mutant(
        "kl",
        "d = torch.clamp(reference_logprobs - policy_logprobs, -EXPONENT_BOUND, EXPONENT_BOUND)",
        "d = reference_logprobs - policy_logprobs",
    ),
    Mutant("kl", "return policy_logprobs - reference_logprobs", "return reference_logprobs - policy_logprobs"),
    Mutant("kl", "return 0.5 * d * d", "return d * d"),
    Mutant(
        "kl",
        "log_ratio = torch.clamp(policy_logprobs - proximal_logprobs",
        "log_ratio = torch.clamp(policy_logprobs.detach() - proximal_logprobs",
    ),
    Mutant(
        "kl",
        "log_ratio = torch.clamp(policy_logprobs - proximal_logprobs",
        "log_ratio = torch.clamp(proximal_logprobs - policy_logprobs",
    ),
    Mutant(
        "batch",
        "return torch.arange(int(lengths_B.max()), device=lengths_B.device) < lengths_B[:, None]",
        "return torch.arange(int(lengths_B.max()), device=lengths_B.device) <= lengths_B[:, None]",
    ),
    Mutant(
        "batch",
        "ids = [*sequence.prompt_token_ids, *sequence.completion_token_ids]",
        "ids = [*sequence.completion_token_ids, *sequence.prompt_token_ids]",
    ),
    Mutant(
        "batch",
        "starts_B=torch.tensor([len(sequence.prompt_token_ids) for",
        "starts_B=torch.tensor([len(sequence.prompt_token_ids) + 1 for",
    ),
    Mutant(
        "batch",
        "if batches and longest * (len(batches[-1]) + 1) <= max_tokens:",
        "if batches and longest * len(batches[-1]) <= max_tokens:",
    ),
    Mutant(
        "aggregation",
        "mask_BT.double() / mask_BT.sum(dim=1, keepdim=True).clamp(min=1)",
        "mask_BT.double() / mask_BT.shape[1]",
    ),
    Mutant("aggregation", "return float(sum(lengths))", "return float(len(lengths))"),
    Mutant(
        "aggregation",
        "return float(len(lengths) * (config.length or max_new_tokens))",
        "return float(config.length or max_new_tokens)",
    ),
    Mutant("aggregation", "(config.length or max_new_tokens)", "max_new_tokens"),
    Mutant("algorithms", "loss = loss + config.kl.beta * losses", "loss = loss - config.kl.beta * losses"),
    Mutant(
        "algorithms",
        "loss = loss - config.entropy_coefficient * bonus",
        "loss = loss + config.entropy_coefficient * bonus",
    ),
    Mutant("algorithms", "weights_BC * batch.correction_BC.to(dtype), 0.0)", "weights_BC, 0.0)"),
    Mutant("algorithms", 'and config.kl.placement == "loss"', ""),
    Mutant("algorithms", "dual_clip=config.dual_clip if isinstance", "dual_clip=None if isinstance"),
    Mutant("algorithms", '"sum": losses.completion_log_ratio', '"sum": losses.sequence_log_ratio'),
    Mutant(
        "algorithms",
        "kl_BC = KL_ESTIMATORS[config.kl.estimator](*(torch.where(batch.mask_BC, each, 0.0) for each in logprobs))",
        "kl_BC = KL_ESTIMATORS[config.kl.estimator](*logprobs)",
    ),
    Mutant("batch", "self.starts_B[rows_N] + columns_N - 1", "self.starts_B[rows_N] + columns_N"),
    Mutant(
        "logprobs",
        "hidden_ND = hidden_RTD.flatten(0, 1).index_select(0, predicting_N)",
        "hidden_ND = hidden_RTD.flatten(0, 1).index_select(0, predicting_N + 1)",
    ),
    Mutant("packing", "first = [len(prompt) - 1] if len(ids) else []", "first = [begin - 1] if len(ids) else []"),
    Mutant("packing", "torch.arange(len(prompt), len(prompt) + len(ids))", "torch.arange(begin, end)"),
    Mutant("packing", "branches_RT[number, begin:end] = branch", "branches_RT[number, begin:end] = 1"),
    Mutant("packing", "causal_TT & (same_RTT | prompt_RTT)", "same_RTT | prompt_RTT"),
    Mutant("packing", "causal_TT & (same_RTT | prompt_RTT)", "causal_TT & same_RTT"),
    Mutant("packing", "causal_TT & (same_RTT | prompt_RTT)", "causal_TT"),
    Mutant("packing", "tuple(sequence.prompt_token_ids), []", "len(sequence.prompt_token_ids), []"),
    Mutant("packing", "+ added <= limit", "<= limit"),
    Mutant("packing", "longest * (len(batches[-1]) + 1) <= max_tokens", "longest * len(batches[-1]) <= max_tokens"),
    Mutant("layouts", "each.num_tokens <= window]", "each.num_tokens <= window + 99]"),
    Mutant("layouts", "if max(differences) > (HALF_TOLERANCE if half else TOLERANCE):", "if False:"),
    Mutant(
        "layouts",
        "return int(window) if uses and window is not None else None",
        "return int(window) if window is not None else None",
    ),
    Mutant("logprobs", "/ temperatures_N[:, None], dim=-1)", ", dim=-1)"),
    Mutant(
        "logprobs", "finite_NV = torch.where(torch.isinf(logprobs_NV), 0.0, logprobs_NV)", "finite_NV = logprobs_NV"
    ),
    Mutant(
        "logprobs",
        "return -(logprobs_NV.exp() * finite_NV).sum(dim=-1)",
        "return (logprobs_NV.exp() * finite_NV).sum(dim=-1)",
    ),
    Mutant(
        "shaping",
        "return -config.weight * min(share, 1.0) if share > 0 else 0.0",
        "return -config.weight * share if share > 0 else 0.0",
    ),
    Mutant("shaping", "return -config.weight * min(share, 1.0)", "return -min(share, 1.0)"),
    Mutant("shaping", "config.beta * ESTIMATORS", "ESTIMATORS"),
    Mutant("correction", "raw_T.clamp(max=config.cap)", "raw_T"),
    Mutant("correction", "raw_T.clamp(max=config.cap)", "raw_T.clamp(min=config.cap)"),
    Mutant("correction", "(raw_T >= config.low) & (raw_T <= config.high)", "raw_T <= config.high"),
    Mutant("correction", "log_weight_T.sum().expand_as(log_weight_T)", "log_weight_T.mean().expand_as(log_weight_T)"),
    Mutant(
        "frozen", "log_weight_T = trainer_T - engine_T if corrects", "log_weight_T = engine_T - trainer_T if corrects"
    ),
    Mutant("frozen", "self._proximal[index] = trainer_T if corrects else engine_T", "self._proximal[index] = engine_T"),
    Mutant(
        "frozen",
        "return torch.where(torch.isfinite(logprobs_T), logprobs_T, math.nan)",
        "return torch.nan_to_num(logprobs_T)",
    ),
    Mutant("samples", '"reward": None if reward is None else reward + penalty', '"reward": reward'),
    Mutant("samples", 'return None if config.truncated == "mask" else 0.0', "return 0.0"),
    Mutant(
        "samples", '"is_masked": index not in found or row["group_id"] in dropped', '"is_masked": index not in found'
    ),
    Mutant("critic", "batch.starts_B[rows_N] + columns_N - 1]", "batch.starts_B[rows_N] + columns_N]"),
    Mutant(
        "critic",
        'denominator = float(sum(len(rows[index]["returns"]) for index in minibatch))',
        "denominator = float(len(minibatch))",
    ),
    Mutant(
        "trainer",
        'learning = [index for index in minibatch if rows[index]["has_signal"] or everywhere]',
        'learning = [index for index in minibatch if rows[index]["has_signal"]]',
    ),
    Mutant("trainer", 'if not row["is_masked"]),', "),"),
    Mutant(
        "trainer",
        "lengths = [frozen.num_tokens(index) for index in minibatch]",
        "lengths = [frozen.num_tokens(index) for index in usable]",
    ),
]

EQUIVALENT: dict[Mutant, str] = {}
