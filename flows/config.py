"""The recipe: one TOML file, parsed without torch."""

from pydantic import Field, model_validator

from tasks.curriculum.config import PromptsConfig
from tasks.evaluation.config import EvaluationConfig, PromotionConfig
from tasks.evaluation.guards_config import GuardsConfig
from tasks.grpo.config import UpdateConfig
from tasks.policy.config import PolicyConfig
from tasks.reward.config import RewardModelConfig
from tasks.rollout.config import RolloutConfig
from tasks.runtime.config import MachineConfig
from tasks.values.frozen import Frozen
from tasks.verifiers.config import MODEL, ScoringConfig


class PipelineConfig(Frozen):
    """A recipe. Fixed for the life of a lineage but for ``num_iterations``, ``guards``, ``machine`` and ``rollout.engine.server``."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")
    seed: int = Field(ge=0, lt=2**31)
    num_iterations: int = Field(default=1, ge=1)
    """Iterations per run (I of Algorithm 1) unless --iterations says otherwise."""
    num_steps: int = Field(ge=1)
    """Steps per iteration (M of Algorithm 1)."""
    max_no_signal_iterations: int = Field(default=3, ge=1)
    """Iterations in a row without anything to learn from after which a run stops."""
    prompts: PromptsConfig
    policy: PolicyConfig
    rollout: RolloutConfig
    scoring: ScoringConfig
    update: UpdateConfig
    reward_model: RewardModelConfig
    evaluation: EvaluationConfig = EvaluationConfig()
    promotion: PromotionConfig = PromotionConfig()
    guards: GuardsConfig = GuardsConfig()
    machine: MachineConfig = MachineConfig()

    @model_validator(mode="after")
    def _check_together(self) -> "PipelineConfig":
        mini = self.update.minibatch_completions
        total = self.rollout.prompts_per_step * self.rollout.group_size
        if mini is not None and mini > total:
            raise ValueError(f"update.minibatch_completions {mini} exceeds the {total} completions of a step")
        if self.machine.num_processes > 1 and (self.update.lora or self.update.optimiser.state != "float32"):
            raise ValueError(
                f"machine.num_processes {self.machine.num_processes} goes neither with update.lora nor with "
                f'update.optimiser.state "{self.update.optimiser.state}": set machine.num_processes to 1'
            )
        if self.update.advantages.kind == "process" and self.scoring.process is None:
            raise ValueError(
                "process advantages need step rewards: name the verifier that gives them in scoring.process, or "
                '"reward_model" with reward_model.labels.kind = "steps"'
            )
        if self.scoring.process == MODEL and self.reward_model.steps is None:
            raise ValueError(
                f'scoring.process "reward_model" needs a process reward model: set reward_model.labels.kind to "steps", not '
                f'"{self.reward_model.labels.kind}", or name a verifier that gives steps'
            )
        return self
