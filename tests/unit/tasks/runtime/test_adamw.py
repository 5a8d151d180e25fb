"""AdamW in float32 and eight bits, at home and in host memory."""

import pytest
import torch
from torch import nn

from tasks.runtime import adamw, blockwise
from tasks.runtime.blockwise import BLOCK, SIGNED, UNSIGNED, dequantised, dynamic_values, quantised
from tasks.runtime.optimiser import Optimiser
from tasks.values.optimiser import OptimiserConfig

SIZE = 5000  # above what is quantised, and no multiple of a block


def config(**changes):
    return OptimiserConfig(learning_rate=1e-2, max_grad_norm=1e9, **changes)


def weights(size=SIZE):
    torch.manual_seed(0)
    return nn.Parameter(torch.randn(size))


def gradients(number):
    generator = torch.Generator().manual_seed(number)
    scale = torch.logspace(-4, 0, SIZE)
    return torch.randn(SIZE, generator=generator) * scale


def trained(optimiser, parameter, numbers):
    for number in numbers:
        parameter.grad = gradients(number)
        optimiser.update()
    return parameter.detach().clone()


class TestCodes:
    def test_the_coarsest_interval_has_one_middle_and_the_finest_sixty_four(self):
        values = dynamic_values(1)
        assert len(values) == 127
        assert values[0] == pytest.approx(5.5e-7)  # the middle of [1e-7, 1e-6]
        assert values[1:3] == pytest.approx([3.25e-6, 7.75e-6])  # the quarters of [1e-6, 1e-5]
        assert values[-1] == pytest.approx(1 - 0.9 / 128)
        assert len(SIGNED.values_256) == len(UNSIGNED.values_256) == 256
        assert len(set(SIGNED.values_256.tolist())) == len(set(UNSIGNED.values_256.tolist())) == 256

    def test_a_block_keeps_its_largest_number_exactly_and_the_others_to_the_width_of_their_interval(self):
        numbers = torch.tensor([4.0, 0.0, 2.0, -2.0, 4e-3, 0.4])
        code, scale = quantised(numbers, SIGNED)
        found = dequantised(code, scale, SIGNED)
        assert scale.tolist() == [4.0]
        assert found[:2].tolist() == [4.0, 0.0]
        assert found[2] == -found[3]
        assert (found - numbers).abs().max() <= 4 * 0.9 / 64 / 2 + 1e-6

    def test_the_largest_number_of_a_block_may_be_negative(self):
        code, scale = quantised(torch.tensor([-4.0, 2.0]), SIGNED)
        assert scale.tolist() == [4.0]
        assert dequantised(code, scale, SIGNED).tolist() == pytest.approx([-4.0, 2.0], abs=4 * 0.9 / 64)

    def test_blocks_have_scales_of_their_own(self):
        numbers = torch.cat((torch.full((BLOCK,), 1000.0), torch.full((7,), 1e-3)))
        code, scale = quantised(numbers, UNSIGNED)
        assert scale.tolist() == pytest.approx([1000.0, 1e-3])
        assert dequantised(code, scale, UNSIGNED).tolist() == pytest.approx(numbers.tolist())

    def test_a_root_that_is_not_zero_stays_above_it(self):
        code, scale = quantised(torch.tensor([1.0, 1e-9, 0.0]), UNSIGNED)
        found = dequantised(code, scale, UNSIGNED).tolist()
        assert found[1] > 1e-8
        assert found[2] == 0.0
        assert dequantised(*quantised(torch.tensor([1.0, 1e-9]), SIGNED), SIGNED)[1] == 0.0

    @pytest.mark.parametrize("codes", [SIGNED, UNSIGNED], ids=["signed", "unsigned"])
    def test_the_look_up_finds_what_a_search_over_the_middles_finds(self, codes):
        middles = codes.middles_255
        up, down = torch.tensor(torch.inf), torch.tensor(-torch.inf)
        near = torch.cat((middles, middles.nextafter(up), middles.nextafter(down), codes.values_256))
        spread = torch.logspace(-9, 0, 5000)
        numbers = torch.cat((near, spread, -spread, torch.tensor([0.0, -0.0, 1e-40, -1e-40])))
        numbers = numbers[(numbers >= codes.values_256[0]) & (numbers <= 1)]
        blocks = nn.functional.pad(numbers, (0, -len(numbers) % (BLOCK - 1))).view(-1, BLOCK - 1)
        shares = nn.functional.pad(blocks, (0, 1), value=1.0)  # a 1 in each block: its scale
        found, scales = quantised(shares.view(-1), codes)
        expected = torch.bucketize(shares.view(-1), middles)
        if codes.keeps_from_zero:
            expected = expected.clamp(min=(shares.view(-1) > 0).int())
        assert scales.tolist() == [1.0] * len(shares)
        assert torch.equal(found.int(), expected.int())

    def test_a_number_that_is_not_finite_does_not_come_back_as_one_that_is(self):
        for bad in (float("nan"), float("inf")):
            found = dequantised(*quantised(torch.tensor([1.0, bad]), SIGNED), SIGNED)
            assert not torch.isfinite(found).all()


class TestFloat32:
    def test_the_weights_are_those_of_pytorchs_adamw(self):
        own, theirs = weights(), weights()
        found = trained(Optimiser([("w", own)], config(weight_decay=0.1)), own, range(5))
        peer = torch.optim.AdamW([theirs], lr=1e-2, weight_decay=0.1)
        for number in range(5):
            theirs.grad = gradients(number)
            peer.step()
        assert (found - theirs).abs().max() < 1e-6

    def test_a_parameter_without_a_gradient_is_left_alone(self):
        moved, still = weights(), weights()
        optimiser = Optimiser([("moved", moved), ("still", still)], config(weight_decay=0.5))
        trained(optimiser, moved, range(2))
        assert torch.equal(still, weights())
        assert still not in optimiser._adamw.state


class TestInt8:
    def test_the_first_step_is_that_of_float32(self):
        own, full = weights(), weights()
        found = trained(Optimiser([("w", own)], config(state="int8")), own, [0])
        assert torch.equal(found, trained(Optimiser([("w", full)], config()), full, [0]))

    def test_later_steps_stay_near_those_of_float32(self):
        own, full, start = weights(), weights(), weights().detach()
        found = trained(Optimiser([("w", own)], config(state="int8")), own, range(30))
        expected = trained(Optimiser([("w", full)], config()), full, range(30))
        assert (found - expected).norm() < 0.05 * (expected - start).norm()

    def test_a_gradient_that_vanishes_moves_no_weight_further_than_one_that_stays(self):
        own = weights()
        optimiser = Optimiser([("w", own)], config(state="int8"))
        before = trained(optimiser, own, [0])
        own.grad = torch.zeros(SIZE)
        optimiser.update()
        assert (own - before).abs().max() <= 1e-2 * 1.05

    def test_the_state_takes_about_a_quarter_of_the_memory(self):
        sizes = {}
        for state in ("float32", "int8"):
            own = weights(1 << 16)
            optimiser = Optimiser([("w", own)], config(state=state))
            own.grad = torch.ones(1 << 16)
            optimiser.update()
            sizes[state] = sum(each.numel() * each.element_size() for each in optimiser._adamw.state[own].values())
        assert sizes == {"float32": 2 * 4 * (1 << 16) + 4, "int8": 2 * (1 << 16) + 2 * 4 * (1 << 8) + 4}

    def test_slices_change_nothing(self, monkeypatch):
        ends = []
        for size in (adamw.SLICE, blockwise.BLOCK * 3):
            monkeypatch.setattr(adamw, "SLICE", size)
            own = weights()
            ends.append(trained(Optimiser([("w", own)], config(state="int8")), own, range(4)))
        assert torch.equal(*ends)

    def test_small_parameters_are_kept_in_full(self):
        own = nn.Parameter(torch.ones(4, 4))
        optimiser = Optimiser([("w", own)], config(state="int8"))
        own.grad = torch.ones(4, 4)
        optimiser.update()
        assert set(optimiser._adamw.state[own]) == {"step", "exp_avg", "exp_avg_sq"}

    def test_a_resume_goes_on_bit_for_bit_from_safetensors(self, tmp_path):
        straight = weights()
        expected = trained(Optimiser([("w", straight)], config(state="int8")), straight, range(6))
        own = weights()
        first = Optimiser([("w", own)], config(state="int8"))
        middle = trained(first, own, range(3))
        first.save(tmp_path)
        loaded = nn.Parameter(middle)
        second = Optimiser([("w", loaded)], config(state="int8"))
        second.load(tmp_path)
        assert torch.equal(expected, trained(second, loaded, range(3, 6)))
        assert {path.suffix for path in tmp_path.iterdir()} == {".safetensors", ".json"}

    def test_moments_in_eight_bits_are_refused_by_an_optimiser_in_full(self, tmp_path):
        own = weights()
        optimiser = Optimiser([("w", own)], config(state="int8"))
        trained(optimiser, own, [0])
        optimiser.save(tmp_path)
        with pytest.raises(ValueError, match=r'eight bits; set optimiser.state to "int8"'):
            Optimiser([("w", weights())], config()).load(tmp_path)


@pytest.mark.parametrize("state", adamw.UPDATES)
def test_a_state_in_host_memory_gives_the_same_numbers(state, tmp_path):
    ends = []
    for in_host_memory in (False, True):
        own = weights()
        optimiser = Optimiser([("w", own)], config(state=state), in_host_memory=in_host_memory)
        trained(optimiser, own, range(3))
        optimiser.save(tmp_path / str(in_host_memory))
        again = Optimiser([("w", own)], config(state=state), in_host_memory=in_host_memory)
        again.load(tmp_path / str(in_host_memory))
        ends.append(trained(again, own, range(3, 5)))
        assert {value.device.type for value in again._adamw.state[own].values()} == {"cpu"}
    assert torch.equal(*ends)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("state", adamw.UPDATES)
def test_on_a_device_the_state_in_host_memory_gives_the_same_numbers_and_is_pinned(state):
    ends = []
    for in_host_memory in (False, True):
        own = nn.Parameter(weights().detach().cuda())
        optimiser = Optimiser([("w", own)], config(state=state), in_host_memory=in_host_memory)
        for number in range(3):
            own.grad = gradients(number).cuda()
            optimiser.update()
        ends.append(own.detach().clone())
        kept = [value for name, value in optimiser._adamw.state[own].items() if name != "step"]
        assert all(value.is_pinned() == in_host_memory for value in kept)
    assert torch.equal(*ends)
