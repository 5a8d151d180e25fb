"""Small mistakes in the step labels and metrics of process reward models, each of which a test must notice."""

from tests.mutation.mutants import Mutant

TESTS = {
    "reward/step_plan": ["test_step_labels.py"],
    "reward/step_labels": ["test_step_labels.py"],
    "reward/step_continuations": ["test_step_labels.py"],
    "reward/step_examples": ["test_step_reading.py"],
    "reward/step_metrics": ["test_step_metrics.py"],
    "reward/step_scorer": ["test_step_scorer.py"],
    "reward/step_files": ["test_step_files.py"],
    "reward/step_file_rows": ["test_step_files.py"],
}

MUTANTS = [
    Mutant(
        "reward/step_plan",
        'for row in sorted(members, key=lambda each: int(each["sample_index"])):',
        "for row in members[::-1]:",
    ),
    Mutant("reward/step_plan", 'row["finish_reason"] != "abort"', "True"),
    Mutant("reward/step_plan", "[: config.max_groups]", "[:]"),
    Mutant("reward/step_plan", "order[:most]", "order[-most:]"),
    Mutant("reward/step_plan", "gap = (len(ends) - 1) / (most - 1)", "gap = len(ends) / most"),
    Mutant("reward/step_plan", "math.floor(index * gap + 0.5)", "math.floor(index * gap)"),
    Mutant("reward/step_plan", "return [ends[-1]]", "return [ends[0]]"),
    Mutant("reward/step_plan", "[: end + 1])", "[:end])"),
    Mutant(
        "reward/step_plan", "name = f\"{row['group_id']}:{','.join(map(str, ids))}\"", "name = ','.join(map(str, ids))"
    ),
    Mutant(
        "reward/step_plan",
        "needed = [_prefix(row, end) for end in chosen[:-1]]",
        "needed = [_prefix(row, end) for end in chosen]",
    ),
    Mutant(
        "reward/step_labels",
        "known = [verdict for verdict in verdicts if verdict is not None]",
        "known = [bool(verdict) for verdict in verdicts]",
    ),
    Mutant("reward/step_labels", "float(any(known))", "float(all(known))"),
    Mutant(
        "reward/step_labels",
        'float(any(known)) if config.labels == "hard" else',
        'float(any(known)) if config.labels == "soft" else',
    ),
    Mutant("reward/step_labels", "/ len(known)", "/ len(verdicts)"),
    Mutant(
        "reward/step_labels",
        "estimate([is_correct] if prefix is None else verdicts[prefix], config)",
        "estimate([True] if prefix is None else verdicts[prefix], config)",
    ),
    Mutant(
        "reward/step_labels",
        "name = f\"{origin_iteration}:{row['group_id']}:{row['sample_index']}\"",
        "name = f\"{row['group_id']}:{row['sample_index']}\"",
    ),
    Mutant("reward/step_labels", "sum(verdict is not None for verdict in scored)", "len(scored)"),
    Mutant("reward/step_labels", "unscored / len(each)", "unscored / len(labels)"),
    Mutant(
        "reward/step_continuations",
        "max_new_tokens=max_new_tokens - len(prefix.prefix_token_ids)",
        "max_new_tokens=max_new_tokens",
    ),
    Mutant("reward/step_continuations", "derive_seed(seed, prefix.prefix_id, index)", "derive_seed(seed, index)"),
    Mutant(
        "reward/step_continuations",
        "derive_seed(seed, prefix.prefix_id, index)",
        "derive_seed(prefix.prefix_id, index)",
    ),
    Mutant(
        "reward/step_continuations", "(*prefix.prompt_token_ids, *prefix.prefix_token_ids)", "prefix.prefix_token_ids"
    ),
    Mutant(
        "reward/step_continuations",
        'decode([*prefix.prefix_token_ids, *row["completion_token_ids"]])',
        'decode(row["completion_token_ids"])',
    ),
    Mutant("reward/step_examples", "[len(prompt_ids) + end for end", "[len(prompt_ids) + end - 1 for end"),
    Mutant("reward/step_examples", "if len(prompt_ids) + end < len(ids)]", "if end < len(ids)]"),
    Mutant("reward/step_examples", "labels[: len(positions)]", "labels[-len(positions) :]"),
    Mutant("reward/step_examples", "position - prompt + 1", "position + 1"),
    Mutant("reward/step_metrics", "_first(target <= 0.5 for", "_first(target < 0.5 for"),
    Mutant("reward/step_metrics", "_first(logit <= 0 for", "_first(logit < 0 for"),
    Mutant("reward/step_metrics", "== truth)", "is not truth)"),
    Mutant("reward/step_metrics", "hits[truth is None]", "hits[truth is not None]"),
    Mutant("reward/step_metrics", "2.0 * found * none / (found + none)", "(found + none) / 2.0"),
    Mutant("reward/step_scorer", "logit / model.temperature", "logit"),
    Mutant("reward/step_scorer", "<= max_tokens", "< max_tokens"),
    Mutant("reward/step_scorer", "return min(probabilities)", "return max(probabilities)"),
    Mutant("reward/step_scorer", "return math.prod(probabilities)", "return math.fsum(probabilities)"),
    Mutant("reward/step_scorer", "return probabilities[-1]", "return probabilities[0]"),
    Mutant("reward/step_scorer", "math.fsum(probabilities) / len(probabilities)", "math.fsum(probabilities)"),
    Mutant("reward/step_scorer", "if not math.isfinite(logit)", "if logit == math.inf"),
    Mutant(
        "reward/step_files",
        '{"right": 1.0, "wrong": 0.0, "left_out": None}',
        '{"right": 0.0, "wrong": 1.0, "left_out": None}',
    ),
    Mutant("reward/step_files", "return float(rating == 1)", "return float(rating >= 0)"),
    Mutant("reward/step_files", "if index != chosen:", "if True:"),
    Mutant("reward/step_files", "ratings.append(None)", "ratings.append(1.0)"),
    Mutant(
        "reward/step_files",
        "known = len(steps) if first == -1 else first",
        "known = len(steps) if first == -1 else first - 1",
    ),
    Mutant("reward/step_files", 'labels.append(float(sign == "+"))', 'labels.append(float(sign == "-"))'),
    Mutant("reward/step_files", "position += len(piece) + 1", "position += len(piece)"),
    Mutant("reward/step_files", "ANSWER_OF_PRM800K in steps[-1]", "True"),
    Mutant("reward/step_file_rows", "if key in heldout_keys:", "if False:"),
    Mutant("reward/step_file_rows", "if solution.is_finished and", "if"),
    Mutant("reward/step_file_rows", "_storable(step) + joined_by", "_storable(step)"),
    Mutant("reward/step_file_rows", "UNKNOWN = 2.0", "UNKNOWN = -1.0"),
    Mutant("reward/step_file_rows", "if coding.decode(ids) != text:", "if False:"),
]
