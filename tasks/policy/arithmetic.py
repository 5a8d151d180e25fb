"""Demonstrations of chain arithmetic: a problem and what a good (or terse) completion of it looks like."""

import random
from dataclasses import dataclass

from tasks.curriculum.keys import may_be_demonstrated, prompt_key
from tasks.values.arithmetic import make_problem, terms_of


@dataclass(frozen=True)
class Demonstration:
    """One supervised example; ``num_slips`` of its shown steps are off by one."""

    prompt: str
    completion: str
    is_bare: bool
    num_slips: int


def make_demonstration(
    rng: random.Random, *, min_terms: int, max_terms: int, bare_share: float, slip_share: float
) -> Demonstration:
    """A demonstration of a random problem that can not be held out.

    Args:
        rng: the only source of chance.
        min_terms: fewest digits of the problem.
        max_terms: most digits of the problem.
        bare_share: probability of an answer without working.
        slip_share: probability, per shown step, of a result that is off by one.

    Raises:
        ValueError: bounds out of order.
    """
    prompt, answer = make_problem(rng, min_terms, max_terms)
    while not may_be_demonstrated(prompt_key(prompt)):
        prompt, answer = make_problem(rng, min_terms, max_terms)
    if rng.random() < bare_share:
        return Demonstration(prompt, bare(answer), True, 0)
    completion, num_slips = worked(prompt, rng, slip_share)
    return Demonstration(prompt, completion, False, num_slips)


def bare(answer: str) -> str:
    """The answer alone: "<answer>7</answer>"."""
    return f"<answer>{answer}</answer>"


def worked(prompt: str, rng: random.Random, slip_share: float) -> tuple[str, int]:
    """The answer after its working, and the number of slips made on the way.

    "5+8-1-5=" gives "<think>5+8=13,13-1=12,12-5=7</think><answer>7</answer>". A slip moves one step's result by one, up
    or down; the later steps and the answer follow from the slipped result, as in an honest mistake.

    Args:
        prompt: a problem as ``make_problem`` writes it.
        rng: decides the slips.
        slip_share: probability of a slip in each step.
    """
    total, *rest = terms_of(prompt)
    steps = []
    num_slips = 0
    for term in rest:
        result = total + term
        if rng.random() < slip_share:
            result += rng.choice((-1, 1))
            num_slips += 1
        steps.append(f"{total}{term:+d}={result}")
        total = result
    return f"<think>{','.join(steps)}</think>{bare(str(total))}", num_slips
