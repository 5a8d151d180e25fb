"""Read prompts from where a recipe says they are."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tasks.curriculum.config import (
    ArithmeticPrompts,
    DatasetsPrompts,
    JsonlPrompts,
    ParquetPrompts,
    PromptSource,
    ReasoningGymPrompts,
)
from tasks.curriculum.raw import LoadedPrompts, RawPrompt, from_columns
from tasks.values.arithmetic import make_problem

MAX_DRAWS_PER_PROBLEM = 50
MAX_GYM_SEED = 2**31


def load_prompts(source: PromptSource, *, seed: int) -> LoadedPrompts:
    """Every prompt of the source; the same source and seed give the same prompts in the same order on every machine.

    Raises:
        ValueError: the source is missing, empty or malformed; names the place and the cure.
    """
    return SOURCES[type(source)](source, seed)


def arithmetic(source: ArithmeticPrompts, seed: int) -> LoadedPrompts:
    """Distinct chain-arithmetic problems.

    Source: ours; the task of the quick start.
    """
    rng = random.Random(seed)  # noqa: S311  # problems, not secrets
    problems: dict[str, str] = {}
    for _ in range(MAX_DRAWS_PER_PROBLEM * source.num_prompts):
        text, answer = make_problem(rng, source.min_terms, source.max_terms)
        problems[text] = answer
        if len(problems) == source.num_prompts:
            return LoadedPrompts([RawPrompt(text, answer, {}) for text, answer in problems.items()], [])
    raise ValueError(
        f"{source.num_prompts} distinct problems of {source.min_terms} to {source.max_terms} terms could not be found; "
        "lower prompts.source.num_prompts or raise max_terms"
    )


def jsonl(source: JsonlPrompts, seed: int) -> LoadedPrompts:
    """A JSON-lines file or a folder of them.

    Source: the user's files; one JSON object a line, RFC 8259.
    """
    del seed
    files = _files(source.path, "*.jsonl")
    rows: list[dict[str, Any]] = []
    for file in files:
        for number, line in enumerate(_lines(file), start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise ValueError(f"{file}:{number} is not JSON: {error}") from error
            if not isinstance(row, dict):
                raise ValueError(f"{file}:{number} is a {type(row).__name__}, not an object with columns")
            rows.append(row)
    return LoadedPrompts(
        from_columns(rows, source.prompt_column, source.answer_column, source.path), [str(file) for file in files]
    )


def parquet(source: ParquetPrompts, seed: int) -> LoadedPrompts:
    """A Parquet file or a folder of them.

    Source: the user's files.
    """
    del seed
    files = _files(source.path, "*.parquet")
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    return LoadedPrompts(
        from_columns(rows, source.prompt_column, source.answer_column, source.path), [str(file) for file in files]
    )


def hugging_face(source: DatasetsPrompts, seed: int) -> LoadedPrompts:
    """A ``datasets`` folder (``save_to_disk``) or a name on the hub.

    Source: ``datasets.load_from_disk`` and ``datasets.load_dataset``.
    """
    del seed
    import datasets  # imported here: it costs seconds and few recipes need it

    folder = Path(source.name).expanduser()
    if folder.is_dir():
        loaded = datasets.load_from_disk(str(folder))
        if isinstance(loaded, datasets.DatasetDict):
            if source.split not in loaded:
                raise ValueError(f"{source.name} has no split {source.split!r}; it has {sorted(loaded)}")
            loaded = loaded[source.split]
    else:
        try:
            loaded = datasets.load_dataset(source.name, source.subset, split=source.split, revision=source.revision)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"prompts.source.name {source.name!r} is no folder of this machine and could not be loaded from the hub: "
                f"{error}"
            ) from error
    where = f"{source.name} ({source.split})"
    return LoadedPrompts(from_columns(loaded.to_list(), source.prompt_column, source.answer_column, where), [])


def reasoning_gym(source: ReasoningGymPrompts, seed: int) -> LoadedPrompts:
    """A reasoning-gym task; each prompt's metadata keeps the whole entry, which its verifier needs to score.

    Source: reasoning-gym 0.1.25, ``create_dataset``.
    """
    import reasoning_gym as gym  # imported here: it costs seconds and few recipes need it

    place = f"reasoning_gym task {source.task!r} with {source.parameters}"
    try:
        # Some tasks hand seed + index to numpy, which takes 32 bits.
        dataset = gym.create_dataset(
            source.task, seed=seed % MAX_GYM_SEED, size=source.num_prompts, **source.parameters
        )
        entries = [dataset[index] for index in range(source.num_prompts)]
    except Exception as error:  # generators raise whatever their puzzle code raises
        raise ValueError(f"{place}: {error}") from error
    return LoadedPrompts(
        [_gym_prompt(entry, source.task, f"entry {i} of {place}") for i, entry in enumerate(entries)], []
    )


def _gym_prompt(entry: dict[str, Any], task: str, where: str) -> RawPrompt:
    answer = entry["answer"]
    if not isinstance(answer, str):
        raise ValueError(
            f"{where} has answer {answer!r}: this task publishes no gold answer as text, so no completion could be checked; "
            "take another task"
        )
    return RawPrompt(entry["question"], answer, {"task": task, "entry": json.loads(json.dumps(entry, default=str))})


def _lines(file: Path) -> list[str]:
    """The lines of a UTF-8 file, cut at line feeds alone: a JSON string may hold U+2028 and other marks of ``splitlines``."""
    try:
        return file.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not UTF-8 text ({error}); convert it first") from error


def _files(path: str, pattern: str) -> list[Path]:
    """The file itself, or the files of a folder sorted by name (a listing's own order differs between machines)."""
    place = Path(path).expanduser()
    if place.is_file():
        return [place]
    files = sorted(place.glob(pattern)) if place.is_dir() else []
    if not files:
        raise ValueError(f"prompts.source.path {path!r} is neither a file nor a folder with {pattern} files")
    return files


SOURCES: dict[type, Callable[[Any, int], LoadedPrompts]] = {
    ArithmeticPrompts: arithmetic,
    JsonlPrompts: jsonl,
    ParquetPrompts: parquet,
    DatasetsPrompts: hugging_face,
    ReasoningGymPrompts: reasoning_gym,
}
