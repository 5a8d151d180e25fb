"""A verifier process: rows in as JSON lines, verdicts out as JSON lines, until its parent is gone."""

import ctypes
import json
import os
import resource
import signal
import sys
from typing import Any

from pydantic import TypeAdapter

from tasks.verifiers.kinds import VerifierConfig
from tasks.verifiers.table import VERIFIERS
from tasks.verifiers.verdict import ScoreItem, Verdict, failed, to_json

MEMORY_LIMIT_BYTES = 4 << 30
"""Address space: an expression that grows without end gets a MemoryError here, not the machine's memory."""

WARM_UP = ScoreItem(prompt="", answer="x+1", completion="\\boxed{1+x}", metadata={})


def verdict_of(config: Any, item: ScoreItem) -> Verdict:
    """The verdict of one verifier; whatever it raises on a row is that row's error, never a 0 and never the end."""
    try:
        return VERIFIERS[type(config)](config, item)
    except (Exception, RecursionError, MemoryError) as error:  # noqa: BLE001  # a library may raise anything on model text
        return failed(f"{type(error).__name__}: {error}"[:300])


def die_with_parent() -> None:
    """Ask the kernel for SIGKILL when the parent ends: a watching thread would wait behind one long big-integer product."""
    parent = os.getppid()
    pr_set_pdeathsig = 1
    ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the request
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Read the verifiers' settings, import what they need, say "ready", then answer one line per request.

    A request names the verifier by its position and the row; the answer is that verifier's verdict.
    """
    die_with_parent()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Answers go out on the real stdout; whatever a library prints goes to stderr and can not break a line.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    configs = TypeAdapter(list[VerifierConfig]).validate_json(sys.stdin.readline())
    for config in configs:
        verdict_of(config, WARM_UP)
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        verdict = verdict_of(configs[request["verifier"]], ScoreItem(**request["item"]))
        print(to_json(verdict), file=answers, flush=True)


if __name__ == "__main__":
    main()
