"""Settings of the verifiers that run or call something: programs, tools, functions, judges."""

import math
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from tasks.verifiers.source import Source, named


class ToolCallsVerifier(Source):
    """1.0 when the completion makes the expected tool calls and no others, else 0.0.

    The gold answer is JSON: ``{"calls": [{"name": "f", "arguments": {"x": 1}}]}`` gives exact values;
    ``{"acceptable": [{"f": {"x": [1, 2], "unit": ["km", ""]}}]}`` is BFCL's ``ground_truth`` as it stands, a list of
    acceptable values for each argument, "" among them where it may be left out. An empty list: no call may be made.
    ``"ordered": true`` or ``false`` beside it overrides the setting for that row.
    """

    kind: Literal["tool_calls"]
    name: str = named("tool_calls")
    ordered: bool = False
    """Whether the calls must come in the order of the gold answer."""
    strings: Literal["exact", "relaxed"] = "exact"
    """"relaxed": as in BFCL, case, spaces and the characters ,./-_*^ do not matter, ' is "."""
    scoring: Literal["all", "fraction"] = "all"
    """"fraction": matched calls / the larger number of the expected and the given ones, so that each call too many costs."""
    surroundings: Literal["text", "nothing"] = "text"
    """"nothing": after the reasoning the completion holds its calls and white space only; where no call may be made, any
    text is an answer."""
    reasoning_end: str = "</think>"
    """A call before the last of these, or in a reasoning that never ends, is a thought; "" looks everywhere."""


Isolation = Literal["sandbox", "process"]


class CodeVerifier(Source):
    """1.0 when the Python program of the completion passes the tests of the gold answer, else 0.0."""

    kind: Literal["code"]
    name: str = named("code")
    reasoning_end: str = "</think>"
    """What precedes the last of these is not searched for a program; "" searches everything."""
    scoring: Literal["all", "fraction"] = "all"
    """all: 1.0 when every test passes. fraction: the share of tests that pass."""
    isolation: Isolation = "sandbox"
    """sandbox: bubblewrap; where it can not run every row is an error. process: limits and a process of its own only, which
    keeps no program from reading the machine's files or from using its network; every reason says so."""
    timeout_seconds: float = Field(default=2.0, gt=0)
    """Wall-clock time of one test or case; the program's own start counts for the first."""
    total_seconds: float = Field(default=4.0, gt=0)
    """Wall-clock time of all tests of a row."""
    memory_mib: int = Field(default=256, ge=64)
    """Address space of each process of a program, and no more than 16 processes or threads."""

    @model_validator(mode="after")
    def _check(self) -> "CodeVerifier":
        if self.total_seconds < self.timeout_seconds:
            raise ValueError(
                f"total_seconds {self.total_seconds:g} is less than timeout_seconds {self.timeout_seconds:g}; raise it"
            )
        return self

    @property
    def longest_seconds(self) -> float:
        """A row's verdict comes within this time: the tests, and a second to start and to end processes."""
        return self.total_seconds + 1.0


class FunctionVerifier(Source):
    """A Python function of yours with TRL's signature: (prompts, completions, **columns) -> list of numbers or None.

    It is code that the recipe names: it runs with your rights, in the verifier process, with no sandbox around it.
    """

    kind: Literal["function"]
    name: str = named("function")
    function: str = Field(pattern=r"^[^:\s][^:\n]*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$")
    """package.module:function, or path/to/file.py:function, from the folder that igrpo was started in."""
    per: Literal["row", "group"] = "row"
    """row: one call per completion, with lists of length one. group: one call with all completions of a prompt, for a
    function that compares them; its deadline is then that of a row times their number."""
    answer_column: str = Field(default="answer", pattern=r"^[A-Za-z_]\w*$")
    """Name under which the function is given the gold answers; the prompt's other columns keep their own."""

    @property
    def compares_groups(self) -> bool:
        return self.per == "group"

    @property
    def reads_token_ids(self) -> bool:
        return True


class JudgeVerifier(Source):
    """The score that a language model behind an OpenAI-compatible endpoint gives, put on a scale from 0 to 1.

    Each call waits for its answer: one at a time per verifier process, so scoring.num_workers is how many run at once.
    """

    kind: Literal["judge"]
    name: str = named("judge")
    deadline_seconds: float | None = Field(default=120.0, gt=0)
    base_url: str
    """Up to and including the version: http://127.0.0.1:8000/v1."""
    model: str = Field(min_length=1)
    api_key_variable: str | None = Field(default=None, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    """NAME of the environment variable that holds the key, never the key itself; None sends none."""
    rubric: str = (
        "Task:\n{prompt}\n\nReference answer:\n{answer}\n\nResponse to judge:\n{completion}\n\n"
        "Give {max_score} when the final answer of the response is the reference answer and its reasoning holds, "
        "{min_score} when the answer is wrong, and something between when the answer is right and the reasoning has faults."
    )
    """What the judge is asked. {prompt}, {answer} and {completion} are put in between marks that say they are data;
    {min_score} and {max_score} are the ends of the scale."""
    min_score: float = 0.0
    max_score: float = 10.0
    max_tokens: int = Field(default=512, ge=1)
    """Of the judge's reply; one that is cut there is no verdict."""
    timeout_seconds: float = Field(default=30.0, gt=0)
    """For one call."""
    max_retries: int = Field(default=2, ge=0, le=10)
    """Further calls after status 429 or 5xx, a lost connection, no answer in time, or a reply without a score."""
    backoff_seconds: float = Field(default=1.0, ge=0)
    """Before the first retry, doubled for each further one; the server's Retry-After when that is longer."""
    prompt_price: float | None = Field(default=None, ge=0)
    """Per million tokens, as is the next; with either the metric ``{name}_cost`` is kept, in the same currency."""
    completion_price: float | None = Field(default=None, ge=0)

    @property
    def longest_seconds(self) -> float:
        """Every call to its limit, and the waits between them."""
        return self.timeout_seconds * (self.max_retries + 1) + self.backoff_seconds * (2.0**self.max_retries - 1)

    @field_validator("base_url")
    @classmethod
    def _check_base_url(cls, base_url: str) -> str:
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("base_url must begin with http:// or https:// and name a host")
        if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
            raise ValueError(
                "base_url must hold no credentials and no query; name the key's variable in api_key_variable"
            )
        return base_url.rstrip("/")

    @model_validator(mode="after")
    def _check(self) -> "JudgeVerifier":
        if not self.max_score > self.min_score or not math.isfinite(self.max_score - self.min_score):
            raise ValueError(f"max_score {self.max_score:g} must be above min_score {self.min_score:g}")
        if "{completion}" not in self.rubric:
            raise ValueError("rubric must hold {completion}, or the judge never sees what it judges")
        return self
