"""Verifier processes: order, deadlines, deaths, and nothing left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tasks.verifiers.answer_kinds import ExactVerifier, MathVerifier
from tasks.verifiers.pool import VerifierPool
from tasks.verifiers.table import VERIFIERS
from tasks.verifiers.text_kinds import ArithmeticStepsVerifier, FormatVerifier
from tasks.verifiers.verdict import ScoreItem

ROOT = Path(__file__).parents[4]
EXACT, MATH = ExactVerifier(kind="exact"), MathVerifier(kind="math")


def silent(done, total):
    return None


def item(completion, answer="5"):
    return ScoreItem(prompt="", answer=answer, completion=completion, metadata={})


def alive(pid):
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False


def gone(pids, seconds=5.0):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not any(alive(pid) for pid in pids):
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("workers", [1, 3])
def test_verdicts_keep_the_order_of_rows_and_of_verifiers(workers):
    items = [item(f"<answer>{index % 3}</answer>", answer="1") for index in range(50)]
    seen = []
    with VerifierPool([EXACT, FormatVerifier(kind="format", tags=("answer",))], workers, 5.0) as pool:
        verdicts = pool.score(items, lambda done, total: seen.append((done, total)))
        assert pool.score([], silent) == []
    assert [row[0].reward for row in verdicts] == [float(index % 3 == 1) for index in range(50)]
    assert {row[1].reward for row in verdicts} == {1.0}
    assert seen[-1] == (50, 50)


def test_the_steps_of_a_verdict_come_back_from_the_process_as_they_were_given():
    steps = ArithmeticStepsVerifier(kind="arithmetic_steps")
    completions = ["<think>5+8=14</think><answer>13</answer>", "", "다,👍"]
    items = [ScoreItem("5+8=", "13", completion, {}) for completion in completions]
    with VerifierPool([EXACT, steps], 1, 5.0) as pool:
        verdicts = pool.score(items, silent)
    assert verdicts[0][1].steps == ((21, 0.0), (40, 1.0))
    assert [row[1] for row in verdicts] == [VERIFIERS[type(steps)](steps, each) for each in items]
    assert [row[0].steps for row in verdicts] == [(), (), ()]
    assert hash(verdicts[0][1])


def test_mathematics_is_verified_off_the_main_thread_and_leaves_the_callers_alarm_alone():
    signal.alarm(30)
    try:
        with VerifierPool([MATH], 1, 10.0) as pool:
            verdicts = pool.score([item("\\boxed{5}"), item("\\boxed{\\sqrt{25}}"), item("\\boxed{43}")], silent)
        assert [row[0].reward for row in verdicts] == [1.0, 1.0, 0.0]
        assert 20 <= signal.alarm(0) <= 30
    finally:
        signal.alarm(0)


@pytest.fixture
def stuck(monkeypatch, tmp_path):
    """Children whose exact verifier sleeps, dies or swallows memory when the completion says so."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, time, os\n"
        "class Late:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name != 'tasks.verifiers.table': return None\n"
        "        sys.meta_path.remove(self)\n"
        "        from tasks.verifiers import exact\n"
        "        plain = exact.verify\n"
        "        def verify(config, item):\n"
        "            if 'sleep' in item.completion: time.sleep(60)\n"
        "            if 'product' in item.completion: 10 ** 10 ** 9\n"
        "            if 'die' in item.completion: os._exit(3)\n"
        "            if 'raise' in item.completion: raise KeyError('odd')\n"
        "            if 'memory' in item.completion: bytearray(8 << 30)\n"
        "            if 'print' in item.completion: print('{\"reward\": 1.0}')\n"
        "            return plain(config, item)\n"
        "        exact.verify = verify\n"
        "sys.meta_path.insert(0, Late())\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.mark.usefixtures("stuck")
class TestTrouble:
    def score(self, *completions, deadline=1.0):
        with VerifierPool([EXACT], 1, deadline) as pool:
            before = pool.pids()
            started = time.monotonic()
            verdicts = [row[0] for row in pool.score([item(each) for each in completions], silent)]
            seconds = time.monotonic() - started
            pids = {*before, *pool.pids()}
        assert gone(pids)
        return verdicts, seconds

    @pytest.mark.parametrize("trouble", ["sleep", "product"])
    def test_a_row_past_its_deadline_times_out_and_the_next_one_is_scored(self, trouble):
        verdicts, seconds = self.score(trouble, "<answer>5</answer>")
        assert [each.status for each in verdicts] == ["timeout", "scored"]
        assert [each.reward for each in verdicts] == [None, 1.0]
        assert 1.0 <= seconds < 30

    def test_a_row_that_ends_its_process_is_an_error_and_is_not_tried_again(self):
        verdicts, _ = self.score("die", "<answer>5</answer>", "die")
        assert [each.status for each in verdicts] == ["error", "scored", "error"]
        assert "status 3" in verdicts[0].reason

    def test_what_a_verifier_raises_is_the_rows_error_and_never_a_zero(self):
        verdicts, _ = self.score("raise", "<answer>5</answer>")
        assert (verdicts[0].status, verdicts[0].reward) == ("error", None)
        assert "odd" in verdicts[0].reason
        assert verdicts[1].reward == 1.0

    def test_memory_is_bounded(self):
        verdicts, _ = self.score("memory", "<answer>5</answer>")
        assert (verdicts[0].status, "MemoryError" in verdicts[0].reason) == ("error", True)
        assert verdicts[1].reward == 1.0

    def test_what_a_verifier_prints_is_no_answer(self):
        verdicts, _ = self.score("print")
        assert verdicts[0].reward == 0.0


def test_children_end_with_a_parent_that_is_killed():
    script = (
        "import sys, time\n"
        "from tasks.verifiers.answer_kinds import ExactVerifier\n"
        "from tasks.verifiers.pool import VerifierPool\n"
        "pool = VerifierPool([ExactVerifier(kind='exact')], 2, 5.0)\n"
        "print(*pool.pids(), flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) == 2
    assert all(alive(pid) for pid in pids)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    assert gone(pids)


def test_a_closed_pool_refuses_and_reaps():
    pool = VerifierPool([EXACT], 2, 5.0)
    pids = pool.pids()
    pool.close()
    assert gone(pids)
    with pytest.raises(ValueError, match="closed"):
        pool.score([item("x")], silent)
