"""The parts of a policy update: each a choice of kinds, each kind with the knobs that belong to it and no others."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from tasks.values.frozen import Frozen
from tasks.values.optimiser import OptimiserConfig

STD_EPS = 1e-6

Layout = Literal["packed", "padded"]
"""packed: the completions of one prompt stand behind it in one row; padded: each prompt and completion in a row."""


class GroupAdvantages(Frozen):
    """(reward - group mean) / (group std + eps); scale "none" leaves out the division."""

    kind: Literal["group"]
    scale: Literal["std", "none"] = "std"
    std_eps: float = Field(default=STD_EPS, ge=0)
    ddof: Literal[0, 1] = 1
    """1: sample standard deviation (TRL, verl); 0: population."""
    normalise: Literal["total", "each_source"] = "total"
    """What is normalised: the weighted total, or each source by itself before the weighted sum (a source on a big scale
    then can not decide the sign alone)."""

    @model_validator(mode="after")
    def _check(self) -> "GroupAdvantages":
        if self.scale == "none" and (foreign := {"std_eps", "ddof"} & self.model_fields_set):
            given = {name: getattr(self, name) for name in foreign}
            if any(value != type(self).model_fields[name].default for name, value in given.items()):
                raise ValueError(f'{", ".join(sorted(foreign))} has no meaning with scale = "none"; remove it')
        return self


class ProcessAdvantages(Frozen):
    """Step rewards normalised over all steps of the group; a token has the sum over the steps that end at or after it."""

    kind: Literal["process"]
    std_eps: float = Field(default=STD_EPS, ge=0)
    ddof: Literal[0, 1] = 1


class LeaveOneOutAdvantages(Frozen):
    """The reward minus the mean reward of the group's other completions."""

    kind: Literal["leave_one_out"]


class BatchAdvantages(Frozen):
    """Returns to go, normalised over all tokens of the step."""

    kind: Literal["batch"]
    baseline: Literal["none", "group_mean"] = "none"
    """Subtracted from the reward before the KL is added and the whole is normalised."""
    std_eps: float = Field(default=STD_EPS, ge=0)
    ddof: Literal[0, 1] = 1


class GaeAdvantages(Frozen):
    """Generalised advantage estimation with a critic's values."""

    kind: Literal["gae"]
    gamma: float = Field(default=1.0, ge=0, le=1)
    gae_lambda: float = Field(default=0.95, ge=0, le=1)
    normalise: Literal["batch", "none"] = "batch"
    """"batch": zero mean and unit standard deviation (ddof 1, eps 1e-6) over all tokens of the step."""


class CorrectOnlyAdvantages(Frozen):
    """1 for a correct completion, 0 for any other."""

    kind: Literal["correct_only"]


AdvantagesConfig = Annotated[
    GroupAdvantages
    | ProcessAdvantages
    | LeaveOneOutAdvantages
    | BatchAdvantages
    | GaeAdvantages
    | CorrectOnlyAdvantages,
    Field(discriminator="kind"),
]


class ClipObjective(Frozen):
    """min(r A, clip(r, 1 - clip_low, 1 + clip_high) A) with the ratio of each token."""

    kind: Literal["clip"]
    clip_low: float = Field(default=0.2, gt=0, lt=1)
    clip_high: float = Field(default=0.2, gt=0)
    dual_clip: float | None = Field(default=None, gt=1)
    """c: for a negative advantage the objective is not below c A; None leaves it out."""


class SequenceClipObjective(Frozen):
    """The clipped objective with one ratio per completion."""

    kind: Literal["sequence_clip"]
    length: Literal["mean", "sum"] = "mean"
    """"mean": exp of the mean log-ratio over the completion's tokens (GSPO); "sum": of their sum (RLOO)."""
    clip_low: float = Field(default=3e-4, gt=0, lt=1)
    clip_high: float = Field(default=4e-4, gt=0)


class SequenceTokenClipObjective(Frozen):
    """The value of the completion's mean ratio at every token, the gradient of that token (GSPO-token)."""

    kind: Literal["sequence_token_clip"]
    clip_low: float = Field(default=3e-4, gt=0, lt=1)
    clip_high: float = Field(default=4e-4, gt=0)


class CispoObjective(Frozen):
    """The clipped ratio as a constant weight on A log pi: no token loses its gradient."""

    kind: Literal["cispo"]
    clip_high: float = Field(gt=0)
    """The weight is at most 1 + clip_high. No default: the paper gives none (ScaleRL's bound of 5 is clip_high = 4)."""
    clip_low: float | None = Field(default=None, gt=0, lt=1)
    """The weight is at least 1 - clip_low; None sets no lower bound, as the paper does."""


class LogLikelihoodObjective(Frozen):
    """A log pi: no ratio."""

    kind: Literal["log_likelihood"]


ObjectiveConfig = Annotated[
    ClipObjective | SequenceClipObjective | SequenceTokenClipObjective | CispoObjective | LogLikelihoodObjective,
    Field(discriminator="kind"),
]


class SequenceMean(Frozen):
    """The mean over completions of the mean over a completion's tokens."""

    kind: Literal["sequence_mean"]


class TokenMean(Frozen):
    """The mean over all tokens of the optimiser batch."""

    kind: Literal["token_mean"]


class FixedLength(Frozen):
    """The sum over tokens divided by (completions of the optimiser batch * length)."""

    kind: Literal["fixed_length"]
    length: int | None = Field(default=None, ge=1)
    """Tokens; None takes rollout.sampling.max_new_tokens."""


AggregationConfig = Annotated[SequenceMean | TokenMean | FixedLength, Field(discriminator="kind")]


class NoKl(Frozen):
    """No KL; the reference takes no part."""

    placement: Literal["none"]


class KlInLoss(Frozen):
    """beta times the estimator, added to the loss of each token (aggregated as the objective is)."""

    placement: Literal["loss"]
    estimator: Literal["k2", "k3", "k3_importance"] = "k3"
    beta: float = Field(default=0.04, gt=0)

    @model_validator(mode="before")
    @classmethod
    def _refuse_k1(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("estimator") == "k1":
            raise ValueError(
                'k1 in the loss has an expected gradient of zero: it would pull towards nothing. Take "k2", "k3" or '
                '"k3_importance", or placement = "reward"'
            )
        return values


class KlInReward(Frozen):
    """beta times the estimator of each token (policy that sampled against the reference), subtracted from the reward."""

    placement: Literal["reward"]
    estimator: Literal["k1", "k2", "k3"] = "k1"
    beta: float = Field(default=0.04, gt=0)


KlConfig = Annotated[NoKl | KlInLoss | KlInReward, Field(discriminator="placement")]


class KeepGroups(Frozen):
    """Groups without signal stay: they count in the denominator."""

    kind: Literal["keep"]


class DynamicGroups(Frozen):
    """Groups without signal are replaced by groups of new prompts; those that are left after the last round are masked."""

    kind: Literal["dynamic"]
    max_rounds: int = Field(default=3, ge=1, le=99)
    """Rounds of replacement per step at most, after the first draw."""
    by: Literal["correctness", "reward"] = "correctness"
    """What must differ within a group: whether its completions are correct (DAPO, eq. 11), or their total rewards. Step
    rewards are what must differ under process supervision."""


FilterConfig = Annotated[KeepGroups | DynamicGroups, Field(discriminator="kind")]


class NoOverlong(Frozen):
    """Length is not punished."""

    kind: Literal["none"]


class SoftOverlong(Frozen):
    """A reward that falls linearly from 0 to -weight over the last ``cache_share`` of max_new_tokens."""

    kind: Literal["soft"]
    cache_share: float = Field(default=0.2, gt=0, le=1)
    """DAPO: 4096 of 20480 tokens."""
    weight: float = Field(default=1.0, gt=0)


OverlongConfig = Annotated[NoOverlong | SoftOverlong, Field(discriminator="kind")]


class NoCorrection(Frozen):
    """The ratio is taken to the engine's own log-probabilities; no further forward pass."""

    kind: Literal["none"]


class Truncation(Frozen):
    """The objective is weighted by min(w, cap), w = trainer's / engine's probability before the update, of each token or
    of the whole completion."""

    kind: Literal["token_truncate", "sequence_truncate"]
    cap: float = Field(default=2.0, gt=0)


class Masking(Frozen):
    """Tokens (or completions) whose w is outside [low, high] take no part; the others are weighted by w."""

    kind: Literal["token_mask", "sequence_mask"]
    low: float = Field(default=0.5, ge=0)
    high: float = Field(default=2.0, gt=0)

    @model_validator(mode="after")
    def _check(self) -> "Masking":
        if self.low >= self.high:
            raise ValueError(f"low {self.low} is not below high {self.high}: nothing would be left")
        return self


CorrectionConfig = Annotated[NoCorrection | Truncation | Masking, Field(discriminator="kind")]


class CriticConfig(Frozen):
    """The value model: a backbone of its own (the first policy's, then trained) and a scalar head."""

    optimiser: OptimiserConfig
    num_epochs: int = Field(default=1, ge=1)
    minibatch_completions: int | None = Field(default=None, ge=1)
    """Completions per update; None takes all of the step's."""
    micro_batch_tokens: int = Field(default=16384, ge=1)
    clip_value: float | None = Field(default=0.2, gt=0)
    """The new value counts as at most this far from the one before the update; None leaves the clip out."""


class LoraConfig(Frozen):
    """The update trains low-rank additions to the weights of the policy as it stood when the iteration began."""

    rank: int = Field(default=16, ge=1)
    alpha: float = Field(default=32.0, gt=0)
    """The addition is scaled by alpha / rank."""
    dropout: float = 0.0
    """Refused above 0: two forward passes of unchanged weights would differ, and the ratio would not begin at 1."""
    target_modules: Literal["all-linear"] | tuple[str, ...] = "all-linear"
    """Names of the layers (as PEFT matches them), or every linear layer but the output layer."""

    @model_validator(mode="after")
    def _check(self) -> "LoraConfig":
        if self.dropout != 0:
            raise ValueError(
                f"lora.dropout is {self.dropout:g}: two forward passes of unchanged weights would differ and the ratio would "
                "not begin at 1; leave it at 0"
            )
        if not self.target_modules:
            raise ValueError('lora.target_modules is empty; name layers or take "all-linear"')
        return self
