"""The policy trainer: laws of the update over every algorithm, and a resume to the last bit."""

import copy
import math

import pytest
import torch

from tasks.grpo.config import UpdateConfig
from tasks.grpo.presets import PRESETS
from tasks.grpo.trainer import PolicyTrainer
from tasks.runtime.optimiser import NonFinite
from tests.conftest import make_llama

PROMPT = [1, 5, 6]


def silent(done, total):
    return None


def sample(index, advantage, *, length=4, group="g", masked=False, signal=True, logprobs=(), **changes):
    ids = [(index * 7 + position * 3) % 29 + 3 for position in range(length)]
    row = {
        "group_id": group,
        "sample_index": index,
        "prompt_token_ids": PROMPT,
        "completion_token_ids": ids,
        "sampler_logprobs": None if logprobs == () else logprobs,
        "temperature": 1.0,
        "advantage": advantage,
        "token_advantages": None,
        "is_masked": masked,
        "has_signal": signal,
    }
    return {**row, **changes}


NEEDED = {"cispo": {"objective": {"clip_high": 4.0}}, "ppo": {"critic": {"optimiser": {"learning_rate": 1e-2}}}}
MAX_NEW_TOKENS = 12


def config(algorithm="grpo", **changes):
    settings = {"algorithm": algorithm, "optimiser": {"learning_rate": 1e-2, "max_grad_norm": 1e9}, "kl": "none"}
    return UpdateConfig.model_validate({**settings, **NEEDED.get(algorithm, {}), **changes})


IN_LOSS = {"placement": "loss", "beta": 0.5}
ROWS = [sample(0, 1.0), sample(1, -0.5, length=7), sample(2, -0.5, length=2), sample(3, 0.25, length=5, group="h")]


def trained(trainer, rows, reference=None, seed=3):
    return trainer.update(rows, reference=reference, max_new_tokens=MAX_NEW_TOKENS, seed=seed, on_progress=silent)


def updated(rows, settings, reference=None, model=None):
    model = model or make_llama()
    metrics = trained(PolicyTrainer(model, settings), rows, reference)
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()]), metrics


def gradient(rows, settings, reference=None):
    """The first update's gradient: read off the first moment, (1 - beta1) * gradient."""
    trainer = PolicyTrainer(make_llama(), settings)
    metrics = trained(trainer, rows, reference)
    moments = [state["exp_avg"].flatten() for state in trainer.optimiser._adamw.state.values()]
    return torch.cat(moments) / (1 - 0.9), metrics


def plain_gradient(rows, beta=0.0, reference=None):
    """The same objective written down plainly, one unpadded sequence at a time."""
    model = make_llama()
    total = torch.zeros(())
    for row in rows:
        ids = torch.tensor([[*row["prompt_token_ids"], *row["completion_token_ids"]]])
        start = len(row["prompt_token_ids"])

        def logprobs(of, ids=ids, start=start):
            logits = of(input_ids=ids).logits[0, start - 1 : -1]
            return torch.log_softmax(logits, -1).gather(1, ids[0, start:, None]).squeeze(1)

        policy = logprobs(model)
        ratio = torch.exp(policy - policy.detach())
        loss = -(ratio * row["advantage"]).mean()
        if reference is not None:
            d = logprobs(reference).detach() - policy
            loss = loss + beta * (torch.exp(d) - d - 1).mean()
        total = total + loss / len(rows)
    total.backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def on_policy_gradient(rows, settings):
    """-A * mask / denominator with respect to each token's log-probability, pushed through the model."""
    model = make_llama()
    total = torch.zeros(())
    num_tokens = sum(len(row["completion_token_ids"]) for row in rows)
    for row in rows:
        ids, start = torch.tensor([[*row["prompt_token_ids"], *row["completion_token_ids"]]]), len(PROMPT)
        logits = model(input_ids=ids).logits[0, start - 1 : -1]
        logprobs = torch.log_softmax(logits, -1).gather(1, ids[0, start:, None])
        weight = {
            "sequence_mean": 1 / (len(rows) * len(logprobs)),
            "token_mean": 1 / num_tokens,
            "fixed_length": 1 / (len(rows) * MAX_NEW_TOKENS),
        }[settings.aggregation.kind]
        if getattr(settings.objective, "length", "") == "sum":
            weight = 1 / len(rows)  # the whole completion is one action
        total = total - weight * row["advantage"] * logprobs.sum()
    total.backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def test_the_gradient_equals_that_of_the_plain_objective():
    found, _ = gradient(ROWS, config())
    assert torch.allclose(found, plain_gradient(ROWS), rtol=1e-4, atol=1e-6)


def test_the_kl_to_the_reference_adds_its_gradient():
    reference = make_llama(seed=1)
    found, metrics = gradient(ROWS, config(kl=IN_LOSS), reference)
    assert torch.allclose(found, plain_gradient(ROWS, 0.5, reference), rtol=1e-4, atol=1e-6)
    assert metrics["kl"] > 0.01


@pytest.mark.parametrize("algorithm", PRESETS)
class TestLaws:
    def test_micro_batches_do_not_change_the_gradient(self, algorithm):
        whole, _ = gradient(ROWS, config(algorithm))
        cut, _ = gradient(ROWS, config(algorithm, micro_batch_tokens=1))
        assert torch.allclose(whole, cut, rtol=1e-4, atol=1e-6)

    def test_the_order_of_rows_does_not_change_the_gradient(self, algorithm):
        forward, _ = gradient(ROWS, config(algorithm))
        backward, _ = gradient(ROWS[::-1], config(algorithm))
        assert torch.allclose(forward, backward, rtol=1e-4, atol=1e-7)

    def test_the_order_of_rows_does_not_decide_who_shares_a_minibatch(self, algorithm):
        rows = [sample(index, advantage) for index, advantage in enumerate((1.0, -0.5, -0.5, 0.25, 0.5, -0.75))]
        settings = config(algorithm, minibatch_completions=2)
        expected, _ = updated(rows, settings)
        for order in ([5, 4, 3, 2, 1, 0], [2, 0, 5, 1, 4, 3], [1, 2, 3, 4, 5, 0]):
            found, _ = updated([rows[index] for index in order], settings)
            assert torch.allclose(expected, found, rtol=1e-4, atol=1e-5)

    def test_masked_rows_leave_numerator_and_denominator(self, algorithm):
        masked = [sample(9, 0.0, length=11, masked=True), sample(8, 5.0, masked=True, signal=False)]
        without, _ = gradient(ROWS, config(algorithm))
        with_masked, metrics = gradient([masked[0], *ROWS, masked[1]], config(algorithm))
        assert torch.allclose(without, with_masked, rtol=1e-4, atol=1e-7)
        assert metrics["num_trained_tokens"] == sum(len(row["completion_token_ids"]) for row in ROWS)

    def test_rows_without_signal_stay_in_the_denominator(self, algorithm):
        silent_rows = [{**row, "advantage": 0.0, "has_signal": False, "group_id": "n"} for row in ROWS]
        alone, _ = gradient(ROWS, config(algorithm))
        among, _ = gradient([*ROWS, *silent_rows], config(algorithm))
        assert torch.allclose(alone / 2, among, rtol=1e-4, atol=1e-7)

    def test_without_any_signal_no_weight_changes_and_the_skip_is_counted(self, algorithm):
        model = make_llama()
        before = torch.cat([parameter.detach().flatten().clone() for parameter in model.parameters()])
        after, metrics = updated([sample(0, 0.0, signal=False)] * 3, config(algorithm), model=model)
        assert torch.equal(before, after)
        assert (metrics["num_skipped_updates"], metrics["num_updates"]) == (1, 0)
        assert "loss" not in metrics

    def test_with_every_row_masked_nothing_happens(self, algorithm):
        _, metrics = updated([sample(0, 1.0, masked=True)], config(algorithm))
        assert metrics["num_updates"] == 0

    def test_on_policy_the_ratio_is_one_and_the_gradient_is_that_of_the_plain_policy_gradient(self, algorithm):
        found, metrics = gradient(ROWS, config(algorithm))
        assert metrics["ratio_mean"] == metrics["ratio_max"] == 1.0
        assert metrics["clip_fraction"] == 0.0
        assert metrics["grad_norm"] > 0.01
        assert torch.allclose(found, on_policy_gradient(ROWS, config(algorithm)), rtol=1e-4, atol=1e-6)

    def test_a_second_epoch_compares_with_the_frozen_log_probabilities(self, algorithm):
        _, metrics = updated(ROWS, config(algorithm, num_epochs=2))
        assert metrics["num_updates"] == 2
        has_ratio = config(algorithm).objective.kind != "log_likelihood"
        assert (abs(metrics["ratio_mean"] - 1.0) > 1e-5) == has_ratio

    def test_a_micro_batch_without_a_usable_row_changes_nothing(self, algorithm):
        rows = [*ROWS, sample(30, 5.0, length=40, masked=True), sample(31, 0.0, length=40, signal=False, masked=True)]
        alone, metrics = gradient(ROWS, config(algorithm, micro_batch_tokens=1))
        among, with_them = gradient(rows, config(algorithm, micro_batch_tokens=1))
        assert torch.allclose(alone, among, rtol=1e-4, atol=1e-7)
        assert metrics["loss"] == pytest.approx(with_them["loss"], abs=1e-6)

    def test_without_rows_nothing_happens_and_no_mean_is_made_up(self, algorithm):
        before, metrics = updated([], config(algorithm))
        assert torch.equal(before, torch.cat([each.detach().flatten() for each in make_llama().parameters()]))
        assert metrics["num_updates"] == 0
        assert not {"loss", "entropy", "ratio_mean", "grad_norm"} & set(metrics)

    def test_with_kl_rows_without_signal_do_learn(self, algorithm):
        rows = [sample(0, 0.0, signal=False), sample(1, 1.0)]
        reference = make_llama(seed=1)
        _, metrics = updated(rows, config(algorithm, kl=IN_LOSS, minibatch_completions=1), reference)
        assert (metrics["num_updates"], metrics["num_trained_tokens"]) == (2, 8)
        with_both, _ = gradient(rows, config(algorithm, kl=IN_LOSS), reference)
        masked = [{**rows[0], "is_masked": True}, rows[1]]
        with_one, _ = gradient(masked, config(algorithm, kl=IN_LOSS), reference)
        assert not torch.allclose(with_both, with_one / 2, rtol=1e-2)

    @pytest.mark.parametrize("changes", [{"kl": IN_LOSS}, {"entropy_coefficient": 0.5}])
    def test_a_step_without_any_signal_leaves_every_bit_as_it_was(self, algorithm, changes):
        model = make_llama()
        before = copy.deepcopy(model.state_dict())
        settings = config(algorithm, minibatch_completions=2, num_epochs=2, **changes)
        rows = [sample(index, 0.0, signal=False) for index in range(3)]
        _, metrics = updated(rows, settings, make_llama(seed=1) if "kl" in changes else None, model)
        assert (metrics["num_updates"], metrics["num_skipped_updates"]) == (0, 4)
        assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_the_sampler_log_probabilities_are_the_ones_compared_with():
    rows = [sample(0, 1.0, logprobs=[-9.0] * 4)]
    _, metrics = updated(rows, config())
    assert metrics["clip_fraction"] == 1.0
    assert metrics["num_recomputed_logprobs"] == 0
    _, metrics = updated([sample(0, 1.0)], config())
    assert metrics["num_recomputed_logprobs"] == 4


def test_dropout_in_the_model_settings_does_not_move_the_ratio():
    model = make_llama(attention_dropout=0.5).train()
    _, metrics = updated(ROWS, config(), model=model)
    assert metrics["ratio_mean"] == 1.0


def test_minibatches_make_one_update_each_with_denominators_of_their_own():
    _, metrics = updated(ROWS, config(minibatch_completions=2, num_epochs=3))
    assert metrics["num_updates"] == 6


@pytest.mark.parametrize("aggregation", ["sequence_mean", "token_mean"])
def test_the_denominator_is_that_of_the_minibatch(aggregation):
    rows = [sample(index, 1.0) for index in range(4)]
    frozen = {"learning_rate": 1e-12, "max_grad_norm": 1e9}
    _, metrics = updated(rows, config(aggregation=aggregation, minibatch_completions=2, optimiser=frozen))
    assert metrics["num_updates"] == 2
    assert metrics["policy_loss"] == pytest.approx(-1.0, abs=1e-5)


def test_a_loss_that_is_not_finite_names_its_row_and_changes_no_weight():
    model = make_llama()
    before = copy.deepcopy(model.state_dict())
    rows = [*ROWS, sample(7, math.nan, group="bad")]
    with pytest.raises(NonFinite, match="bad/7") as error:
        updated(rows, config(), model=model)
    assert "g/0" not in str(error.value)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_too_few_log_probabilities_name_the_row():
    with pytest.raises(ValueError, match="g/0 has 3 log-probs for 4 tokens"):
        updated([sample(0, 1.0, logprobs=[-1.0] * 3)], config())


def test_temperature_zero_is_refused():
    with pytest.raises(ValueError, match="temperature"):
        updated([sample(0, 1.0, temperature=0.0)], config())


def test_a_reference_without_kl_and_kl_without_a_reference_are_refused():
    with pytest.raises(ValueError, match="do not go together"):
        updated(ROWS, config(kl=IN_LOSS))
    with pytest.raises(ValueError, match="do not go together"):
        updated(ROWS, config(), make_llama())


def test_a_resume_equals_the_uninterrupted_run_to_the_last_bit(tmp_path):
    settings = config(optimiser={"learning_rate": 1e-2, "num_warmup_updates": 4}, minibatch_completions=2)
    straight = PolicyTrainer(make_llama(), settings)
    for step in range(3):
        trained(straight, ROWS, seed=step)
    first = PolicyTrainer(make_llama(), settings)
    for step in range(2):
        trained(first, ROWS, seed=step)
    first.save(tmp_path / "trainer")
    first.model.save_pretrained(tmp_path)
    loaded = type(first.model).from_pretrained(tmp_path)
    second = PolicyTrainer.load(loaded, settings, tmp_path / "trainer")
    metrics = trained(second, ROWS, seed=2)
    assert metrics["num_updates_total"] == 6
    for name, value in straight.model.state_dict().items():
        assert torch.equal(value, second.model.state_dict()[name]), name


MANY = [sample(index, (-1.0) ** index * (index + 1) / 4, length=3 + index % 4) for index in range(6)]


def test_minibatches_are_drawn_anew_from_the_seed_and_the_last_one_may_be_short():
    settings = config(minibatch_completions=4)
    ends = []
    for seed in (1, 2):
        model = make_llama()
        metrics = trained(PolicyTrainer(model, settings), MANY, seed=seed)
        assert metrics["num_updates"] == 2
        assert metrics["num_trained_tokens"] == sum(len(row["completion_token_ids"]) for row in MANY)
        ends.append(model.model.embed_tokens.weight.detach())
    assert not torch.equal(*ends)


def test_advantages_by_token_are_used_where_they_are_given():
    outcome, _ = gradient([sample(0, 1.0)], config())
    by_token, _ = gradient([sample(0, 1.0, token_advantages=[1.0, 0.0, 0.0, 0.0])], config())
    last, _ = gradient([sample(0, 1.0, token_advantages=[0.0, 1.0, 1.0, 1.0])], config())
    assert not torch.allclose(outcome, by_token, rtol=1e-2)
    assert torch.allclose(outcome, by_token + last, rtol=1e-4, atol=1e-6)


def test_each_completion_keeps_the_temperature_it_was_sampled_at():
    pair = [sample(0, 1.0, temperature=0.5), sample(1, -1.0, temperature=2.0)]
    together, _ = gradient(pair, config())
    apart, _ = gradient(pair, config(micro_batch_tokens=1))
    assert torch.allclose(together, apart, rtol=1e-4, atol=1e-6)


def test_an_infinite_loss_is_refused_also_when_its_gradient_is_finite():
    rows = [sample(5, -3e38, group="huge", logprobs=[-100.0] * 4)]
    with pytest.raises(NonFinite, match=r"loss is inf.*huge/5"):
        updated(rows, config())


class TestUnknownLogprobs:
    """An engine may leave out what was nearly certain, or give NaN."""

    def known(self, row=ROWS[1]):
        ids = torch.tensor([[*row["prompt_token_ids"], *row["completion_token_ids"]]])
        with torch.no_grad():
            logprobs = torch.log_softmax(make_llama()(input_ids=ids).logits[0, len(PROMPT) - 1 : -1], -1)
        return logprobs.gather(1, ids[0, len(PROMPT) :, None])[:, 0].tolist()

    @pytest.mark.parametrize("hole", [None, math.nan, -math.inf, math.inf])
    def test_a_hole_is_filled_with_the_weights_before_the_update(self, hole):
        said = [value - 0.1 for value in self.known()]
        said[2] = hole
        _, metrics = updated([{**ROWS[1], "sampler_logprobs": said}], config())
        assert metrics["num_recomputed_logprobs"] == 1
        assert metrics["ratio_mean"] == pytest.approx((6 * math.exp(0.1) + 1) / 7, abs=1e-5)
        assert metrics["ratio_max"] == pytest.approx(math.exp(0.1), abs=1e-5)

    def test_a_correction_compares_engine_and_trainer_where_both_are_known(self):
        said = [value - 0.1 for value in self.known()]
        said[2] = math.nan
        settings = config(rollout_correction={"kind": "token_truncate", "cap": 1.05})
        _, metrics = updated([{**ROWS[1], "sampler_logprobs": said}], settings)
        assert metrics["ratio_mean"] == 1.0  # the ratio is to the trainer's own numbers
        assert metrics["engine_difference_mean"] == pytest.approx(0.1, abs=1e-5)
        assert metrics["engine_difference_max"] == pytest.approx(0.1, abs=1e-5)
        assert metrics["correction_raw_mean"] == pytest.approx(math.exp(0.1), abs=1e-5)
        assert metrics["correction_mean"] == pytest.approx(1.05, abs=1e-6)
        assert metrics["num_corrected_tokens"] == 6

    def test_the_correction_is_a_factor_of_the_gradient(self):
        said = [value - 0.1 for value in self.known()]
        row = {**ROWS[1], "sampler_logprobs": said}
        plain, _ = gradient([ROWS[1]], config())
        corrected, _ = gradient([row], config(rollout_correction={"kind": "token_truncate", "cap": 9.0}))
        assert torch.allclose(corrected, plain * math.exp(0.1), rtol=1e-3, atol=1e-6)
        capped, _ = gradient([row], config(rollout_correction={"kind": "token_truncate", "cap": 0.5}))
        assert torch.allclose(capped, plain * 0.5, rtol=1e-3, atol=1e-6)

    def test_masked_tokens_leave_the_denominator_and_a_masked_completion_the_batch(self):
        said = [value - (5.0 if index == 0 else 0.0) for index, value in enumerate(self.known())]
        row = {**ROWS[1], "sampler_logprobs": said}
        settings = config(aggregation="token_mean", rollout_correction={"kind": "token_mask"})
        found, metrics = gradient([row, ROWS[0]], settings)
        assert metrics["num_tokens_masked_by_correction"] == 1
        assert metrics["num_trained_tokens"] == 6 + 4
        by_token = {**ROWS[1], "token_advantages": [0.0] + [-0.5] * 6}
        expected, _ = gradient([by_token, ROWS[0]], config(aggregation="token_mean"))
        assert torch.allclose(found, expected * 11 / 10, rtol=1e-3, atol=1e-6)
        settings = config(rollout_correction={"kind": "sequence_mask"})
        found, _ = gradient([row, ROWS[0]], settings)
        expected, _ = gradient([ROWS[0]], config())
        assert torch.allclose(found, expected, rtol=1e-3, atol=1e-6)


def test_the_entropy_bonus_raises_the_entropy_and_needs_no_advantage():
    rows = [sample(index, 0.0) for index in range(2)]
    model = make_llama()
    trainer = PolicyTrainer(model, config(entropy_coefficient=0.1))
    entropies = [trained(trainer, rows)["entropy"] for _ in range(5)]
    assert entropies == sorted(entropies)
    assert entropies[-1] > entropies[0] + 0.05


def test_the_entropy_bonus_has_the_gradient_of_the_mean_entropy():
    row = sample(0, 0.0)
    found, metrics = gradient([row], config(entropy_coefficient=0.5))
    model = make_llama()
    ids = torch.tensor([[*row["prompt_token_ids"], *row["completion_token_ids"]]])
    logprobs = torch.log_softmax(model(input_ids=ids).logits[0, len(PROMPT) - 1 : -1], -1)
    entropy = -(logprobs.exp() * logprobs).sum(-1).mean()
    (-0.5 * entropy).backward()
    expected = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    assert torch.allclose(found, expected, rtol=1e-4, atol=1e-6)
    assert metrics["entropy"] == pytest.approx(entropy.item(), abs=1e-5)
    assert metrics["loss"] == pytest.approx(-0.5 * entropy.item(), abs=1e-5)
    assert metrics["policy_loss"] == 0.0
