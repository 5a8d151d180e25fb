"""Verifier processes: order, deadlines, deaths, and nothing left behind."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tasks.verifiers import lane
from tasks.verifiers.answer_kinds import ExactVerifier, MathVerifier
from tasks.verifiers.pool import VerifierPool
from tasks.verifiers.table import VERIFIERS
from tasks.verifiers.text_kinds import ArithmeticStepsVerifier, FormatVerifier
from tasks.verifiers.verdict import CannotStart, ScoreItem

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
        "            if 'linger' in item.completion: time.sleep(0.6)\n"
        "            if 'nan' in item.completion: return type(plain(config, item))(float('nan'), 'scored')\n"
        "            if 'shot' in item.completion:\n"
        "                with open(os.environ['SEEN'], 'a') as seen: seen.write('shot ')\n"
        "                if open(os.environ['SEEN']).read().count('shot') <= int(item.completion[-1]): os.kill(os.getpid(), 9)\n"
        "            if 'deaf' in item.completion: os.kill(os.getpid(), 19)\n"
        "            if 'child' in item.completion: os.system('sleep 60 & echo noise')\n"
        "            if 'log' in item.completion: open(os.environ['SEEN'], 'a').write(item.completion + chr(10))\n"
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

    @pytest.mark.parametrize(("times", "status", "tries"), [(1, "scored", 2), (2, "error", 2)])
    def test_a_row_whose_process_is_killed_from_outside_is_tried_once_more(
        self, times, status, tries, tmp_path, monkeypatch
    ):
        monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
        verdicts, _ = self.score(f"shot <answer>5</answer> {times}", "<answer>5</answer>")
        assert [each.status for each in verdicts] == [status, "scored"]
        assert (tmp_path / "seen").read_text().count("shot") == tries

    def test_what_a_verifier_raises_is_the_rows_error_and_never_a_zero(self):
        verdicts, _ = self.score("raise", "<answer>5</answer>")
        assert (verdicts[0].status, verdicts[0].reward) == ("error", None)
        assert "odd" in verdicts[0].reason
        assert verdicts[1].reward == 1.0

    def test_memory_is_bounded(self):
        verdicts, _ = self.score("memory", "<answer>5</answer>")
        assert (verdicts[0].status, "MemoryError" in verdicts[0].reason) == ("error", True)
        assert verdicts[1].reward == 1.0

    def test_only_the_row_that_was_worked_on_is_to_blame_and_every_other_one_is_scored_once(
        self, tmp_path, monkeypatch
    ):
        monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
        completions = [f"log {row} <answer>{row % 3}</answer>" for row in range(200)]
        for row, trouble in {3: "sleep", 4: "die", 90: "product", 91: "deaf", 150: "raise", 199: "die"}.items():
            completions[row] = trouble
        items = [item(each, answer="1") for each in completions]
        with VerifierPool([EXACT, FormatVerifier(kind="format", tags=("answer",))], 2, 1.0) as pool:
            verdicts = pool.score(items, silent)
            num_replaced, pids = pool.num_replaced, pool.pids()
        assert gone(pids)
        expected = {3: "timeout", 4: "error", 90: "timeout", 91: "timeout", 150: "error", 199: "error"}
        assert {row: each[0].status for row, each in enumerate(verdicts) if each[0].status != "scored"} == expected
        assert all(each[0].reward == (row % 3 == 1) for row, each in enumerate(verdicts) if row not in expected)
        assert {each[1].status for each in verdicts} == {"scored"}  # the verifier after the one that was lost
        assert num_replaced == 5
        seen = (tmp_path / "seen").read_text().splitlines()
        assert sorted(seen) == sorted(completions[row] for row in range(200) if row not in expected)

    def test_the_clock_is_the_rows_own_however_long_the_ones_before_it_took(self):
        verdicts, seconds = self.score(*["linger"] * 4)
        assert [each.status for each in verdicts] == ["scored"] * 4
        assert seconds >= 2.4  # more than twice the deadline, all of it sent ahead

    def test_a_verifiers_own_deadline_goes_before_that_of_the_scoring(self):
        patient = ExactVerifier(kind="exact", name="patient", deadline_seconds=5)
        hasty = ExactVerifier(kind="exact", name="hasty", deadline_seconds=0.3)
        with VerifierPool([hasty, patient], 1, 0.1) as pool:
            ((first, second),) = pool.score([item("linger")], silent)
        assert (first.status, first.reason) == ("timeout", "no verdict within 0.3 s")
        assert second.status == "scored"

    def test_a_reward_that_is_not_a_number_is_an_error(self):
        verdicts, _ = self.score("nan", "<answer>5</answer>")
        assert [(each.status, each.reward) for each in verdicts] == [("error", None), ("scored", 1.0)]
        assert verdicts[0].reason == "the reward is nan"

    def test_rows_larger_than_a_pipe_go_through_while_a_row_is_stuck(self):
        long = "x" * 3_000_000 + "<answer>5</answer>"
        verdicts, _ = self.score("<answer>5</answer>", "sleep", *[long] * 5)
        assert [each.status for each in verdicts] == ["scored", "timeout", *["scored"] * 5]
        assert {each.reward for each in verdicts[2:]} == {1.0}

    def test_what_a_row_started_ends_with_its_process(self):
        verdicts, _ = self.score("child", "<answer>5</answer>")
        assert [each.status for each in verdicts] == ["scored", "scored"]
        running = subprocess.run(["ps", "-eo", "ppid,args"], capture_output=True, text=True, check=True).stdout
        assert not [
            line for line in running.splitlines() if line.split()[1:] == ["sleep", "60"] and line.split()[0] == "1"
        ]

    def test_a_stage_stops_as_soon_as_the_share_can_not_be_kept(self):
        items = [item("sleep")] * 3 + [item("<answer>5</answer>")] * 40
        with VerifierPool([EXACT], 1, 0.2, max_failed_share=0.05) as pool:
            started = time.monotonic()
            with pytest.raises(
                ValueError, match=r"exact: 3 of 43 rows failed.*0\.05.*deadline_seconds.*no verdict within"
            ):
                pool.score(items, silent)
            assert time.monotonic() - started < 30
            assert [row[0].reward for row in pool.score(items[3:], silent)] == [1.0] * 40  # no answer from before
            with pytest.raises(ValueError, match="3 of 43"):
                pool.score(items[::-1], silent)

    def test_a_source_that_fails_from_the_first_row_on_is_given_up_long_before_its_share(self):
        done = []
        said = r"exact: 64 of 5000 rows failed.*KeyError: 'odd'"
        with VerifierPool([EXACT], 1, 5.0, max_failed_share=0.5) as pool, pytest.raises(ValueError, match=said):
            pool.score([item("raise")] * 5000, lambda *now: done.append(now))
        assert len(done) < 10

    def test_with_a_share_of_one_every_row_may_fail(self):
        with VerifierPool([EXACT], 1, 5.0, max_failed_share=1.0) as pool:
            assert {row[0].status for row in pool.score([item("raise")] * 100, silent)} == {"error"}

    def test_a_process_that_ended_between_two_stages_is_replaced_and_no_row_is_to_blame(self):
        with VerifierPool([EXACT], 1, 5.0) as pool:
            (pid,) = pool.pids()
            os.kill(pid, signal.SIGKILL)
            assert gone([pid])
            assert [row[0].reward for row in pool.score([item("<answer>5</answer>")] * 3, silent)] == [1.0] * 3
            assert pool.num_replaced == 0

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


def test_towers_that_never_finish_score_zero_and_the_right_answer_after_them_is_found():
    towers = ["\\boxed{10^{10^{10}}}", "\\boxed{9^{9^{9^9}}}", "\\boxed{(10!)!}", "\\boxed{5}"]
    with VerifierPool([MATH], 1, 5.0) as pool:
        started = time.monotonic()
        verdicts = pool.score([item(each) for each in towers], silent)
        assert time.monotonic() - started < 20
        pids = pool.pids()
    assert [row[0].reward for row in verdicts] == [0.0, 0.0, 0.0, 1.0]
    assert gone(pids)


@pytest.mark.parametrize(
    ("hook", "said"),
    [
        ("raise ModuleNotFoundError('no module named sympy')", "ModuleNotFoundError: no module named sympy"),
        ("import os; os.write(2, b'bus error\\n'); os._exit(7)", "can not start: .* ended with status 7: bus error"),
    ],
)
def test_a_process_that_can_not_start_stops_the_scoring_with_its_own_words(monkeypatch, tmp_path, hook, said):
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Fails:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == 'tasks.verifiers.table': {hook}\n"
        "sys.meta_path.insert(0, Fails())\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    started = time.monotonic()
    with pytest.raises(CannotStart, match=said):
        VerifierPool([EXACT], 2, 5.0)
    assert time.monotonic() - started < 30


def test_a_missing_library_of_one_verifier_is_named_at_the_start(monkeypatch, tmp_path):
    (tmp_path / "math_verify.py").write_text("raise ImportError('math_verify is broken here')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(CannotStart, match="verifier 'math': ImportError: math_verify is broken here"):
        VerifierPool([EXACT, MATH], 1, 5.0)


def test_a_process_that_is_never_ready_is_given_up(monkeypatch, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, time\nif 'tasks.verifiers.worker' in sys.orig_argv: time.sleep(60)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(lane, "START_SECONDS", 0.5)
    started = time.monotonic()
    with pytest.raises(CannotStart, match=r"no start within 0\.5 s"):
        VerifierPool([EXACT], 1, 5.0)
    assert time.monotonic() - started < 10


def test_a_pool_outlives_the_thread_that_made_it():
    with ThreadPoolExecutor(1) as threads:
        pool = threads.submit(VerifierPool, [EXACT], 1, 5.0).result()
    with pool:
        time.sleep(0.2)
        pids = pool.pids()
        assert all(alive(pid) for pid in pids)
        assert pool.score([item("<answer>5</answer>")], silent)[0][0].reward == 1.0
        assert pool.pids() == pids
