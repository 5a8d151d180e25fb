"""Updates that two ranks make and one process makes too; run as a program in ranks, imported by the test."""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from tasks.grpo.config import UpdateConfig
from tasks.grpo.frozen import shared_logprobs_by_row
from tasks.grpo.sharded import Ranks, whole_weights
from tasks.grpo.trainer import PolicyTrainer
from tasks.runtime.config import MachineConfig
from tasks.runtime.optimiser import NonFinite
from tasks.runtime.process_group import joined
from tests.conftest import make_gpt2, make_llama

PROMPTS = ([1, 5, 6, 9], [1, 8], [1, 4, 11, 12, 13, 7])


def row(index, **changes):
    group, length = index // 4, 1 + (index * 5) % 11
    return {
        "group_id": f"g{group}",
        "sample_index": index % 4,
        "prompt_token_ids": PROMPTS[group],
        "completion_token_ids": [(index * 7 + position * 3) % 29 + 3 for position in range(length)],
        "sampler_logprobs": None
        if index % 3
        else [-3.0 - 0.1 * ((index + position) % 5) for position in range(length)],
        "temperature": 0.9,
        "advantage": (-1.0) ** index * (1 + index % 5) / 3,
        "token_advantages": None,
        "is_masked": index == 7,
        "has_signal": index != 2,
        **changes,
    }


ROWS = [row(index) for index in range(12)]
ONE = [row(0)]
NO_SIGNAL = [row(index, has_signal=False) for index in range(3)]
OVERFLOWING = [
    row(index, **({"advantage": 3e38, "sampler_logprobs": [-200.0] * 4} if index == 5 else {})) for index in range(8)
]
IN_LOSS = {"placement": "loss", "beta": 0.5}
# eps is far above rounding: Adam divides by the gradient's size, so that where a gradient is 0 but for rounding the
# direction of the update would be decided by the order of a sum.
OPTIMISER = {"learning_rate": 1e-2, "max_grad_norm": 0.05, "num_warmup_updates": 2, "weight_decay": 0.1, "eps": 1e-4}
CUT = {"micro_batch_tokens": 30, "minibatch_completions": 5, "num_epochs": 2}

SINGLE = {"minibatch_completions": None, "num_epochs": 1}

CASES = {
    "grpo": ({"algorithm": "grpo", "kl": IN_LOSS}, ROWS),
    "dapo": ({"algorithm": "dapo"}, ROWS),
    "gspo": ({"algorithm": "gspo", "objective": {"clip_low": 0.2, "clip_high": 0.3}}, ROWS),
    "dr_grpo with KL": ({"algorithm": "dr_grpo", "kl": IN_LOSS}, ROWS),
    "correction": (
        {"algorithm": "cispo", "objective": {"clip_high": 4.0}, "rollout_correction": {"kind": "token_mask"}},
        ROWS,
    ),
    "entropy": ({"algorithm": "rloo", "kl": "none", "entropy_coefficient": 0.2}, ROWS),
    "a rank without work": ({"algorithm": "grpo", "kl": IN_LOSS}, ONE),
    "no signal": ({"algorithm": "grpo", "kl": IN_LOSS}, NO_SIGNAL),
}
LAYOUTS = ("packed", "padded")


def settings(changes, layout):
    return UpdateConfig.model_validate({"optimiser": OPTIMISER, **CUT, "layout": layout, **changes})


def trainer_of(config, collective, folder=Path("none"), model=None):
    return PolicyTrainer.load(model or make_llama(), config, folder, collective=collective)


def reference_of(trainer):
    """None, another model, or (where the trainer is marked so) the policy itself."""
    if getattr(trainer, "has_not_moved", False):
        return trainer.model
    return make_llama(seed=1) if trainer.config.kl_in_loss else None


def step(trainer, rows, seed):
    return trainer.update(
        rows, reference=reference_of(trainer), max_new_tokens=12, seed=seed, on_progress=lambda done, total: None
    )


def make(folder, name, trainer, rows, seed):
    """One update; its metrics, weights and optimiser state in FOLDER/NAME."""
    here = folder / name
    metrics = step(trainer, rows, seed)
    weights = whole_weights(trainer.model)
    trainer.save(here)
    if trainer.collective.rank == 0:
        save_file({key: value.clone() for key, value in weights.items()}, here / "weights.safetensors")
        (here / "metrics.json").write_text(json.dumps(metrics))


def culprits(trainer):
    try:
        step(trainer, OVERFLOWING, 3)
    except NonFinite as error:
        return str(error)
    return "nothing"


def make_all(folder, collective):
    """Every case, in two layouts; the second update of one that another number of processes began; what is refused."""
    for name, (changes, rows) in CASES.items():
        for layout in LAYOUTS:
            make(folder, f"{name}-{layout}", trainer_of(settings(changes, layout), collective), rows, 3)
    changes, rows = CASES["grpo"]
    config = settings(changes, "packed")
    make(
        folder,
        "gpt2",
        trainer_of(
            config.model_copy(update={"kl": settings(CASES["dapo"][0], "packed").kl}), collective, model=make_gpt2()
        ),
        rows,
        3,
    )
    recomputing = MachineConfig(gradient_checkpointing=True)
    make(folder, "checkpointed", PolicyTrainer(make_llama(), config, recomputing, collective=collective), rows, 3)
    for name, single in (("own reference", {}), ("own reference, one update", SINGLE)):
        trainer = trainer_of(settings({**changes, **single}, "packed"), collective)
        trainer.has_not_moved = True
        make(folder, name, trainer, rows, 3)
    if (folder / "begun").exists():
        begun = folder / "begun"
        make(folder, "continued", trainer_of(config, collective, begun, loaded(begun)), rows, 4)
    said = culprits(trainer_of(config, collective))
    found = shared_logprobs_by_row(collective.share(make_llama()), rows, range(12), 30, "padded")
    if collective.rank == 0:
        (folder / "said").write_text(said)
        (folder / "logprobs.json").write_text(json.dumps([found[index].tolist() for index in range(12)]))


def loaded(folder):
    """A model with the weights in FOLDER."""
    from safetensors.torch import load_file

    model = make_llama()
    model.load_state_dict(load_file(folder / "weights.safetensors"))
    return model


if __name__ == "__main__":
    torch.set_num_threads(1)
    with joined(MachineConfig(device="cpu", num_threads=1)) as (mesh, _):
        make_all(Path(sys.argv[1]), Ranks(mesh))
