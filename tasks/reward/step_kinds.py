"""Settings of step labels: how they are made from continuations, and the files that they can begin with."""

from typing import Annotated, Literal

from pydantic import Field

from tasks.values.frozen import Frozen
from tasks.verifiers.text_kinds import StepSplit

Reduction = Literal["min", "product", "last", "mean"]
"""How the probabilities of a completion's steps become the one of the completion."""


class StepFile(Frozen):
    """What every file of step labels has: JSON lines, read once, when the lineage begins.

    Its prompts are written down as the recipe's own (``prompts.format``) and tokenised by the policy's tokenizer.
    """

    path: str = Field(min_length=1)
    joined_by: str = "\n"
    """Put between the steps of a solution; it belongs to the step before it."""


class Prm800kFile(StepFile):
    """The lines of PRM800K: rated alternatives for every step, one of them chosen."""

    kind: Literal["prm800k"]
    neutral: Literal["right", "wrong", "left_out"] = "right"
    """What a step rated 0 (neither wrong nor of any use) counts as."""


class MathShepherdFile(StepFile):
    """The lines of Math-Shepherd: ``input`` with a mark after every step, ``label`` with + or - in its place."""

    kind: Literal["math_shepherd"]
    mark: str = Field(default="ки", min_length=1)
    first_step: str = Field(default="Step 1:", min_length=1)
    """What the solution begins with; the question stands before it."""


class ProcessBenchFile(StepFile):
    """The lines of ProcessBench: ``steps``, and ``label``, the first wrong one (-1: none). Steps behind it have no label."""

    kind: Literal["process_bench"]
    joined_by: str = "\n\n"


StepFileConfig = Annotated[Prm800kFile | MathShepherdFile | ProcessBenchFile, Field(discriminator="kind")]


class StepsConfig(Frozen):
    """Labels for the single steps of a completion: the share of its continuations from there that end right.

    The reward model is then a process reward model. Its outcome, the ``reward_model`` column, is ``reduction`` over the
    steps.
    """

    kind: Literal["steps"]
    split: StepSplit
    """Where steps end; the same when they are labelled and when they are scored."""
    labels: Literal["soft", "hard"] = "soft"
    """soft: the share of continuations that reach the right answer. hard: 1 when any does."""
    continuations: int = Field(default=8, ge=1)
    """Completions sampled after each labelled step; the last step needs none."""
    steps_per_completion: int = Field(default=8, ge=1)
    """At most so many steps of a completion get a label: its last one, and others evenly spaced from its first."""
    completions_per_group: int = Field(default=2, ge=1)
    """At most so many distinct completions of a group get labels, drawn by hash."""
    max_groups: int = Field(default=128, ge=1)
    """At most so many groups of an iteration, and as many of an evaluation, get labels, drawn by hash. The budget is
    max_groups * completions_per_group * (steps_per_completion - 1) * continuations completions at most."""
    reduction: Reduction = "min"
    initial: StepFileConfig | None = None
    """Labels that the first reward model learns from, beside those of the first policy's completions."""
