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


def load_prompts(source: PromptSource, *, seed: int) -> LoadedPrompts:
    """Every prompt of the source; the same source and seed give the same prompts in the same order on every machine.

    Raises:
        ValueError: the source is missing, empty or malformed; names the place and the cure.
    """
    return SOURCES[type(source)](source, seed)


def check_prompts(source: PromptSource) -> None:
    """Refuse, before any compute, files that are not there (a hub name is looked up when it is loaded)."""
    if isinstance(source, JsonlPrompts):
        _files(source.path, "*.jsonl")
    if isinstance(source, ParquetPrompts):
        _files(source.path, "*.parquet")


def arithmetic(source: ArithmeticPrompts, seed: int) -> LoadedPrompts:
    """Distinct chain-arithmetic problems."""
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
    """A JSON-lines file or a folder of them."""
    del seed
    files = _files(source.path, "*.jsonl")
    rows: list[dict[str, Any]] = []
    for file in files:
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
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
    """A Parquet file or a folder of them."""
    del seed
    files = _files(source.path, "*.parquet")
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    return LoadedPrompts(
        from_columns(rows, source.prompt_column, source.answer_column, source.path), [str(file) for file in files]
    )


def hugging_face(source: DatasetsPrompts, seed: int) -> LoadedPrompts:
    """A ``datasets`` folder (``save_to_disk``) or a name on the hub."""
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
        loaded = datasets.load_dataset(source.name, source.subset, split=source.split, revision=source.revision)
    where = f"{source.name} ({source.split})"
    return LoadedPrompts(from_columns(loaded.to_list(), source.prompt_column, source.answer_column, where), [])


def reasoning_gym(source: ReasoningGymPrompts, seed: int) -> LoadedPrompts:
    """A reasoning-gym task; each prompt's metadata keeps the whole entry, which its verifier needs to score."""
    import reasoning_gym as gym  # imported here: it costs seconds and few recipes need it

    try:
        dataset = gym.create_dataset(source.task, seed=seed, size=source.num_prompts, **source.parameters)
    except (ValueError, TypeError, AssertionError) as error:
        raise ValueError(f"reasoning_gym task {source.task!r} with {source.parameters}: {error}") from error
    prompts = []
    for index in range(source.num_prompts):
        entry = json.loads(json.dumps(dataset[index], default=str))
        prompts.append(RawPrompt(entry["question"], str(entry["answer"]), {"task": source.task, "entry": entry}))
    return LoadedPrompts(prompts, [])


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
