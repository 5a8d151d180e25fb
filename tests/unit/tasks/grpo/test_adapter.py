"""LoRA: gradients by the chain rule, a reference in the memory of one model, plain weights and an adapter that others read."""

import pytest
import torch
from peft import PeftModel

from tasks.grpo.config import UpdateConfig
from tasks.grpo.presets import PRESETS
from tasks.grpo.trainer import PolicyTrainer
from tasks.runtime.config import MachineConfig
from tests.conftest import make_llama
from tests.unit.tasks.grpo.tiny_models import MODELS, NEEDED, samples

IDS = torch.tensor([[1, 5, 6, 7, 8, 9, 2]])
LORA = {"rank": 3, "alpha": 6}
SCALE = 2.0


def config(preset="grpo", lora=LORA, **changes):
    settings = {"algorithm": preset, "optimiser": {"learning_rate": 1e-2, "max_grad_norm": 1e9}, "kl": "none"}
    return UpdateConfig.model_validate({**settings, **NEEDED.get(preset, {}), "lora": lora, **changes})


def trainer_of(settings, make=make_llama, saved=None, machine=None, digest="d1", seed=7):
    return PolicyTrainer.load_with_adapter(
        make(), settings, saved, machine or MachineConfig(), base_digest=digest, seed=seed
    )


def update(trainer, reference=None, seed=3):
    return trainer.update(
        samples(), reference=reference, max_new_tokens=12, seed=seed, on_progress=lambda done, total: None
    )


def first_gradients(trainer):
    update(trainer)
    names = dict(zip(trainer.optimiser._names, trainer.optimiser._parameters, strict=True))
    state = trainer.optimiser._adamw.state
    return {name: state[parameter]["exp_avg"] / (1 - 0.9) for name, parameter in names.items()}


def logits(model):
    with torch.no_grad():
        return model(input_ids=IDS).logits


@pytest.mark.parametrize(
    ("family", "preset", "machine"),
    [
        *((family, "grpo", {}) for family in MODELS if family != "gpt2"),
        *(("llama", preset, {}) for preset in PRESETS),
        ("llama", "grpo", {"gradient_checkpointing": True}),
    ],
)
def test_the_gradient_of_an_adapter_is_that_of_the_weights_by_the_chain_rule(family, preset, machine):
    """d L / d B = alpha / rank * G A^T with G of the plain padded update; A has none while B is 0."""
    full = PolicyTrainer(MODELS[family](), config(preset, lora=None, layout="padded"))
    of_weights = first_gradients(full)
    trainer = trainer_of(config(preset), MODELS[family], machine=MachineConfig(**machine))
    starts = {name: value.detach().clone() for name, value in trainer.model.named_parameters()}
    of_adapter = first_gradients(trainer)
    assert of_adapter
    for name, found in of_adapter.items():
        if "lora_A" in name:
            assert found.abs().max() == 0
            continue
        weight = of_weights[name.replace("lora_B.default.", "")]
        expected = SCALE * weight @ starts[name.replace("lora_B", "lora_A")].T
        assert (found - expected).norm() < 1e-5 * expected.norm()


def test_a_layer_that_lies_the_other_way_round_has_its_adapter_too():
    full = PolicyTrainer(MODELS["gpt2"](), config(lora=None, layout="padded"))
    of_weights = first_gradients(full)
    trainer = trainer_of(config(), MODELS["gpt2"])
    starts = {name: value.detach().clone() for name, value in trainer.model.named_parameters()}
    for name, found in first_gradients(trainer).items():
        if "lora_B" in name:
            weight = of_weights[name.replace("lora_B.default.", "")].T  # GPT-2 keeps [in, out]
            expected = SCALE * weight @ starts[name.replace("lora_B", "lora_A")].T
            assert (found - expected).norm() < 1e-5 * expected.norm()


def test_the_base_keeps_every_bit_and_answers_without_the_adapter():
    trainer = trainer_of(config(kl={"placement": "loss", "beta": 0.5}))
    for seed in range(3):
        metrics = update(trainer, trainer.adapter.base(), seed)
    assert metrics["kl"] > 1e-6
    fresh = make_llama()
    own = dict(fresh.named_parameters())
    for name, value in trainer.model.named_parameters():
        if "lora_" not in name:
            assert torch.equal(own[name.replace(".base_layer", "")], value), name
    view = trainer.adapter.base()
    with torch.no_grad():
        hidden = view.get_decoder()(input_ids=IDS).last_hidden_state
        assert torch.equal(hidden, fresh.model(input_ids=IDS).last_hidden_state)
        assert not torch.allclose(hidden, trainer.model.model(input_ids=IDS).last_hidden_state, atol=1e-3)


def test_the_kl_to_the_base_is_that_to_a_copy_of_it():
    ends = []
    for of in (lambda trainer: trainer.adapter.base(), lambda trainer: make_llama()):
        trainer = trainer_of(config(kl={"placement": "loss", "beta": 0.5}))
        ends.append([update(trainer, of(trainer), seed)["kl"] for seed in range(3)])
    assert ends[0] == pytest.approx(ends[1], rel=1e-5, abs=1e-9)
    assert ends[0][2] > 1e-6


@pytest.mark.parametrize("family", MODELS)
def test_the_sums_are_a_plain_model_with_the_same_logits(family, tmp_path):
    trainer = trainer_of(config(), MODELS[family])
    update(trainer)
    merged = trainer.policy()
    merged.save_pretrained(tmp_path)
    plain = type(merged).from_pretrained(tmp_path).eval()
    assert set(plain.state_dict()) == set(MODELS[family]().state_dict())
    assert (logits(plain) - logits(trainer.model)).abs().max() < 1e-4
    assert (logits(plain) - logits(MODELS[family]())).abs().max() > 1e-2


def test_peft_reads_the_adapter_over_the_same_base(tmp_path):
    trainer = trainer_of(config())
    update(trainer)
    trainer.adapter.save(tmp_path)
    theirs = PeftModel.from_pretrained(make_llama(), tmp_path).eval()
    assert torch.equal(logits(theirs), logits(trainer.model))


def test_the_same_adapter_gives_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        trainer = trainer_of(config())
        update(trainer)
        trainer.adapter.save(tmp_path / name)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()
    assert {path.name for path in (tmp_path / "one").iterdir()} == {
        "adapter_config.json",
        "adapter_model.safetensors",
        "lineage.json",
    }


def test_a_resume_equals_the_run_that_went_on_to_the_last_bit(tmp_path):
    straight = trainer_of(config())
    for seed in range(3):
        update(straight, seed=seed)
    first = trainer_of(config())
    for seed in range(2):
        update(first, seed=seed)
    first.adapter.save(tmp_path / "adapter")
    first.save(tmp_path / "trainer")
    second = trainer_of(config(), saved=(tmp_path / "adapter", tmp_path / "trainer"), seed=99)
    metrics = update(second, seed=2)
    assert metrics["num_updates_total"] == 3
    for name, value in straight.model.state_dict().items():
        assert torch.equal(value, second.model.state_dict()[name]), name


def test_an_adapter_of_another_base_is_refused(tmp_path):
    trainer = trainer_of(config())
    update(trainer)
    trainer.adapter.save(tmp_path / "adapter")
    trainer.save(tmp_path / "trainer")
    with pytest.raises(ValueError, match="base d1, not on d2"):
        trainer_of(config(), saved=(tmp_path / "adapter", tmp_path / "trainer"), digest="d2")


def test_what_is_trained_is_counted_and_how_far_it_went():
    trainer = trainer_of(config(lora={"rank": 2, "alpha": 4, "target_modules": ["q_proj"]}))
    assert trainer.adapter.metrics() == {
        "lora_rank": 2.0,
        "lora_delta_norm": 0.0,
        "num_trained_parameters": 2.0 * (2 * 16 + 16 * 2),  # two layers, A and B of 16 x 16
    }
    metrics = update(trainer)
    assert metrics["lora_delta_norm"] > 0


def test_the_start_comes_from_the_seed_and_leaves_the_callers_random_state():
    torch.manual_seed(5)
    expected = torch.rand(1)
    make = make_llama()
    torch.manual_seed(5)
    one = trainer_of(config(), lambda: make)
    assert torch.equal(torch.rand(1), expected)
    two, other = trainer_of(config()), trainer_of(config(), seed=8)

    def first(trainer):
        return next(value for name, value in trainer.model.named_parameters() if "lora_A" in name)

    assert torch.equal(first(one), first(two))
    assert not torch.equal(first(one), first(other))


def test_dropout_an_empty_list_and_unknown_layers_are_refused_with_a_cure():
    with pytest.raises(ValueError, match=r"lora\.dropout is 0\.1.*leave it at 0"):
        config(lora={"dropout": 0.1})
    with pytest.raises(ValueError, match="target_modules is empty"):
        config(lora={"target_modules": []})
    with pytest.raises(ValueError, match=r"update\.lora\.target_modules.*no_such_layer"):
        trainer_of(config(lora={"target_modules": ["no_such_layer"]}))
