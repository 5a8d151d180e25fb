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

from tests.mutation.mutants import EQUIVALENT, MUTANTS, TESTS, Mutant

torch.set_num_threads(1)


def copy_of_the_code(folder: Path) -> None:
    """The tracked files: what the tests read, and nothing that an earlier mutant left."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True)
    for name in listed.stdout.split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)


def fails(folder: Path, tests: list[str]) -> bool:
    """Whether a test fails in a fork of this process, which has imported none of our code."""
    child = os.fork()
    if child == 0:
        os.chdir(folder)
        sys.path = [str(folder), *(path for path in sys.path if path != str(ROOT))]
        for name in [name for name in sys.modules if name.partition(".")[0] in ("tests", "tasks", "flows", "storage")]:
            del sys.modules[name]
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        paths = [f"tests/unit/tasks/grpo/{name}" for name in tests]
        os._exit(int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-o", "filterwarnings=", *paths])))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status not in (0, 1):
        raise SystemExit(f"the tests {tests} could not be run: status {status}")
    return status == 1


def is_killed(folder: Path, mutant: Mutant) -> bool:
    path = folder / "tasks" / "grpo" / f"{mutant.file}.py"
    source = path.read_text()
    if source.count(mutant.old) != 1:
        raise SystemExit(f"{mutant.old!r} stands {source.count(mutant.old)} times in {mutant.file}.py, not once")
    path.write_text(source.replace(mutant.old, mutant.new))
    try:
        return fails(folder, TESTS[mutant.file])
    finally:
        path.write_text(source)


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy_of_the_code(folder)
        if fails(folder, sorted({test for tests in TESTS.values() for test in tests})):
            raise SystemExit("the tests fail without any mutant; run make test first")
        killed = 0
        for mutant in MUTANTS:
            if is_killed(folder, mutant):
                killed += 1
            else:
                reason = EQUIVALENT.get(mutant, "no test notices it")
                print(f"survived: {mutant.file}.py: {mutant.old!r} -> {mutant.new!r}: {reason}", flush=True)
        print(f"mutants: {killed} of {len(MUTANTS)} killed")
        return 0 if killed + len(EQUIVALENT) >= len(MUTANTS) else 1


if __name__ == "__main__":
    sys.exit(main())
