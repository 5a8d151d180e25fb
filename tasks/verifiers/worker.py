"""A verifier process: rows in as JSON lines, verdicts out as JSON lines, until its parent is gone."""

import ctypes
import math
import os
import resource
import signal
import sys
from collections.abc import Sequence
from typing import Any

from tasks.verifiers import protocol
from tasks.verifiers.verdict import CannotStart, ScoreItem, Verdict, failed

MEMORY_LIMIT_BYTES = 4 << 30
"""Address space: an expression that grows without end gets a MemoryError here, not the machine's memory."""
MAX_REASON_CHARACTERS = 300

WARM_UP = ScoreItem(prompt="", answer="x+1", completion="\\boxed{1+x}", metadata={})


def verdicts_of(config: Any, items: Sequence[ScoreItem]) -> list[Verdict]:
    """The verdicts of one verifier; whatever it raises on a row is that row's error, never a 0 and never the end.

    A row's reward that is not a finite number is an error too: one of them would spoil a whole group's mean.
    """
    from tasks.verifiers import table  # costs seconds; what it lacks is answered for at the start

    try:
        if config.compares_groups:
            verdicts = list(table.GROUP_VERIFIERS[type(config)](config, items))
        else:
            verdicts = [table.VERIFIERS[type(config)](config, item) for item in items]
    except (Exception, SystemExit) as error:  # noqa: BLE001  # a library may raise anything on model text
        verdicts = [failed(described(error))] * len(items)
    return [_finite(each) for each in verdicts]


def described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:MAX_REASON_CHARACTERS]


def _finite(verdict: Verdict) -> Verdict:
    if verdict.reward is None or math.isfinite(verdict.reward):
        return verdict
    return failed(f"the reward is {verdict.reward}", verdict.counts)


def start_fault(configs: Sequence[Any]) -> str:
    """Import what the verifiers need; what is missing for them to start at all, ``protocol.READY`` when nothing is.

    A verifier without a preparation of its own is tried once: a library that is not there is a fault of the start, not one
    of every row.
    """
    try:
        from tasks.verifiers import table
    except Exception as error:  # noqa: BLE001  # whatever it is, nothing can be scored
        return described(error)
    for config in configs:
        try:
            if prepare := table.PREPARATIONS.get(type(config)):
                prepare(config)
            else:
                table.VERIFIERS[type(config)](config, WARM_UP)
        except ImportError as error:
            return f"verifier {config.name!r}: {described(error)}"
        except CannotStart as error:
            return f"verifier {config.name!r}: {error}"
        except Exception:  # noqa: BLE001, S112  # about the row that it was tried on
            continue
    return protocol.READY


def die_with_parent() -> None:
    """Ask the kernel for SIGKILL when the parent ends: a watching thread would wait behind one long big-integer product."""
    parent = os.getppid()
    pr_set_pdeathsig = 1
    ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the request
        os.kill(os.getpid(), signal.SIGKILL)


def silence() -> None:
    """Nothing that is printed from now on goes anywhere; until now it went where the parent looks after a failed start."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)


def main() -> None:
    """Read the verifiers' settings, import what they need, say "ready", then answer requests until there are no more."""
    die_with_parent()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Requests and answers have descriptors of their own: what a verifier prints or reads can not break a line.
    requests, answers = os.fdopen(os.dup(0), "rb", 1 << 16), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    opening = protocol.read_opening(requests.readline())
    if os.path.isdir(opening.folder):
        os.chdir(opening.folder)
        sys.path.append(opening.folder)  # last: nothing there hides our modules or a library
    fault = start_fault(opening.verifiers)
    answers.write(protocol.start_line(fault))
    answers.flush()
    if fault != protocol.READY:
        return
    silence()
    for line in requests:
        verifiers, items = protocol.read_request(line)
        for position in verifiers:
            answers.write(protocol.answer_line(verdicts_of(opening.verifiers[position], items)))
            answers.flush()


if __name__ == "__main__":
    main()
