"""The columns of every table: explicit types, so that an all-None shard and a float shard fit together.

Token ids are int32, log-probabilities float32 in nats, rewards and advantages float64, text ``large_string`` (64-bit
offsets: a shard may pass 2 GiB). Null means "not known" or "not scored"; NaN is a number that went wrong; both survive.
What names or orders a row (keys, ids, token ids) is never null: two nulls would join.
"""

import pyarrow as pa

SCHEMA_VERSION = 3

TEXT = pa.large_string()
IDS = pa.list_(pa.int32())


def _required(name: str, type_: pa.DataType) -> pa.Field:
    return pa.field(name, type_, nullable=False)


# One row per distinct prompt. `prompt` is plain text, or JSON of chat messages when `is_chat`.
PROMPTS = pa.schema(
    [
        _required("prompt_id", pa.string()),
        _required("prompt_key", pa.string()),  # sha256 of the normalised text; decides the split
        _required("split", pa.string()),  # "train" | "heldout"
        _required("prompt", TEXT),
        _required("is_chat", pa.bool_()),
        _required("prompt_token_ids", IDS),
        ("answer", TEXT),
        ("metadata", TEXT),  # JSON object: the source's other columns
    ]
)

# The prompts of one step (or of one evaluation), each with the id of the group that its completions will form.
SELECTION = pa.schema([_required("group_id", pa.string()), *PROMPTS])

_COMPLETION_KEY = [
    _required("group_id", pa.string()),
    _required("prompt_id", pa.string()),
    _required("sample_index", pa.int32()),
]

COMPLETIONS = pa.schema(
    [
        *_COMPLETION_KEY,
        _required("prompt_token_ids", IDS),
        _required("completion_token_ids", IDS),
        ("sampler_logprobs", pa.list_(pa.float32())),  # of the distribution sampled from; null when the engine has none
        ("finish_reason", pa.string()),  # "stop" | "length" | "abort"
        ("is_truncated", pa.bool_()),
        ("text", TEXT),  # decoded from the whole id list, the final eos dropped by id
        ("seed", pa.int64()),
        ("temperature", pa.float64()),
        ("policy_digest", pa.string()),
    ]
)

# One row per completion; `reward` is the weighted total, null when a source that counts is missing.
REWARDS_BASE = [*_COMPLETION_KEY, ("reward", pa.float64()), ("is_correct", pa.bool_())]
REWARDS_STEPS = [("step_rewards", pa.list_(pa.float64())), ("step_ends", IDS)]


def rewards_schema(sources: tuple[str, ...]) -> pa.Schema:
    """The rewards table: for each source its reward, status ("scored", "unscored", "timeout", "error") and reason."""
    if len(set(sources)) != len(sources):
        raise ValueError(f"the sources {sources} are not distinct: each has columns of its own")
    columns = []
    for source in sources:
        columns += [(f"{source}_reward", pa.float64()), (f"{source}_status", pa.string()), (f"{source}_reason", TEXT)]
    return pa.schema([*REWARDS_BASE, *columns, *REWARDS_STEPS])


# What the policy (and a critic) trains on.
SAMPLES = pa.schema(
    [
        *_COMPLETION_KEY,
        _required("prompt_token_ids", IDS),
        _required("completion_token_ids", IDS),
        ("sampler_logprobs", pa.list_(pa.float32())),
        ("temperature", pa.float64()),
        ("policy_digest", pa.string()),
        ("reward", pa.float64()),  # what the advantage was estimated from, the overlong penalty included
        ("overlong_penalty", pa.float64()),
        ("advantage", pa.float64()),  # of every token; null where the advantages differ by token
        ("token_advantages", pa.list_(pa.float64())),
        ("reference_logprobs", pa.list_(pa.float32())),  # null unless a KL stands in the reward
        ("values", pa.list_(pa.float32())),  # of the critic, before each token; null without one
        ("returns", pa.list_(pa.float64())),  # what the critic should have said; null without one
        ("is_masked", pa.bool_()),  # takes no part: unscored, aborted, truncated under "mask", or a replaced group's
        ("has_signal", pa.bool_()),  # it has an advantage to learn from
    ]
)

# What every label for the reward model begins with; token ids are those that were sampled.
_LABEL_KEY = [
    _required("label_id", pa.string()),
    _required("prompt_id", pa.string()),
    _required("prompt_key", pa.string()),
    _required("group_id", pa.string()),
    _required("prompt_token_ids", IDS),
    _required("origin_iteration", pa.int32()),
]

# Preference pairs.
PAIRS = pa.schema(
    [
        *_LABEL_KEY,
        _required("chosen_token_ids", IDS),
        _required("rejected_token_ids", IDS),
        ("chosen_reward", pa.float64()),
        ("rejected_reward", pa.float64()),
    ]
)

# Single completions, each right (1), wrong (0) or something between.
POINTS = pa.schema([*_LABEL_KEY, _required("completion_token_ids", IDS), _required("label", pa.float64())])

# Completions with labels in [0, 1] at the ends of (some of) their steps: positions within the completion, from 0.
STEP_LABELS = pa.schema(
    [
        *_LABEL_KEY,
        _required("completion_token_ids", IDS),
        _required("step_ends", IDS),
        _required("step_labels", pa.list_(pa.float64())),
        _required("num_continuations", pa.int32()),  # scored ones behind the labels; 0 for labels from a file
    ]
)


def _mixed(labels: pa.Schema) -> pa.Schema:
    """What the reward model trains on: new labels and replayed ones."""
    return pa.schema([*labels, _required("is_replayed", pa.bool_())])


# One row per held-out prompt.
EVALUATION = pa.schema(
    [
        _required("prompt_id", pa.string()),
        ("num_samples", pa.int32()),
        ("num_scored", pa.int32()),
        ("num_correct", pa.int32()),
        ("pass_at_1", pa.float64()),
        ("greedy_correct", pa.bool_()),
        ("reward_model_mean", pa.float64()),
    ]
)

TABLES: dict[str, pa.Schema] = {
    "prompts": PROMPTS,
    "selection": SELECTION,
    "completions": COMPLETIONS,
    "samples": SAMPLES,
    "pairs": PAIRS,
    "points": POINTS,
    "step_labels": STEP_LABELS,
    "mixed_pairs": _mixed(PAIRS),
    "mixed_points": _mixed(POINTS),
    "mixed_step_labels": _mixed(STEP_LABELS),
    "evaluation": EVALUATION,
}


def schema_of(table: str, sources: tuple[str, ...] = ()) -> pa.Schema:
    """The schema of a table; ``rewards`` has columns per source."""
    if table == "rewards":
        return rewards_schema(sources)
    if table not in TABLES:
        raise ValueError(f"no table is called {table!r}; there are {', '.join([*TABLES, 'rewards'])}")
    return TABLES[table]
