"""What ranks add up and how they keep in step, with the other rank's answers written by hand."""

import pytest
import torch

from tasks.grpo.algorithms import Objective
from tasks.grpo.batch import TokenSequence
from tasks.grpo.collective import ALONE, SharedModel
from tasks.grpo.logprobs import completion_logprobs
from tasks.grpo.tally import Tally
from tasks.runtime.optimiser import Optimiser
from tasks.values.optimiser import OptimiserConfig
from tests.conftest import make_llama


class Scripted:
    """Rank 0 of two; ``answers`` are what the other one says, one after another."""

    rank = 0

    def __init__(self, *answers):
        self.answers = list(answers)

    def part(self, sequences, layout, max_tokens):
        return sequences

    def gathered(self, value):
        return [value, self.answers.pop(0)]


def shared(model, collective):
    return SharedModel(model, lambda *arguments: completion_logprobs(model, *arguments), collective)


SEQUENCES = [TokenSequence(row, [1], [3, 4, 5]) for row in range(3)]


def test_a_rank_that_has_run_out_goes_on_while_another_works():
    batches = shared(make_llama(), Scripted(True, True, True, True, False)).batches("padded", SEQUENCES, 4)
    assert [None if batch is None else batch.rows for batch in batches] == [[0], [1], [2], None]


def test_a_rank_works_on_when_the_others_have_run_out():
    batches = shared(make_llama(), Scripted(True, False, False, False)).batches("padded", SEQUENCES, 4)
    assert [batch.rows for batch in batches] == [[0], [1], [2]]


def test_alone_nothing_is_added_to_the_micro_batches():
    assert [batch.rows for batch in ALONE.share(make_llama()).batches("padded", SEQUENCES, 8)] == [[0, 1], [2]]


def test_an_idle_pass_reaches_every_weight_with_a_gradient_of_exactly_zero():
    model = make_llama()
    loss = ALONE.share(model).idle()
    loss.backward()
    assert loss.item() == 0.0
    assert all(bool((parameter.grad == 0).all()) for parameter in model.parameters())


def tokens(ratio, largest, count, **more):
    sums = {"policy_loss": 1.0, "ratio": ratio, "clipped": 1, "entropy": 2.0, "tokens": count, **more}
    return Objective(torch.zeros(()), {key: torch.tensor(value) for key, value in sums.items()}, torch.tensor(largest))


def measured(tally, collective):
    optimiser = Optimiser(torch.nn.Linear(1, 1).named_parameters(), OptimiserConfig(learning_rate=1e-3))
    return tally.metrics(optimiser, collective)


def test_metrics_are_means_over_the_tokens_of_all_ranks():
    tally = Tally()
    tally.add_tokens(tokens(4.0, 1.5, 4))
    tally.add_tokens(tokens(2.0, 1.1, 2))
    tally.add_update(torch.tensor(-0.5), 3.0)
    other = ({"policy_loss": 0.5, "ratio": 6.0, "clipped": 4.0, "entropy": 1.0, "tokens": 6.0, "kl": 3.0}, 2.5)
    found = measured(tally, Scripted(other))
    assert found["num_trained_tokens"] == 12
    assert found["ratio_mean"] == pytest.approx((4 + 2 + 6) / 12)
    assert found["clip_fraction"] == pytest.approx((1 + 1 + 4) / 12)
    assert found["entropy"] == pytest.approx((2 + 2 + 1) / 12)
    assert found["policy_loss"] == pytest.approx(1 + 1 + 0.5)
    assert found["kl"] == pytest.approx(3 / 12)
    assert found["ratio_max"] == 2.5
    assert (found["loss"], found["grad_norm"]) == (-0.5, 3.0)  # every rank has been told the whole of both


def test_a_rank_that_had_no_micro_batch_reports_those_of_the_others():
    tally = Tally()
    tally.add_update(torch.tensor(-0.5), 3.0)
    other = ({"policy_loss": 0.5, "ratio": 6.0, "clipped": 3.0, "entropy": 1.0, "tokens": 6.0}, 2.5)
    found = measured(tally, Scripted(other))
    assert (found["ratio_mean"], found["ratio_max"], found["num_trained_tokens"]) == (1.0, 2.5, 6)
    assert "kl" not in found
