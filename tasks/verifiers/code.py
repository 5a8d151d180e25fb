"""Programs against tests."""

from tasks.verifiers.call_kinds import CodeVerifier
from tasks.verifiers.isolation import SandboxError
from tasks.verifiers.programs import NoProgram, program_of
from tasks.verifiers.suites import UnreadableSuite, read_suite
from tasks.verifiers.trials import Trial
from tasks.verifiers.verdict import ScoreItem, Verdict, failed, scored, unscored

MARKS = {"sandbox": "", "process": "without a sandbox: "}
"""What a verdict's reason begins with, so that a weaker isolation shows on every row."""


def verify(config: CodeVerifier, item: ScoreItem) -> Verdict:
    """1.0 when the completion's Python program passes every test of the gold answer, else 0.0; or the share that passes.

    The tests are decided in a process that the program can not reach, on plain values of exact types: an object that
    equals everything, an early exit and a printed "passed" are worth 0.0. A program that is too slow, too large or
    printing without end has failed, which is 0.0 too; a sandbox that fails is an error.

    Source: HumanEval, arXiv:2107.03374, section 2.2 (a program is right when it passes the tests); MBPP, arXiv:2108.07732;
    cases of standard input and output as in APPS, arXiv:2105.09938, section 3.
    """
    mark = MARKS[config.isolation]
    try:
        suite = read_suite(item.answer)
        program = program_of(item.completion, config.reasoning_end, suite)
        outcome = Trial(program, suite, config).run()
    except UnreadableSuite as error:
        return unscored(str(error))
    except NoProgram as error:
        return scored(0.0, str(error))
    except SandboxError as error:
        return failed(str(error))
    share = outcome.num_passed / suite.num_tests
    reward = share if config.scoring == "fraction" else float(outcome.num_passed == suite.num_tests)
    return scored(reward, f"{mark}{outcome.reason}".strip(": "))
