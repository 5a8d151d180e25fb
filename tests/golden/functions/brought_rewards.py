"""Reward functions as a user of TRL brings them."""

import re

import numpy as np

PATTERN = re.compile(r"<think>.*?</think>\s*<answer>.*?</answer>", re.DOTALL)


def exact_match(prompts, completions, answer, **kwargs):
    return [float(each == gold) for each, gold in zip(completions, answer, strict=True)]


def think_then_answer(completions, **kwargs):
    return [1.0 if PATTERN.fullmatch(each) else 0.0 for each in completions]


def length_share(completions, **kwargs):
    return [min(len(each), 10) / 10 for each in completions]


def odd_values(completions, **kwargs):
    values = {
        "true": True,
        "false": np.bool_(False),
        "int": 1,
        "numpy": np.float32(0.25),
        "none": None,
        "nan": float("nan"),
        "inf": float("inf"),
        "text": "1.0",
        "list": [1.0],
    }
    return [values[each] for each in completions]


def too_many(completions, **kwargs):
    return [1.0, 1.0]


def one_number(completions, **kwargs):
    return 1.0


def named_columns(completions, answer, level):
    return [float(each == f"{gold} at level {level[0]}") for each, gold in zip(completions, answer, strict=True)]


async def solution_column(completions, solution, **kwargs):
    return [float(each == gold) for each, gold in zip(completions, solution, strict=True)]
