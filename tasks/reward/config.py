"""The outcome reward model: its labels, its replay, its training."""

from typing import Annotated, Literal

from pydantic import Field

from tasks.values.frozen import Frozen
from tasks.values.optimiser import OptimiserConfig


class PairsConfig(Frozen):
    """Preference pairs within a group: the higher verifier reward is chosen."""

    kind: Literal["pairs"] = "pairs"
    max_pairs_per_group: int = Field(default=2, ge=1)
    min_margin: float = Field(default=0.05, gt=0)
    """Smallest difference of verifier rewards that makes a pair."""


class PointsConfig(Frozen):
    """Single completions, labelled 1 where the verifier calls them correct and 0 where it does not."""

    kind: Literal["points"]
    max_points_per_group: int = Field(default=8, ge=1)


LabelsConfig = Annotated[PairsConfig | PointsConfig, Field(discriminator="kind")]


class HistoryReplay(Frozen):
    """Replay ``fraction`` of all rows of earlier iterations, without replacement."""

    kind: Literal["history"] = "history"
    fraction: float = Field(default=0.1, ge=0, le=1)


class MixReplay(Frozen):
    """Replay so many earlier rows that they are ``fraction`` of the mixed set."""

    kind: Literal["mix"]
    fraction: float = Field(default=0.1, ge=0, lt=1)


ReplayConfig = Annotated[HistoryReplay | MixReplay, Field(discriminator="kind")]


class RewardTrainingConfig(Frozen):
    """Training of the backbone and its scalar head."""

    optimiser: OptimiserConfig
    num_epochs: int = Field(default=1, ge=1)
    batch_labels: int = Field(default=32, ge=1)
    """Labels of one optimiser update."""
    micro_batch_tokens: int = Field(default=16384, ge=1)
    max_tokens: int = Field(default=2048, ge=2)
    """Longer prompt + completion sequences are cut at the end; labels that lose what they are about are dropped and
    counted."""


class RewardModelConfig(Frozen):
    labels: LabelsConfig = PairsConfig()
    replay: ReplayConfig = HistoryReplay()
    training: RewardTrainingConfig
    num_initial_prompts: int = Field(ge=1)
    """Training prompts whose completions by the first policy make the initial reward model's training set."""
