"""Chain arithmetic: sums and differences of single digits, the task that a tiny policy can learn on the spot."""

import random
import re

_PROBLEM = re.compile(r"[1-9](?:[+-][1-9])+=")
_TERM = re.compile(r"[+-]?[1-9]")


def make_problem(rng: random.Random, min_terms: int, max_terms: int) -> tuple[str, str]:
    """A problem and its answer, for example ("5+8-1-5=", "7").

    Args:
        rng: the only source of chance; the same state gives the same problem.
        min_terms: fewest digits in the chain, at least 2.
        max_terms: most digits in the chain; the number is uniform over [min_terms, max_terms].

    Returns:
        The text, digits 1 to 9 joined by + and - and closed by =, and the answer in decimal (negative ones too).

    Raises:
        ValueError: fewer than two terms, or bounds in the wrong order.
    """
    if not 2 <= min_terms <= max_terms:
        raise ValueError(f"terms must satisfy 2 <= min_terms <= max_terms, not {min_terms} and {max_terms}")
    num_terms = rng.randint(min_terms, max_terms)
    text = str(rng.randint(1, 9))
    for _ in range(num_terms - 1):
        text += rng.choice("+-") + str(rng.randint(1, 9))
    text += "="
    return text, str(sum(terms_of(text)))


def count_problems(min_terms: int, max_terms: int) -> int:
    """How many different problems there are: the sum of 9^n * 2^(n - 1) over the numbers of terms n."""
    return sum(9**terms * 2 ** (terms - 1) for terms in range(min_terms, max_terms + 1))


def terms_of(text: str) -> list[int]:
    """The signed terms of a problem: [5, 8, -1, -5] for "5+8-1-5=".

    Raises:
        ValueError: the text is not a problem as ``make_problem`` writes them.
    """
    if not _PROBLEM.fullmatch(text):
        raise ValueError(f"{text!r} is not a chain of single digits such as '5+8-1-5='")
    return [int(term) for term in _TERM.findall(text)]
