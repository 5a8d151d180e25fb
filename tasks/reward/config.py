"""The reward model: its labels, its replay, its training, what is measured and what is refused."""

from typing import Annotated, Literal

from pydantic import Field

from tasks.reward.step_kinds import StepsConfig
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


LabelsConfig = Annotated[PairsConfig | PointsConfig | StepsConfig, Field(discriminator="kind")]


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


class AnchorConfig(Frozen):
    """The oldest labels, kept out of training: a retrained model that lost too much on them is refused."""

    num_rows: int = Field(default=256, ge=0)
    """Labels at most; never more than a fifth of the initial ones. 0: no anchor set, and nothing is refused."""
    margin: float = Field(default=0.05, ge=0, lt=1)
    """Accuracy that may be lost: refused when the whole paired bootstrap interval lies below -margin."""
    confidence: float = Field(default=0.95, gt=0.5, lt=1)
    num_resamples: int = Field(default=2000, ge=100)


class CalibrationConfig(Frozen):
    """The temperature that makes the reward model's probability mean what it says."""

    min_labels: int = Field(default=32, ge=1)
    """Held-out labels below which no temperature is fitted: the last one stays (1 at first)."""


class RewardModelConfig(Frozen):
    labels: LabelsConfig = PairsConfig()
    replay: ReplayConfig = HistoryReplay()
    training: RewardTrainingConfig
    optimiser_state: Literal["continue", "reset"] = "continue"
    """Whether a retraining goes on with the last one's moments and warm-up, or begins anew."""
    anchor: AnchorConfig = AnchorConfig()
    calibration: CalibrationConfig = CalibrationConfig()
    num_initial_prompts: int = Field(ge=1)
    """Training prompts whose completions by the first policy make the initial reward model's training set."""

    @property
    def steps(self) -> StepsConfig | None:
        """The labels of a process reward model, None for an outcome reward model."""
        return self.labels if isinstance(self.labels, StepsConfig) else None
