"""Apply every mutant to a copy of the code, one at a time, and see whether a test notices: make mutants."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import pytest
import torch
import transformers  # noqa: F401  # imported once here: every mutant is a fork of this process

from tests.mutation import machinery_mutants as of_machinery
from tests.mutation import mutants as of_updates
from tests.mutation import rank_mutants as of_ranks
from tests.mutation import reward_mutants as of_reward_models
from tests.mutation import rollout_mutants as of_rollouts
from tests.mutation import step_mutants as of_steps
from tests.mutation.mutants import Mutant

torch.set_num_threads(1)

ROOMS = (of_updates, of_machinery, of_reward_models, of_steps, of_ranks, of_rollouts)
TESTS = {room: tests for each in ROOMS for room, tests in each.TESTS.items()}
MUTANTS = [mutant for each in ROOMS for mutant in each.MUTANTS]
EQUIVALENT = {mutant: why for each in ROOMS for mutant, why in getattr(each, "EQUIVALENT", {}).items()}


def copy_of_the_code(folder: Path) -> None:
    """The tracked files: what the tests read, and nothing that an earlier mutant left."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True)
    for name in listed.stdout.split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)


def fails(folder: Path, room: str, tests: list[str]) -> bool:
    """Whether one of the tests of a room fails in a fork of this process, which has imported none of our code."""
    child = os.fork()
    if child == 0:
        os.chdir(folder)
        sys.path = [str(folder), *(path for path in sys.path if path != str(ROOT))]
        for name in [name for name in sys.modules if name.partition(".")[0] in ("tests", "tasks", "flows", "storage")]:
            del sys.modules[name]
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        paths = [f"tests/unit/tasks/{room}/{name}" for name in tests]
        os._exit(int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-o", "filterwarnings=", *paths])))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status not in (0, 1):
        raise SystemExit(f"the tests {tests} could not be run: status {status}")
    return status == 1


def is_killed(folder: Path, mutant: Mutant) -> bool:
    path = folder / "tasks" / room_of(mutant.file) / f"{mutant.file.rpartition('/')[2]}.py"
    source = path.read_text()
    if source.count(mutant.old) != 1:
        raise SystemExit(f"{mutant.old!r} stands {source.count(mutant.old)} times in {mutant.file}.py, not once")
    path.write_text(source.replace(mutant.old, mutant.new))
    try:
        return fails(folder, room_of(mutant.file), TESTS[mutant.file])
    finally:
        path.write_text(source)


def room_of(file: str) -> str:
    """ "reward" for "reward/step_plan"; a name without a room is one of "grpo"."""
    return file.rpartition("/")[0] or "grpo"


def main() -> int:
    """All mutants, or those of the files that are named on the command line."""
    wanted = sys.argv[1:] or list(TESTS)
    if unknown := [file for file in wanted if file not in TESTS]:
        raise SystemExit(f"there are no mutants of {', '.join(unknown)}; there are those of {', '.join(TESTS)}")
    mutants = [mutant for mutant in MUTANTS if mutant.file in wanted]
    equivalent = [mutant for mutant in mutants if mutant in EQUIVALENT]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy_of_the_code(folder)
        for room in sorted({room_of(file) for file in wanted}):
            if fails(folder, room, sorted({test for file in wanted if room_of(file) == room for test in TESTS[file]})):
                raise SystemExit(f"the tests of {room} fail without any mutant; run make test first")
        killed = 0
        for mutant in mutants:
            if is_killed(folder, mutant):
                killed += 1
            else:
                reason = EQUIVALENT.get(mutant, "no test notices it")
                print(f"survived: {mutant.file}.py: {mutant.old!r} -> {mutant.new!r}: {reason}", flush=True)
        print(f"mutants: {killed} of {len(mutants)} killed")
        return 0 if killed + len(equivalent) >= len(mutants) else 1


if __name__ == "__main__":
    sys.exit(main())
