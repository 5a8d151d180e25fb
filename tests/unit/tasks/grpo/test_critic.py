"""The critic: what it reads, how it learns, how it is kept."""

import math

import pytest
import torch

from tasks.grpo.batch import TokenSequence, pad
from tasks.grpo.components import CriticConfig
from tasks.grpo.critic import Critic, CriticTrainer, explained_variance, values_by_row
from tasks.runtime.optimiser import NonFinite
from tests.conftest import make_llama


@pytest.fixture
def folder(tmp_path):
    make_llama().save_pretrained(tmp_path / "policy")
    return tmp_path / "policy"


def make_critic(folder):
    return Critic.from_policy(folder, device="cpu", seed=1)


def config(**changes):
    return CriticConfig.model_validate({"optimiser": {"learning_rate": 1e-2}, **changes})


def row(index, length, returns, *, masked=False):
    return {
        "group_id": "g",
        "sample_index": index,
        "prompt_token_ids": [1, 5 + index],
        "completion_token_ids": [(index * 7 + position) % 29 + 3 for position in range(length)],
        "returns": [returns] * length,
        "values": [0.0] * length,
        "is_masked": masked,
    }


ROWS = [row(0, 3, 1.0), row(1, 5, 0.0), row(2, 1, 0.5)]


def silent(done, total):
    return None


def flat(critic):
    return torch.cat([parameter.detach().flatten() for parameter in critic.parameters()])


def gradient(folder, rows, **changes):
    """The first update's gradient: read off the first moment, (1 - beta1) * gradient."""
    settings = config(optimiser={"learning_rate": 1e-2, "max_grad_norm": 1e9}, clip_value=None, **changes)
    trainer = CriticTrainer(make_critic(folder), settings)
    trainer.train(rows, seed=1, on_progress=silent)
    return torch.cat([state["exp_avg"].flatten() for state in trainer.optimiser._adamw.state.values()]) / (1 - 0.9)


def test_a_value_is_read_before_its_token_and_does_not_see_it(folder):
    critic = make_critic(folder)
    with torch.no_grad():
        found = critic(pad([TokenSequence(0, [1, 5], [7, 8, 9])], "cpu"))[0]
        hidden = critic.backbone(input_ids=torch.tensor([[1, 5, 7, 8]])).last_hidden_state[0, 1:]
        assert found.tolist() == pytest.approx(critic.head(hidden)[:, 0].tolist(), abs=1e-5)
        other = critic(pad([TokenSequence(0, [1, 5], [7, 8, 11])], "cpu"))[0]
    assert torch.equal(found, other)


def test_company_and_padding_change_no_value(folder):
    critic = make_critic(folder)
    together = values_by_row(critic, ROWS, [0, 1, 2], 10_000)
    apart = values_by_row(critic, ROWS, [2, 0, 1], 1)
    for index, length in enumerate((3, 5, 1)):
        assert together[index].shape == (length,)
        assert torch.allclose(together[index], apart[index], atol=1e-6)


def test_training_brings_the_values_to_the_returns(folder):
    trainer = CriticTrainer(make_critic(folder), config(clip_value=None, num_epochs=150))
    metrics = trainer.train(ROWS, seed=1, on_progress=silent)
    assert metrics["num_updates"] == 150
    values = values_by_row(trainer.critic, ROWS, [0, 1, 2], 10_000)
    for each, index in zip(ROWS, range(3), strict=True):
        assert values[index].tolist() == pytest.approx(each["returns"], abs=0.1)


def test_neither_micro_batches_nor_the_order_of_rows_change_the_gradient(folder):
    whole = gradient(folder, ROWS)
    assert torch.allclose(whole, gradient(folder, ROWS, micro_batch_tokens=1), rtol=1e-4, atol=1e-6)
    assert torch.allclose(whole, gradient(folder, ROWS[::-1]), rtol=1e-4, atol=1e-6)


def test_the_order_of_rows_does_not_decide_who_shares_a_minibatch(folder):
    ends = []
    for rows in (ROWS, ROWS[::-1]):
        trainer = CriticTrainer(make_critic(folder), config(minibatch_completions=1))
        assert trainer.train(rows, seed=1, on_progress=silent)["num_updates"] == 3
        ends.append(flat(trainer.critic))
    assert torch.allclose(*ends, atol=1e-6)


def test_masked_rows_take_no_part(folder):
    masked = row(9, 7, 50.0, masked=True)
    assert torch.allclose(gradient(folder, ROWS), gradient(folder, [masked, *ROWS]), rtol=1e-4, atol=1e-6)


def test_the_gradient_is_the_mean_error_over_tokens(folder):
    critic = make_critic(folder)
    values = critic(pad([TokenSequence(0, [1, 5], ROWS[0]["completion_token_ids"])], "cpu"))[0]
    (0.5 * (values - 1.0) ** 2).mean().backward()
    expected = torch.cat([parameter.grad.flatten() for parameter in critic.parameters() if parameter.grad is not None])
    assert torch.allclose(gradient(folder, ROWS[:1]), expected, rtol=1e-4, atol=1e-6)


def test_without_rows_nothing_happens(folder):
    critic = make_critic(folder)
    before = flat(critic)
    metrics = CriticTrainer(critic, config()).train([], seed=1, on_progress=silent)
    assert torch.equal(before, flat(critic))
    assert metrics == {"num_updates": 0.0, "num_updates_total": 0.0}


def test_a_target_that_is_not_finite_names_its_rows_and_changes_nothing(folder):
    critic = make_critic(folder)
    before = flat(critic)
    with pytest.raises(NonFinite, match="g/4"):
        CriticTrainer(critic, config()).train([row(4, 2, math.nan)], seed=1, on_progress=silent)
    assert torch.equal(before, flat(critic))


def test_a_resume_equals_the_uninterrupted_training(folder, tmp_path):
    straight = CriticTrainer(make_critic(folder), config(minibatch_completions=2))
    for seed in (1, 2):
        straight.train(ROWS, seed=seed, on_progress=silent)
    first = CriticTrainer(make_critic(folder), config(minibatch_completions=2))
    first.train(ROWS, seed=1, on_progress=silent)
    first.critic.save(tmp_path / "critic")
    first.save(tmp_path / "critic" / "trainer")
    loaded = Critic.load(tmp_path / "critic", device="cpu")
    second = CriticTrainer.load(loaded, config(minibatch_completions=2), tmp_path / "critic" / "trainer")
    assert second.train(ROWS, seed=2, on_progress=silent)["num_updates_total"] == 4
    assert torch.equal(flat(straight.critic), flat(second.critic))


def test_a_policy_is_not_taken_for_a_critic(folder):
    with pytest.raises(ValueError, match=r"is no critic: it has no value_head\.safetensors"):
        Critic.load(folder, device="cpu")


def test_explained_variance():
    rows = [{"returns": [1.0, 0.0], "values": [1.0, 0.0]}, {"returns": [0.5], "values": [0.5]}]
    assert explained_variance(rows) == {"explained_variance": 1.0}
    assert explained_variance([{"returns": [1.0, 0.0], "values": [0.3, 0.3]}]) == {"explained_variance": 0.0}
    assert explained_variance([{"returns": [1.0, 1.0], "values": [0.0, 0.3]}]) == {}
