"""Demonstrations for the warm start: arithmetic with its working shown, or the bare answer."""

import random
from collections.abc import Callable

from tasks.policy.config import WarmStartConfig
from tasks.values.arithmetic import make_problem, steps_of

Demonstration = tuple[str, str]  # prompt, completion


def worked(problem: str, rng: random.Random, slip_share: float) -> Demonstration:
    """Every operation written out: "<think>5+8=13,13-1=12</think><answer>12</answer>".

    A slip makes a shown result one too high or too low; what follows goes on from the wrong result, as a pupil would.
    """
    lines = []
    value = 0
    for index, (first, sign, term) in enumerate(steps_of(problem)):
        left = first if index == 0 else value
        value = left + term if sign == "+" else left - term
        if rng.random() < slip_share:
            value += rng.choice((-1, 1))
        lines.append(f"{left}{sign}{term}={value}")
    return problem, f"<think>{','.join(lines)}</think><answer>{value}</answer>"


def bare(problem: str, answer: int) -> Demonstration:
    """The answer alone."""
    return problem, f"<answer>{answer}</answer>"


def stream(config: WarmStartConfig, seed: int) -> Callable[[float], Demonstration]:
    """A function that gives the next demonstration; its argument is the share of bare answers at that moment."""
    rng = random.Random(seed)  # noqa: S311  # training data, not a secret

    def following(bare_share: float) -> Demonstration:
        problem, answer = make_problem(rng, config.min_terms, config.max_terms)
        return bare(problem, answer) if rng.random() < bare_share else worked(problem, rng, config.slip_share)

    return following
