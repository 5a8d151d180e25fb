"""What a deployment is asked for: its parameters, shown as a form and checked by the server before a run starts."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints, WithJsonSchema

from flows.recipes import shipped
from tasks.values.frozen import Frozen

LineageName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
Override = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.]+=.+$")]


def _is_shipped(name: str) -> str:
    if name not in shipped():
        raise ValueError(f"no recipe is called {name!r}; there are {', '.join(shipped())}")
    return name


Recipe = Annotated[str, AfterValidator(_is_shipped), WithJsonSchema({"type": "string", "enum": list(shipped())})]
"""A name of deployments/configs/*.toml: whoever may start a run may not name a file of the worker's machine."""
Version = Annotated[int, Field(ge=1)]


class LineageRequest(Frozen):
    """Every run works on one lineage, alone."""

    lineage: LineageName = Field(description="Name of the lineage: 1 to 64 letters, digits, '-' or '_'.")
    when_busy: Literal["wait", "skip"] = Field(
        default="skip", description="When another run holds the lineage: wait for it, or end as Skipped."
    )
    max_wait_minutes: float = Field(
        default=60.0, gt=0, le=1440, description="With 'wait': minutes after which the run fails, naming who holds it."
    )


class IterateRequest(LineageRequest):
    """Further iterations of a lineage; those that an interrupted run left open come first."""

    num_iterations: int = Field(default=1, ge=1, le=1000, description="Iterations to run.")
    stop_at_iteration: int | None = Field(
        default=None, ge=1, description="The lineage is done once it stands here: later runs end as Skipped."
    )
    overrides: list[Override] = Field(
        default=[],
        description="KEY=VALUE of the settings that may change: guards, machine, rollout.engine.server. "
        "For example guards.kl.max=0.3",
    )


class BootstrapRequest(LineageRequest):
    """Iteration 0 of a new lineage."""

    recipe: Recipe = Field(default="quickstart", description="A shipped recipe.")
    overrides: list[Override] = Field(
        default=[], description="Changes of the recipe, KEY=VALUE. For example rollout.group_size=4"
    )


class EvaluateRequest(LineageRequest):
    """A policy version, measured on the held-out prompts and scored with a reward model."""

    policy_version: Version | None = Field(default=None, description="The newest policy by default.")
    reward_version: Version | None = Field(default=None, description="The newest reward model in use by default.")


class RetrainRewardRequest(LineageRequest):
    """Another training of the reward model, on the newest labels and a new draw of replay."""

    why: str = Field(default="asked for from a deployment", min_length=1, description="Kept with the decision.")


class CollectGarbageRequest(LineageRequest):
    """Weights that no alias, no champion, no recent iteration and no branch needs."""

    keep_last: int = Field(default=3, ge=1, description="Finished iterations whose weights stay.")
    action: Literal["plan", "remove"] = Field(default="plan", description="Show what would go, or remove it.")
