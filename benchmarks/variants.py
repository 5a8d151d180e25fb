"""What the algorithm benchmark compares: every preset, and one-shot variants of the paper's two."""

from dataclasses import dataclass, field
from typing import Any

from flows.config import PipelineConfig
from flows.recipes import load_recipe

NUM_STEPS = 16
STEPS_PER_ITERATION = 4


@dataclass(frozen=True)
class Variant:
    """One line of the table. ``is_iterative``: the reference becomes the policy every ``STEPS_PER_ITERATION`` steps."""

    algorithm: str
    settings: dict[str, Any] = field(default_factory=dict)
    is_iterative: bool = True


KL = {"kl": {"beta": 0.005}}

VARIANTS: dict[str, Variant] = {
    "grpo": Variant("grpo", KL),
    "grpo_process": Variant("grpo_process", KL),
    "dr_grpo": Variant("dr_grpo"),
    "dapo": Variant("dapo"),
    "gspo": Variant("gspo"),
    "gspo_token": Variant("gspo_token"),
    "cispo": Variant("cispo", {"objective": {"clip_high": 4.0}}),
    "rloo": Variant("rloo", KL),
    "reinforce_pp": Variant("reinforce_pp", KL),
    "reinforce_pp_baseline": Variant("reinforce_pp_baseline", KL),
    "ppo": Variant(
        "ppo", {**KL, "critic": {"optimiser": {"learning_rate": 1e-3}, "minibatch_completions": 128, "num_epochs": 2}}
    ),
    "rft": Variant("rft"),
    "online_rft": Variant("online_rft"),
    "grpo_one_shot": Variant("grpo", KL, is_iterative=False),
    "grpo_process_one_shot": Variant("grpo_process", KL, is_iterative=False),
}


def recipe(variant: Variant, seed: int) -> PipelineConfig:
    """The quick start with this variant's update, and the verifier of arithmetic steps beside the one of the answer.

    The reward model is left out: it would add its own learning to the comparison.
    """
    plain = load_recipe("quickstart", [f"seed={seed}"]).model_dump(mode="json")
    shared = {name: plain["update"][name] for name in ("optimiser", "num_epochs", "minibatch_completions")}
    plain["update"] = {"algorithm": variant.algorithm, **shared, **variant.settings}
    plain["scoring"]["verifiers"].append({"kind": "arithmetic_steps", "weight": 0.0})
    plain["scoring"] |= {"reward_model_weight": 0.0, "process": "steps"}
    return PipelineConfig.model_validate(plain)
