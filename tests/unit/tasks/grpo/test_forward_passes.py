"""How often an update asks a model: once per token in a step of one update, whatever the engine left unsaid."""

import math

import pytest
import torch

from tasks.grpo.config import UpdateConfig
from tasks.grpo.trainer import PolicyTrainer
from tests.conftest import make_llama

KL = {"placement": "loss", "beta": 0.5}


def sample(index, *, logprobs=None, signal=True):
    ids = [(index * 7 + position * 3) % 29 + 3 for position in range(3 + index)]
    return {
        "group_id": "g",
        "sample_index": index,
        "prompt_token_ids": [1, 5, 6],
        "completion_token_ids": ids,
        "sampler_logprobs": logprobs,
        "temperature": 0.8,
        "advantage": [1.0, -0.5, -0.75, 0.25][index] if signal else 0.0,
        "token_advantages": None,
        "is_masked": False,
        "has_signal": signal,
    }


ROWS = [sample(index) for index in range(4)]


def trainer_of(model, **changes):
    settings = {"algorithm": "grpo", "optimiser": {"learning_rate": 1e-2, "max_grad_norm": 1e9}, "kl": "none"}
    return PolicyTrainer(model, UpdateConfig.model_validate(settings | changes))


def counted(trainer, monkeypatch, rows=ROWS, reference=None):
    """(metrics, tokens forwarded with gradient, tokens forwarded without) of one update."""
    tokens = {True: 0, False: 0}
    for decoder in {id(each): each.model for each in (trainer.model, reference or trainer.model)}.values():
        forward = decoder.forward

        def counting(*, forward=forward, **inputs):
            tokens[torch.is_grad_enabled()] += inputs["input_ids"].numel()
            return forward(**inputs)

        monkeypatch.setattr(decoder, "forward", counting)
    metrics = trainer.update(rows, reference=reference, max_new_tokens=8, seed=3, on_progress=lambda done, total: None)
    return metrics, tokens[True], tokens[False]


def gradient(trainer):
    moments = [state["exp_avg"].flatten() for state in trainer.optimiser._adamw.state.values()]
    return torch.cat(moments) / (1 - 0.9)


NUM_PACKED = 3 + 3 + 4 + 5 + 6


@pytest.mark.parametrize("logprobs", [None, [None, math.nan, -1.0]])
def test_a_step_of_one_update_forwards_every_token_once_though_the_engine_said_nothing(monkeypatch, logprobs):
    rows = [sample(0, logprobs=logprobs), *ROWS[1:]]
    metrics, with_gradient, without = counted(trainer_of(make_llama()), monkeypatch, rows)
    assert (with_gradient, without) == (NUM_PACKED, 0)
    if logprobs is None:
        assert metrics["ratio_mean"] == metrics["ratio_max"] == 1.0
        assert metrics["grad_norm"] > 0.01


@pytest.mark.parametrize("changes", [{"num_epochs": 2}, {"minibatch_completions": 2}])
def test_a_step_of_several_updates_asks_the_weights_before_them_first(monkeypatch, changes):
    _, _, without = counted(trainer_of(make_llama(), **changes), monkeypatch)
    assert without == NUM_PACKED


def test_a_rollout_correction_asks_them_too(monkeypatch):
    changes = {"rollout_correction": {"kind": "token_mask", "low": 0.5, "high": 2.0}}
    _, _, without = counted(trainer_of(make_llama(), **changes), monkeypatch)
    assert without == NUM_PACKED


def test_a_reference_of_its_own_is_asked_once(monkeypatch):
    _, with_gradient, without = counted(trainer_of(make_llama(), kl=KL), monkeypatch, reference=make_llama(seed=1))
    assert (with_gradient, without) == (NUM_PACKED, NUM_PACKED)


class TestTheReferenceIsThePolicy:
    def test_a_step_of_one_update_asks_nobody_and_skips_what_has_no_signal(self, monkeypatch):
        trainer = trainer_of(make_llama(), kl=KL)
        rows = [*ROWS[:3], sample(3, signal=False)]
        metrics, with_gradient, without = counted(trainer, monkeypatch, rows, trainer.model)
        assert (with_gradient, without) == (NUM_PACKED - 6, 0)
        assert metrics["kl"] == 0.0

    @pytest.mark.parametrize("estimator", ["k2", "k3", "k3_importance"])
    @pytest.mark.parametrize("changes", [{}, {"minibatch_completions": 2, "num_epochs": 2}])
    def test_the_weights_end_where_a_copy_as_the_reference_leads(self, estimator, changes):
        kl = KL | {"estimator": estimator}
        ends = []
        for of in (lambda model: model, lambda model: make_llama()):
            trainer = trainer_of(make_llama(), kl=kl, **changes)
            rows = [*ROWS[:3], sample(3, signal=False)]
            trainer.update(
                rows, reference=of(trainer.model), max_new_tokens=8, seed=3, on_progress=lambda done, total: None
            )
            ends.append(gradient(trainer))
        assert (ends[0] - ends[1]).norm() < 1e-5 * ends[1].norm()


def test_the_gradient_is_the_one_of_recomputed_log_probabilities(monkeypatch):
    own, recomputed = trainer_of(make_llama()), trainer_of(make_llama())
    counted(own, monkeypatch)
    monkeypatch.setattr("tasks.grpo.frozen.num_updates", lambda config, num_completions: 2)
    _, _, without = counted(recomputed, monkeypatch)
    assert without == NUM_PACKED
    assert (gradient(own) - gradient(recomputed)).norm() < 1e-5 * gradient(recomputed).norm()
