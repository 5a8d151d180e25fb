"""The same advantages, loss and gradient as TRL 1.16's own trainers, on the same model, prompts, completions, rewards and
old log-probabilities, in float32.

TRL's side is its real ``_generate_and_score_completions`` and ``compute_loss``, ours the real ``build_samples`` and
``PolicyTrainer``. Where the conventions differ, cases.py has the setting that makes them equal, with the reason.
"""

import pytest
import torch

from tests.conftest import make_llama
from tests.parity.cases import CASES, MISTAKES
from tests.parity.sides import ours, theirs

pytestmark = pytest.mark.parity

RELATIVE = 1e-5


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The policy's weights as a folder: TRL loads its reference from where the policy came from."""
    path = tmp_path_factory.mktemp("policy")
    make_llama(num_hidden_layers=1).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def peer(folder, tmp_path_factory):
    """TRL's numbers of a case, computed once."""
    found = {}

    def of(case):
        if case not in found:
            found[case] = theirs(folder, CASES[case], tmp_path_factory.mktemp("trl"))
        return found[case]

    return of


def relative(found, expected):
    return float((found - expected).double().norm() / expected.double().norm())


def compared(found, expected):
    return {
        "loss": abs(found.loss - expected.loss) / abs(expected.loss),
        "gradient": relative(found.gradient, expected.gradient),
        "advantages": relative(found.advantages_B, expected.advantages_B),
    }


@pytest.mark.parametrize("case", CASES)
def test_advantages_loss_and_gradient_are_those_of_trl(case, folder, peer, differences):
    found = compared(ours(folder, CASES[case].ours), peer(case))
    for quantity, difference in found.items():
        differences[quantity][case] = difference
    assert max(found.values()) < RELATIVE, found


@pytest.mark.parametrize("case", CASES)
def test_both_clips_are_at_work_in_what_is_compared(case, peer):
    """Otherwise a wrong bound would not show. A loss near 0 would make of rounding a relative difference."""
    expected = peer(case)
    assert float(expected.gradient.norm()) > 0.1
    assert abs(expected.loss) > 0.01
    clipped = ["cispo_clip_ratio"] if case == "cispo" else ["clip_ratio/low_mean", "clip_ratio/high_mean"]
    assert all(0 < expected.metrics[name] < 1 for name in clipped)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_setting_that_means_something_else_does_not_pass(mistake, folder, peer):
    wrong = MISTAKES[mistake]
    found = compared(ours(folder, {**CASES[wrong.case].ours, **wrong.ours}), peer(wrong.case))
    assert max(found.values()) > 100 * RELATIVE


def test_the_group_without_signal_has_advantage_zero_on_both_sides(folder, peer):
    found = ours(folder, CASES["grpo"].ours)
    assert torch.equal(found.advantages_B[-4:], torch.zeros(4).double())
    assert torch.equal(peer("grpo").advantages_B[-4:], torch.zeros(4).double())
