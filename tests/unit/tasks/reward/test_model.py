"""The reward model: where it reads, what it learns, and that it comes back bit for bit."""

import math

import pytest
import torch
from transformers import GemmaConfig, GemmaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from tasks.policy.characters import build_tokenizer
from tasks.reward.config import PairsConfig, PointsConfig, RewardTrainingConfig
from tasks.reward.encoding import num_cut, sequence_ids
from tasks.reward.head import RewardModel
from tasks.reward.label_kinds import LABELS
from tasks.reward.measures import agreement, judge_rows
from tasks.reward.scorer import score_rows
from tasks.reward.trainer import RewardTrainer
from tasks.runtime.optimiser import NonFinite
from tests.conftest import make_gpt2, make_llama


def make_qwen2():
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, initializer_range=0.3, eos_token_id=2, pad_token_id=2, attention_dropout=0.5,
    )  # fmt: skip
    return Qwen2ForCausalLM(config)


def make_gemma():
    torch.manual_seed(0)
    config = GemmaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, head_dim=8,
        num_key_value_heads=1, initializer_range=0.3, bos_token_id=1, eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    return GemmaForCausalLM(config)


FAMILIES = {"llama": make_llama, "qwen2": make_qwen2, "gpt2": make_gpt2, "gemma": make_gemma}


@pytest.fixture(params=FAMILIES)
def model(request, tmp_path):
    FAMILIES[request.param]().save_pretrained(tmp_path / "policy")
    build_tokenizer().save_pretrained(tmp_path / "policy")
    return RewardModel.from_policy(tmp_path / "policy", device="cpu", seed=0)


def silent(done, total):
    return None


def score(model, ids, length):
    with torch.no_grad():
        return model(torch.tensor([ids]), torch.tensor([length])).item()


def test_padding_does_not_change_the_score(model):
    alone = score(model, [5, 6, 7, 8], 4)
    assert score(model, [5, 6, 7, 8, 0, 0], 4) == pytest.approx(alone, abs=1e-5)
    assert score(model, [5, 6, 7, 8, 2, 2], 4) == pytest.approx(alone, abs=1e-5)


def test_the_score_is_read_at_the_last_real_token_also_when_that_is_the_pad_id(model):
    ids = [5, 6, 2, 7, 8, 2, 2, 2]
    with torch.no_grad():
        hidden = model.backbone(input_ids=torch.tensor([ids[:6]])).last_hidden_state
        expected = model.head(hidden[0, 5]).item()
        one_early = model.head(hidden[0, 4]).item()
    assert score(model, ids, 6) == pytest.approx(expected, abs=1e-5)
    assert abs(expected - one_early) > 1e-3


def rows(*completions):
    return [{"prompt_token_ids": [1, 4], "completion_token_ids": list(ids)} for ids in completions]


def test_scores_do_not_depend_on_batching(model):
    completions = rows([5, 2], [6] * 9, [7, 8, 9, 2], [5, 5, 5])
    together = score_rows(model, completions, micro_batch_tokens=1000, max_tokens=50)
    apart = score_rows(model, completions, micro_batch_tokens=1, max_tokens=50)
    assert together == pytest.approx(apart, abs=1e-5)
    assert score_rows(model, completions, micro_batch_tokens=1000, max_tokens=50) == together


def test_training_and_scoring_read_the_same_ids():
    assert sequence_ids([1, 4], [5, 2], 10) == [1, 4, 5, 2]  # finished: its own eos, once
    assert sequence_ids([1, 4], [5, 6, 7], 4) == [1, 4, 5, 6]  # cut: none is added


PAIR = LABELS[PairsConfig]
POINT = LABELS[PointsConfig]


def measure(model, rows):
    return agreement([each for _, each in judge_rows(model, rows, PAIR, micro_batch_tokens=1000, max_tokens=50)])


def pair(name, chosen, rejected, replayed=False):
    return {
        "label_id": name,
        "prompt_key": name,
        "prompt_token_ids": [1, 4],
        "chosen_token_ids": chosen,
        "rejected_token_ids": rejected,
        "is_replayed": replayed,
    }


PAIRS = [pair(f"p{index}", [5 + index, 9, 2], [5 + index, 10, 11, 2], index > 5) for index in range(8)]


POINTS = [
    {
        "label_id": f"{row['label_id']}:{side}",
        "prompt_key": row["prompt_key"],
        "prompt_token_ids": row["prompt_token_ids"],
        "completion_token_ids": row[f"{side}_token_ids"],
        "label": float(side == "chosen"),
        "is_replayed": row["is_replayed"],
    }
    for row in PAIRS
    for side in ("chosen", "rejected")
]


def config(**changes):
    settings = {"optimiser": {"learning_rate": 1e-2}, "batch_labels": 4, "num_epochs": 3}
    return RewardTrainingConfig.model_validate({**settings, **changes})


def test_it_learns_which_side_is_better(model):
    metrics = RewardTrainer(model, config(num_epochs=10), PAIR).train(PAIRS, seed=0, on_progress=silent)
    assert measure(model, PAIRS)["accuracy"] == 1.0
    assert (metrics["num_fresh"], metrics["num_replayed"], metrics["num_updates_total"]) == (6, 2, 20)


def test_a_point_model_learns_the_probability_of_being_right(model):
    RewardTrainer(model, config(num_epochs=30), POINT).train(POINTS, seed=0, on_progress=silent)
    judged = judge_rows(model, POINTS, POINT, micro_batch_tokens=1000, max_tokens=50)
    found = agreement([each for _, each in judged])
    assert (found["accuracy"], found["auc"], found["num_labels"]) == (1.0, 1.0, 16)


def test_the_loss_of_points_is_the_one_of_the_scorers_numbers(model):
    scores = score_rows(model, POINTS, micro_batch_tokens=1000, max_tokens=50)
    expected = sum(math.log1p(math.exp(-s if row["label"] else s)) for s, row in zip(scores, POINTS, strict=True)) / 16
    metrics = RewardTrainer(model, config(num_epochs=1, batch_labels=16), POINT).train(
        POINTS, seed=0, on_progress=silent
    )
    assert metrics["loss"] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(("kind", "labels"), [(PAIR, PAIRS), (POINT, POINTS)], ids=["pairs", "points"])
def test_micro_batches_change_neither_the_loss_nor_any_gradient(model, tmp_path, kind, labels):
    examples = [kind.example(row, 50) for row in labels]
    gradients = []
    for budget in (10_000, 24, 1):
        trainer = RewardTrainer(model, config(micro_batch_tokens=budget), kind)
        trainer.optimiser.update = lambda: 0.0  # the gradients are looked at and not applied
        loss, _ = trainer._update(examples)
        gradients.append((loss, [each.grad.clone() for each in model.parameters() if each.grad is not None]))
    for loss, found in gradients[1:]:
        assert loss.item() == pytest.approx(gradients[0][0].item(), rel=1e-5)
        assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(found, gradients[0][1], strict=True))
    assert any(float(each.abs().max()) > 1e-3 for each in gradients[0][1])


def test_scores_at_several_positions_are_those_of_the_prefixes(model):
    ids, lengths = torch.tensor([[5, 6, 7, 8, 2, 2], [6, 9, 2, 2, 2, 2]]), torch.tensor([5, 3])
    with torch.no_grad():
        found = model.scores_at(ids, lengths, [[1, 4], [2]])
    expected = [score(model, [5, 6], 2), score(model, [5, 6, 7, 8, 2], 5), score(model, [6, 9, 2], 3)]
    assert found.tolist() == pytest.approx(expected, abs=1e-5)
    for outside in ([[5], [0]], [[-1], [0]]):
        with pytest.raises(ValueError, match="row 0 has 5 tokens"):
            model.scores_at(ids, lengths, outside)


def test_micro_batches_do_not_change_the_training(model, tmp_path):
    model.save(tmp_path / "start")
    losses = []
    for budget in (10_000, 1):
        copy = RewardModel.load(tmp_path / "start", device="cpu")
        settings = config(num_epochs=1, batch_labels=8, micro_batch_tokens=budget)
        losses.append(RewardTrainer(copy, settings, PAIR).train(PAIRS, seed=0, on_progress=silent))
    assert losses[0]["loss"] == pytest.approx(losses[1]["loss"], rel=1e-5)
    assert losses[0]["grad_norm"] == pytest.approx(losses[1]["grad_norm"], rel=1e-4)


def test_a_resume_equals_the_uninterrupted_training_to_the_last_bit(model, tmp_path):
    straight = RewardTrainer(model, config(num_epochs=1), PAIR)
    straight.train(PAIRS, seed=0, on_progress=silent)
    straight.model.save(tmp_path / "half")
    straight.save(tmp_path / "half" / "trainer")
    straight.train(PAIRS, seed=1, on_progress=silent)
    loaded = RewardModel.load(tmp_path / "half", device="cpu")
    resumed = RewardTrainer.load(loaded, config(num_epochs=1), PAIR, tmp_path / "half" / "trainer")
    resumed.train(PAIRS, seed=1, on_progress=silent)
    for name, value in straight.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name]), name
    assert (tmp_path / "half" / "tokenizer.json").is_file()


def test_pairs_that_become_equal_by_the_cut_are_dropped_and_counted(model):
    ids = [1, 2, 3, 4, 5, 6]
    equal = {**pair("cut", [7, 8], [9, 8]), "prompt_token_ids": ids}
    trainer = RewardTrainer(model, config(max_tokens=6), PAIR)
    with pytest.raises(ValueError, match="no usable pairs"):
        trainer.train([equal], seed=0, on_progress=silent)
    metrics = trainer.train([equal, *PAIRS], seed=0, on_progress=silent)
    assert (metrics["num_emptied_by_cut"], metrics["num_training_labels"]) == (1, 8)
    kept = RewardTrainer(model, config(max_tokens=8), PAIR).train([equal], seed=0, on_progress=silent)
    assert kept["num_training_labels"] == 1


def test_without_rows_nothing_changes(model):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    metrics = RewardTrainer(model, config(), PAIR).train([], seed=0, on_progress=silent)
    assert "loss" not in metrics
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_the_training_loss_is_the_one_of_the_scorers_numbers_although_the_backbone_has_dropout(model):
    finished, truncated = rows([5, 9, 2], [6, 10, 11])
    high, low = score_rows(model, [finished, truncated], micro_batch_tokens=1000, max_tokens=50)
    model.train()  # whoever had it before: the trainer and the scorer switch dropout off
    row = pair("p", finished["completion_token_ids"], truncated["completion_token_ids"])
    metrics = RewardTrainer(model, config(num_epochs=1), PAIR).train([row], seed=0, on_progress=silent)
    assert metrics["loss"] == pytest.approx(math.log1p(math.exp(low - high)), abs=1e-5)
    model.train()
    scores = [score_rows(model, [finished], micro_batch_tokens=1000, max_tokens=50) for _ in range(2)]
    assert scores[0] == scores[1]


def test_scoring_cuts_where_training_cuts(model):
    whole = score_rows(model, rows([5, 6, 7, 8]), micro_batch_tokens=1000, max_tokens=4)
    assert whole == pytest.approx([score(model, [1, 4, 5, 6], 4)], abs=1e-5)
    assert num_cut(rows([5, 6], [5, 6, 7]), ["completion_token_ids"], 4) == 1


def test_the_temperature_is_saved_divides_the_score_and_is_one_where_none_was_saved(model, tmp_path):
    raw = score_rows(model, rows([5, 6, 2]), micro_batch_tokens=99, max_tokens=50)
    model.temperature = 4.0
    model.save(tmp_path / "saved")
    loaded = RewardModel.load(tmp_path / "saved", device="cpu")
    assert loaded.temperature == 4.0
    assert score_rows(loaded, rows([5, 6, 2]), micro_batch_tokens=99, max_tokens=50) == [raw[0] / 4]
    file = tmp_path / "saved" / "reward_calibration.json"
    file.write_text('{"temperature": 0.0}')
    with pytest.raises(ValueError, match=r"temperature 0\.0, which is no positive number"):
        RewardModel.load(tmp_path / "saved", device="cpu")
    file.unlink()
    assert RewardModel.load(tmp_path / "saved", device="cpu").temperature == 1.0


def test_a_saved_model_scores_the_same_to_the_last_bit_and_a_policy_is_no_reward_model(model, tmp_path):
    model.save(tmp_path / "saved")
    loaded = RewardModel.load(tmp_path / "saved", device="cpu")
    read = lambda each: score_rows(each, rows([5, 6, 2]), micro_batch_tokens=99, max_tokens=50)  # noqa: E731
    assert read(loaded) == read(model)
    assert not [path for path in (tmp_path / "saved").iterdir() if path.suffix in {".bin", ".pt", ".pkl"}]
    with pytest.raises(ValueError, match="is no reward model"):
        RewardModel.load(tmp_path / "policy", device="cpu")


def test_the_new_head_is_drawn_from_its_seed(tmp_path):
    make_llama().save_pretrained(tmp_path)
    first, again, other = (RewardModel.from_policy(tmp_path, device="cpu", seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first.head.weight, again.head.weight)
    assert not torch.equal(first.head.weight, other.head.weight)
    assert first.head.bias.item() == 0.0
    drawn = torch.randn(1, 16, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(first.head.weight, drawn / 17**0.5)


def test_a_model_that_is_not_finite_stops_the_training_and_names_the_pairs(model):
    with torch.no_grad():
        model.head.weight[0, 0] = float("nan")
    before = {name: value.clone() for name, value in model.backbone.state_dict().items()}
    trainer = RewardTrainer(model, config(), PAIR)
    with pytest.raises(NonFinite, match="loss is nan; in the batch of pairs p1"):
        trainer.train([PAIRS[1]], seed=0, on_progress=silent)
    assert trainer.optimiser.num_updates == 0
    assert all(torch.equal(before[name], value) for name, value in model.backbone.state_dict().items())
    with pytest.raises(NonFinite, match="label p1 has the scores nan"):
        measure(model, [PAIRS[1]])


def test_a_weight_that_is_not_finite_is_found_also_where_no_loss_shows_it(tmp_path):
    make_llama().save_pretrained(tmp_path)
    model = RewardModel.from_policy(tmp_path, device="cpu", seed=0)
    with torch.no_grad():
        model.backbone.embed_tokens.weight[31] = float("inf")  # an id that no pair holds
    with pytest.raises(NonFinite, match=r"weights are not finite.*embed_tokens"):
        RewardTrainer(model, config(), PAIR).train(PAIRS, seed=0, on_progress=silent)


def test_progress_ends_at_the_whole(model):
    calls = []
    RewardTrainer(model, config(batch_labels=3, num_epochs=2), PAIR).train(
        PAIRS, seed=0, on_progress=lambda done, total: calls.append((done, total))
    )
    assert calls == [(3, 16), (6, 16), (8, 16), (11, 16), (14, 16), (16, 16)]


def test_the_order_of_training_is_drawn_from_the_seed(model, tmp_path):
    model.save(tmp_path / "start")
    heads = []
    for seed in (0, 0, 1):
        copy = RewardModel.load(tmp_path / "start", device="cpu")
        RewardTrainer(copy, config(num_epochs=1, batch_labels=2), PAIR).train(PAIRS, seed=seed, on_progress=silent)
        heads.append(copy.head.weight)
    assert torch.equal(heads[0], heads[1])
    assert not torch.equal(heads[0], heads[2])


def test_a_tie_is_half_a_win(model):
    with torch.no_grad():
        model.head.weight.zero_()
    found = measure(model, [pair("tie", [5, 2], [6, 2])])
    assert found == {"accuracy": 0.5, "auc": 0.5, "num_labels": 1}
    assert measure(model, []) == {}
