"""Run a program against its suite, and count the tests that pass where the program can not reach."""

import json
import math
import time
from dataclasses import dataclass
from typing import Any

from tasks.verifiers.call_kinds import CodeVerifier
from tasks.verifiers.isolation import Limits
from tasks.verifiers.program_output import difference
from tasks.verifiers.sandbox import Ended, OutOfTime, OutputTooLong, Sandbox
from tasks.verifiers.sandboxed import candidate, stdin_program, tests_runner
from tasks.verifiers.suites import Suite, UnreadableSuite

MAX_OUTPUT_BYTES = 1 << 20
MAX_MESSAGE_BYTES = 8 << 20
RUNNER_MEMORY_BYTES = 1 << 30


@dataclass(frozen=True)
class Outcome:
    """How many tests passed, and why the first did not that failed."""

    num_passed: int
    reason: str


class _StopTrial(Exception):
    """The tests that have not run yet need not run."""


class Trial:
    """One program and one suite.

    The program runs in a sandbox of its own. Tests run in another one, which asks the first for the values of the calls
    and compares them itself; nothing of the program's ever runs there. This process only passes lines on and counts.
    """

    def __init__(self, program: str, suite: Suite, config: CodeVerifier) -> None:
        self._program = program
        self._suite = suite
        self._config = config
        self._limits = Limits(config.memory_mib << 20, math.ceil(config.total_seconds) + 1)
        self._end = math.inf
        self._num_passed = 0
        self._reason = ""

    def run(self) -> Outcome:
        """Run the suite; when all must pass, up to the first failure.

        Raises:
            SandboxError: a sandbox failed.
            UnreadableSuite: the tests themselves are at fault.
        """
        try:
            if self._suite.cases:
                self._run_cases()
            else:
                self._run_tests()
        except _StopTrial:
            pass
        return Outcome(self._num_passed, self._reason)

    def _run_cases(self) -> None:
        for number, case in enumerate(self._suite.cases):
            brief = {"program": self._program}
            stdin = case.stdin.encode("utf-8", "replace")
            with Sandbox(stdin_program, brief, self._limits, self._config.isolation, stdin) as sandbox:
                sandbox.wait_ready()
                try:
                    printed, status = sandbox.read_to_end(self._deadline(), MAX_OUTPUT_BYTES)
                except (OutOfTime, OutputTooLong) as error:
                    self._count(number, str(error))
                    continue
            self._count(
                number, difference(case.stdout, printed) or (f"it ended with status {status}" if status else "")
            )

    def _run_tests(self) -> None:
        first = 0
        while first < len(self._suite.tests):
            first = self._run_tests_from(first)

    def _run_tests_from(self, first: int) -> int:
        """Run tests until one can not be brought to its end; gives the number of the next test."""
        suite, isolation = self._suite, self._config.isolation
        tests_brief = {
            "tests": suite.tests,
            "first": first,
            "setup": suite.setup,
            "prefix": suite.prefix_code,
            "entry_points": suite.entry_points,
        }
        program_brief = {"program": self._program, "setup": suite.setup}
        tests_limits = Limits(RUNNER_MEMORY_BYTES, self._limits.cpu_seconds)
        with (
            Sandbox(tests_runner, tests_brief, tests_limits, isolation) as tests,
            Sandbox(candidate, program_brief, self._limits, isolation) as program,
        ):
            tests.wait_ready()
            program.wait_ready()
            deadline = self._deadline()
            number = first
            try:
                self._load(program, deadline)
                while number < len(suite.tests):
                    self._count_result(number, _next_result(tests, program, deadline))
                    number += 1
                    deadline = self._deadline()
                if first == 0 and _next_result(tests, program, deadline)["num_requests"] == 0:
                    raise UnreadableSuite("the tests never call the program, so every program would pass")
            except (OutOfTime, OutputTooLong, Ended) as error:
                if number < len(suite.tests):
                    self._count(number, str(error))
            return number + 1

    def _load(self, program: Sandbox, deadline: float) -> None:
        """Wait until the program has run through; one that does not get there passes no test."""
        try:
            first = json.loads(program.read_line(deadline, MAX_MESSAGE_BYTES))
            reason = f"{first['raised']}: {first['message']}" if "raised" in first else ""
        except (ValueError, TypeError, KeyError, RecursionError):  # it writes where its replies go
            reason = "not a reply"
        except (OutOfTime, OutputTooLong, Ended) as error:
            reason = str(error)
        if reason:
            self._stop(f"the program does not load: {reason}"[:300])

    def _count_result(self, number: int, result: dict[str, Any]) -> None:
        if "untestable" in result:
            raise UnreadableSuite(f"test {number + 1} can not be run: {result['untestable']}")
        if "unprepared" in result:
            self._stop(f"the program fails the set-up code: {result['unprepared']}")
        self._count(number, "" if result["passed"] else result["reason"] or "it failed")

    def _count(self, number: int, reason: str) -> None:
        """A test has passed, when there is no reason why not."""
        if not reason:
            self._num_passed += 1
            return
        self._reason = self._reason or f"test {number + 1} of {self._suite.num_tests}: {reason}"
        if self._config.scoring == "all":
            raise _StopTrial

    def _stop(self, reason: str) -> None:
        self._reason = self._reason or reason
        raise _StopTrial

    def _deadline(self) -> float:
        """Of a test that starts now; the first one also starts the time of them all."""
        now = time.monotonic()
        if self._end == math.inf:
            self._end = now + self._config.total_seconds
        if now >= self._end:
            self._stop(f"the tests take longer than {self._config.total_seconds:g} s together")
        return min(now + self._config.timeout_seconds, self._end)


def _next_result(tests: Sandbox, program: Sandbox, deadline: float) -> dict[str, Any]:
    """Pass requests and replies on until the tests report a result."""
    while True:
        line = tests.read_line(deadline, MAX_MESSAGE_BYTES)
        if not line.startswith(b"?"):
            result: dict[str, Any] = json.loads(line)
            return result
        program.write_line(line[1:], deadline)
        tests.write_line(program.read_line(deadline, MAX_MESSAGE_BYTES), deadline)
