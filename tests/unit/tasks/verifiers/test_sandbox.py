"""The sandbox: what it does to programs that go on, to the processes they leave, and when it can not stand itself."""

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from tasks.verifiers import code, isolation, sandbox, trials
from tasks.verifiers.call_kinds import CodeVerifier
from tasks.verifiers.config import ScoringConfig
from tasks.verifiers.isolation import Limits
from tasks.verifiers.pool import VerifierPool
from tasks.verifiers.sandbox import Sandbox
from tasks.verifiers.sandboxed import candidate, stdin_program
from tasks.verifiers.verdict import ScoreItem

CONFIG = CodeVerifier(kind="code", timeout_seconds=1.0, total_seconds=2.0)
LIMITS = Limits(256 << 20, 5)
ADD = json.dumps({"tests": ["assert f(1) == 2", "assert f(2) == 3", "assert f(3) == 4"]})
DONE = json.dumps({"cases": [{"stdin": "", "stdout": "done\n"}]})
HUMANEVAL = Path(__file__).parents[5] / "shared" / "data" / "humaneval" / "HumanEval.jsonl"


def score(gold, program, config=CONFIG, prompt=""):
    return code.verify(config, ScoreItem(prompt, gold, f"```python\n{program}\n```", {}))


def sandboxed_processes():
    """Process ids of everything that runs one of the sandboxed modules and began with this test process or lost its parent."""
    parents = {}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and b"verifiers.sandboxed" in (entry / "cmdline").read_bytes():
                parents[int(entry.name)] = int(
                    (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[1]
                )
        except OSError:
            continue
    return {pid for pid, parent in parents.items() if parent in (os.getpid(), 1, *parents)}


def children():
    """Process ids of this process's children, the ended ones that nobody has waited for too."""
    tasks = Path("/proc/self/task").iterdir()
    return {int(pid) for task in tasks for pid in (task / "children").read_text().split()}


def nothing_new(before, seconds=3.0):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not sandboxed_processes() - before:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.sandbox
class TestTime:
    @pytest.mark.parametrize(
        ("program", "reward"),
        [
            ("while True: pass", 0.0),
            ("import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: pass", 0.0),
            ("import os\nif os.fork() == 0:\n    import time; time.sleep(60)\nwhile True: pass", 0.0),
            ("import os\nif os.fork() == 0:\n    os.setsid()\n    import time; time.sleep(60)\nwhile True: pass", 0.0),
            ("import os\nif os.fork() == 0:\n    import time; time.sleep(60)\nprint('done')", 1.0),
            ("import os, time\nprint('done', flush=True)\nos.close(1)\ntime.sleep(60)", 0.0),
        ],
        ids=["loops", "ignores", "child", "session", "leaves_a_child_with_its_output", "closes_its_output"],
    )
    def test_nothing_survives_and_the_verdict_comes_in_time(self, program, reward):
        before, before_children, started = sandboxed_processes(), children(), time.monotonic()
        found = score(DONE, program)
        assert (found.status, found.reward) == ("scored", reward), found.reason
        assert time.monotonic() - started < 1.0 + 1.0 + 1.0  # the limit, its second, one for a busy machine
        assert nothing_new(before, 0.2)
        assert children() <= before_children

    def test_all_tests_together_have_a_limit_too(self):
        config = CodeVerifier(kind="code", timeout_seconds=1.0, total_seconds=1.0, scoring="fraction")
        started = time.monotonic()
        found = score(ADD, "import time\ndef f(x):\n    time.sleep(0.4)\n    return x + 1", config)
        assert found.reward == pytest.approx(2 / 3)
        assert time.monotonic() - started < 3.0

    def test_after_a_test_that_kills_the_program_the_next_one_gets_a_fresh_one(self):
        config = CodeVerifier(kind="code", timeout_seconds=0.5, total_seconds=4.0, scoring="fraction")
        body = "def f(x):\n    if x == 2:\n        {}\n    return x + 1"
        for harm in ("import os; os._exit(0)", "while True: pass", "raise ValueError", "return 'x' * (1 << 24)"):
            assert score(ADD, body.format(harm), config).reward == pytest.approx(2 / 3), harm

    def test_a_flood_is_stopped_and_costs_little_memory_here(self):
        score(DONE, "print('done')")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert "1048576 bytes" in score(DONE, "while True: print('x' * 100000)").reason
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8 << 10  # KiB

    def test_a_row_deadline_ends_everything_inside(self):
        before = sandboxed_processes()
        config = CodeVerifier(kind="code", timeout_seconds=30, total_seconds=30)
        with VerifierPool([config], 1, 1.5) as pool:
            program = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(60)\ntime.sleep(60)"
            items = [ScoreItem("", DONE, f"```python\n{program}\n```", {}), ScoreItem("", DONE, "print('done')", {})]
            verdicts = pool.score(items, lambda done, total: None)
            assert [row[0].status for row in verdicts] == ["timeout", "scored"]
            assert verdicts[1][0].reward == 1.0
            assert nothing_new(before)
        assert nothing_new(before)


@pytest.mark.sandbox
class TestFaults:
    def test_a_sandbox_that_is_killed_from_outside_is_an_error(self):
        found = []
        thread = threading.Thread(target=lambda: found.append(score(DONE, "import time; time.sleep(60)", SLOW)))
        before = sandboxed_processes()
        thread.start()
        outer = wait_for_outer(before)
        time.sleep(0.3)
        os.kill(outer, signal.SIGKILL)
        thread.join(10)
        assert found[0].status == "error"
        assert "from outside" in found[0].reason
        assert nothing_new(before)

    def test_a_program_that_kills_itself_is_no_error(self):
        assert score(DONE, "import os; os.kill(os.getpid(), 9)").reward == 0.0

    def test_a_sandbox_that_does_not_stand_is_an_error_with_what_it_said(self, monkeypatch):
        monkeypatch.setattr(isolation, "NAMESPACES", ("--no-such-namespace",))
        found = score(ADD, "def f(x): return x + 1")
        assert (found.status, found.reward) == ("error", None)
        assert "no-such-namespace" in found.reason
        assert "isolation" in found.reason

    def test_what_can_not_be_executed_is_an_error(self, monkeypatch):
        monkeypatch.setattr(sandbox, "command", lambda *_, **__: ["/no/such/command"])
        before = len(os.listdir("/proc/self/fd"))
        assert score(ADD, "def f(x): return x + 1").status == "error"
        assert len(os.listdir("/proc/self/fd")) == before

    def test_no_descriptor_is_left_open_here(self):
        score(ADD, "def f(x): return x + 1")
        before = len(os.listdir("/proc/self/fd"))
        for program in ("def f(x): return x + 1", "def f(x): return 0", "while True: pass", "import os; os._exit(1)"):
            score(ADD, program)
            score(DONE, program)
        assert len(os.listdir("/proc/self/fd")) == before

    def test_a_closed_sandbox_may_be_killed_again(self):
        before = sandboxed_processes()
        confined = Sandbox(stdin_program, {"program": "while True: pass"}, LIMITS, "sandbox", b"")
        confined.kill()
        confined.kill()
        assert nothing_new(before)

    def test_input_that_is_never_read_does_not_block(self):
        with Sandbox(candidate, {"program": "while True: pass", "setup": ""}, LIMITS, "sandbox") as confined:
            confined.wait_ready()
            with pytest.raises(sandbox.OutOfTime):
                confined.write_line(b"x" * (1 << 20), time.monotonic() + 0.3)


SLOW = CodeVerifier(kind="code", timeout_seconds=20, total_seconds=20)


def wait_for_outer(before, seconds=10.0):
    """The process outside that this one started."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for pid in sandboxed_processes() - before:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1] == str(os.getpid()):
                return pid
        time.sleep(0.01)
    raise AssertionError("no sandbox was started")


def test_without_bubblewrap_every_row_is_an_error_that_names_the_cure(monkeypatch):
    monkeypatch.setattr(isolation.shutil, "which", lambda name: None)
    isolation._found.cache_clear()
    found = score(ADD, "def f(x): return x + 1")
    assert (found.status, found.reward) == ("error", None)
    for word in ("bwrap", "apt-get install bubblewrap", 'isolation = "process"'):
        assert word in found.reason
    assert sandbox.sandbox_fault() == found.reason


@pytest.mark.sandbox
def test_programs_that_need_more_of_python_than_arithmetic_run():
    programs = [
        "import asyncio\nasync def g(x):\n    await asyncio.sleep(0)\n    return x + 1\ndef f(x): return asyncio.run(g(x))",
        "from concurrent.futures import ThreadPoolExecutor\ndef f(x):\n    with ThreadPoolExecutor(4) as pool: return sum(pool.map(int, [x, 1]))",
        "from dataclasses import dataclass\n@dataclass\nclass A:\n    x: int\ndef f(x): return A(x + 1).x",
        "import re, heapq, itertools, functools, collections, math, datetime, decimal, fractions, random, string, statistics\ndef f(x): return x + 1",
        "import sqlite3\ndef f(x): return sqlite3.connect(':memory:').execute('select ? + 1', (x,)).fetchone()[0]",
        "import sys\nsys.setrecursionlimit(5000)\ndef g(n): return 0 if n == 0 else 1 + g(n - 1)\ndef f(x): return g(3000) - 2999 + x",
        "import tempfile\ndef f(x):\n    with tempfile.TemporaryFile('w+') as file:\n        file.write(str(x + 1)); file.seek(0)\n        return int(file.read())",
        "def f(x):\n    print('working', input if False else '')\n    return x + 1",
        "from typing import List\nimport typing, types, enum, abc, io, json\ndef f(x: int) -> int: return x + 1",
        "f = lambda x: x + True",
        "class F:\n    def __call__(self, x): return x + 1\nf = F()",
        "import subprocess, sys\ndef f(x): return int(subprocess.run([sys.executable, '-c', f'print({x} + 1)'], capture_output=True).stdout)",
    ]  # fmt: skip
    patient = CodeVerifier(kind="code", timeout_seconds=10, total_seconds=20)
    assert [score(ADD, program, patient).reason for program in programs] == [""] * len(programs)


@pytest.mark.sandbox
@pytest.mark.skipif(not HUMANEVAL.is_file(), reason="HumanEval lies beside the checkout where it is found")
def test_every_reference_solution_of_humaneval_passes_and_an_empty_one_does_not():
    rows = [json.loads(line) for line in HUMANEVAL.read_text(encoding="utf-8").splitlines()]
    patient = CodeVerifier(kind="code", timeout_seconds=20, total_seconds=20)
    failed, passed = [], []
    for row in rows:
        gold = json.dumps({"check": row["test"], "entry_point": row["entry_point"], "prefix": row["prompt"]})
        if code.verify(patient, ScoreItem(row["prompt"], gold, row["canonical_solution"], {})).reward != 1.0:
            failed.append(row["task_id"])
    for row in rows[::16]:
        gold = json.dumps({"check": row["test"], "entry_point": row["entry_point"], "prefix": row["prompt"]})
        if code.verify(patient, ScoreItem(row["prompt"], gold, "    return None\n", {})).reward != 0.0:
            passed.append(row["task_id"])
    assert (len(rows), failed, passed) == (164, [], [])


def test_a_row_deadline_shorter_than_the_tests_own_limit_is_refused():
    settings = {"correctness": "code", "verifiers": [{"kind": "code", "total_seconds": 10}]}
    with pytest.raises(ValidationError, match="without a reward"):
        TypeAdapter(ScoringConfig).validate_python({**settings, "row_deadline_seconds": 10.5})
    assert TypeAdapter(ScoringConfig).validate_python({**settings, "row_deadline_seconds": 11})
    with pytest.raises(ValidationError, match="total_seconds"):
        CodeVerifier(kind="code", timeout_seconds=5, total_seconds=4)


class TestWithoutASandbox:
    """The weaker isolation; an interpreter that the user nobody can run stands in for ours where that one is root's."""

    @pytest.fixture(autouse=True)
    def readable_interpreter(self, monkeypatch):
        if os.geteuid() != 0:
            return
        system = Path("/usr/bin/python3")
        said = subprocess.run(
            [system, "-c", "import sys; print(sys.version_info >= (3, 11))"], capture_output=True, text=True
        )
        if said.stdout.strip() != "True":
            pytest.skip("no interpreter that the user nobody can run")
        monkeypatch.setattr(isolation, "interpreter", lambda: os.path.realpath(system))

    CONFIG = CodeVerifier(kind="code", isolation="process", timeout_seconds=1.0, total_seconds=2.0)

    def test_programs_are_scored_and_every_reason_says_that_it_is_weaker(self):
        right = score(ADD, "def f(x): return x + 1", self.CONFIG)
        wrong = score(ADD, "def f(x): return x", self.CONFIG)
        assert (right.reward, wrong.reward) == (1.0, 0.0), (right, wrong)
        assert right.reason == "without a sandbox"
        assert wrong.reason.startswith("without a sandbox: test 1 of 3")

    @pytest.mark.parametrize(
        ("program", "reward"),
        [
            ("while True: pass", 0.0),
            ("import os\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        import time; time.sleep(60)\nwhile True: pass", 0.0),
            ("import os\nif os.fork() == 0:\n    os.setsid()\n    import time; time.sleep(60)\nprint('done')", 1.0),
            ("import os\nos._exit(0)", 0.0),
        ],
    )  # fmt: skip
    def test_what_a_program_starts_ends_with_it(self, program, reward):
        before, started = sandboxed_processes(), time.monotonic()
        found = score(DONE, program, self.CONFIG)
        assert (found.status, found.reward) == ("scored", reward), found.reason
        assert time.monotonic() - started < 3.0
        assert nothing_new(before, 0.5)

    def test_it_ends_with_a_killed_parent(self):
        before = sandboxed_processes()
        script = (
            "from tasks.verifiers import code, isolation\n"
            f"isolation.interpreter = lambda: {isolation.interpreter()!r}\n"
            "from tasks.verifiers.call_kinds import CodeVerifier\n"
            "from tasks.verifiers.verdict import ScoreItem\n"
            "config = CodeVerifier(kind='code', isolation='process', timeout_seconds=60, total_seconds=60)\n"
            "print(code.verify(config, ScoreItem('', '{\"tests\": [\"f()\"]}', 'import time; time.sleep(60)', {})))\n"
        )
        root = Path(__file__).parents[4]
        parent = subprocess.Popen([sys.executable, "-c", script], cwd=root, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 20
        while not sandboxed_processes_of_all() - before and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.5)
        assert sandboxed_processes_of_all() - before
        parent.kill()
        parent.wait()
        assert nothing_new(before)


def sandboxed_processes_of_all():
    return {
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and b"verifiers.sandboxed" in (entry / "cmdline").read_bytes()
    }


@pytest.mark.skipif(os.geteuid() != 0 or os.access("/root", os.X_OK, effective_ids=False) is False, reason="root only")
def test_root_never_runs_a_program_as_root_without_a_sandbox():
    config = CodeVerifier(kind="code", isolation="process")
    found = score(DONE, "import os\nprint('done' if os.getuid() else 'root')", config)
    assert found.reward == 1.0 or (found.status == "error" and "do not run as root" in found.reason)


def test_the_filter_lets_pass_what_it_does_not_know_on_another_machine(monkeypatch):
    from tasks.verifiers import seccomp

    monkeypatch.setattr(seccomp.platform, "machine", lambda: "riscv64")
    assert seccomp.call_filter() == b""


def test_limits_are_named_as_the_kernel_names_them():
    for name in Limits(1, 1).of_resources():
        assert hasattr(resource, name)
    assert trials.MAX_OUTPUT_BYTES == 1 << 20
