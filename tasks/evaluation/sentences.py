"""What an iteration measured, in the words of its versions' pages."""

from collections.abc import Mapping


def measured_sentence(metrics: Mapping[str, float]) -> str:
    """Held-out accuracy (a share, three digits) and, while it stands, the over-optimisation alarm."""
    accuracy = metrics.get("evaluation/accuracy")
    said = "accuracy unknown" if accuracy is None else f"accuracy {accuracy:.3f}"
    return said + (" · over-optimisation alarm" if metrics.get("alarm/is_standing") else "")


def reward_sentence(metrics: Mapping[str, float]) -> str:
    """How many labels the reward model learnt from; "" when that was not recorded."""
    if "replay/num_fresh" not in metrics:
        return ""
    return f"{metrics['replay/num_fresh']:.0f} new and {metrics['replay/num_replayed']:.0f} replayed labels"
