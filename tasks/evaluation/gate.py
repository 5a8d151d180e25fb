"""Promotion: is the candidate not worse than the champion?"""

from collections.abc import Mapping
from dataclasses import dataclass

from tasks.evaluation.bootstrap import paired_bootstrap
from tasks.evaluation.config import PromotionConfig


@dataclass(frozen=True)
class Decision:
    """Whether the champion moves, with the evidence: mean difference of accuracy and its interval."""

    promote: bool
    difference: float
    low: float
    high: float
    reason: str


def decide(
    candidate: Mapping[str, float | None],
    champion: Mapping[str, float | None],
    config: PromotionConfig,
    *,
    seed: int,
) -> Decision:
    """Promote when the lower end of the paired interval is at least -margin (a non-inferiority test).

    Args:
        candidate, champion: prompt id -> share of correct samples (None: not measured); compared on the prompts that both
            measured.
    """
    pairs = {
        prompt: (candidate[prompt], champion[prompt])
        for prompt in sorted(candidate.keys() & champion.keys())
        if candidate[prompt] is not None and champion[prompt] is not None
    }
    if not pairs:
        return Decision(False, 0.0, 0.0, 0.0, "no held-out prompt was scored under both policies; the champion stays")
    found = paired_bootstrap(
        [new - old for new, old in pairs.values()],  # type: ignore[operator]  # None was left out above
        confidence=config.confidence,
        num_resamples=config.num_resamples,
        seed=seed,
    )
    # 0.48 - 0.5 is -0.020000000000000018: a loss of exactly the margin is within it.
    promote = round(found.low + config.margin, 9) >= 0.0
    interval = f"{found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"
    reason = (
        f"accuracy {interval} against the champion on {len(pairs)} prompts: "
        f"{'not worse' if promote else 'may be worse'} by the margin {config.margin:g}"
    )
    return Decision(promote, found.mean, found.low, found.high, reason)
