"""Labels for the reward model, of the kind that the recipe names, from scored completions."""

from flows.config import PipelineConfig
from storage.refs import DatasetRef, ModelRef, Place
from tasks.label_samples import label_samples
from tasks.label_steps import Steps, continue_steps, label_steps, read_step_labels, score_continuations


def label_completions(
    place: Place,
    config: PipelineConfig,
    prompts: DatasetRef,
    completions: list[DatasetRef],
    rewards: list[DatasetRef],
    policy: ModelRef,
    seed: int,
) -> DatasetRef:
    """The labels of the completions; those of steps need ``policy`` to continue them."""
    reward, rollout = config.reward_model, config.rollout
    if reward.steps is None:
        return label_samples(place, prompts, completions, rewards, reward.labels, config.scoring.correctness, seed)
    here = _section(place, "step-labels")
    steps = Steps(prompts=prompts, completions=completions, rewards=rewards, policy=policy)
    continuations = continue_steps(here, steps, reward.steps, rollout.engine, rollout.sampling, config.machine, seed)
    continued = score_continuations(here, steps, continuations, reward.steps, config.scoring, seed)
    known = None
    if reward.steps.initial is not None and place.iteration == 0:
        there = _section(place, "file-labels")
        known = read_step_labels(there, prompts, policy, reward.steps.initial, config.prompts.format)
    return label_steps(place, steps, continuations, continued, known, reward.steps, seed)


def _section(place: Place, name: str) -> Place:
    """A section of its own beside the place: "step-labels", or "evaluation-step-labels"."""
    return place.at(iteration=place.iteration, section="-".join(part for part in (place.section, name) if part))
