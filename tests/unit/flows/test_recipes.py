"""Recipes: every mistake named before anything is computed."""

import pytest

from flows.recipes import RecipeError, load_recipe, shipped

GOOD = shipped()


def refused(*overrides, recipe="quickstart"):
    with pytest.raises(RecipeError) as error:
        load_recipe(recipe, list(overrides))
    return str(error.value)


def test_the_shipped_recipes():
    assert {"quickstart", "process", "smollm2", "gsm8k", "korean"} <= set(GOOD)
    assert all(sentence for sentence in GOOD.values())


def test_settings_are_changed_by_key():
    config = load_recipe(
        "quickstart",
        [
            "seed=7",
            "update.kl=none",
            "rollout.sampling.temperature=0.5",
            "scoring.verifiers.1.weight=0.2",
            "num_iterations=1",
        ],
    )
    assert (config.seed, config.update.kl.placement, config.rollout.sampling.temperature) == (7, "none", 0.5)
    assert (config.scoring.verifiers[1].weight, config.num_iterations) == (0.2, 1)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("rollout.group_size=1", "take at least 2"),
        ("rollout.sampling.top_p=0.9", "top_p is refused for training rollouts"),
        ("rollout.sampling.top_k=5", "top_k is refused"),
        ("rollout.sampling.temperature=0", "temperature 0 has no log-probabilities"),
        ("rollout.sampling.max_new_tokens=0", "rollout.sampling.max_new_tokens"),
        ("update.optimiser.learning_rate=fast", "update.optimiser.learning_rate"),
        ("update.optimiser.learning_rate=nan", "finite"),
        ("update.unknown=1", "update.unknown: is not a setting here"),
        ("unknown=1", "unknown: is not a setting here"),
        ("update.minibatch_completions=100000", "exceeds the 512 completions"),
        ("scoring.correctness=math", "names no verifier"),
        ("scoring.verifiers=[]", "at least one verifier"),
        ("policy.kind=elsewhere", "policy"),
        ("prompts.num_heldout=0", "prompts.num_heldout"),
        ("prompts.format.template=no place", "must contain {prompt} exactly once"),
        ("evaluation.ks=[1,9]", "not between 1 and num_samples"),
        ("update.advantages={scale='none',std_eps=1.0}", "std_eps has no meaning"),
        ("update.algorithm=grop", "no algorithm is called 'grop'; there are grpo, grpo_process"),
        ("update.objective.dual_clip=0.5", "update.objective.clip.dual_clip: Input should be greater than 1"),
        ("update.objective.gae_lambda=1", "is not a setting here"),
        ("update.algorithm=grpo_process", "name the verifier that gives them in scoring.process"),
        ("update.algorithm=cispo", "update.objective.cispo.clip_high: is missing"),
        ("update.algorithm=ppo", "update.critic.optimiser: is missing"),
        ("update.critic={optimiser={learning_rate=1}}", "a critic and advantages of kind"),
        ("update.kl.estimator=k1", "k1 in the loss has an expected gradient of zero"),
        ("update.rollout_policy=initial", "it needs objective"),
        ("update.rollout_correction={kind='token_mask',low=3}", "low 3.0 is not below high 2.0"),
        ("name=a/b", "name"),
        ("seed=-1", "seed"),
    ],
)
def test_wrong_settings_name_the_key_and_the_cure(override, said):
    assert said in refused(override)


def test_all_mistakes_are_named_at_once():
    message = refused("seed=x", "update.kl.beta=-1", "nonsense=1")
    assert message.count("\n") == 3


@pytest.mark.parametrize(
    "override", ["seed", "=1", "seed.x=1", "scoring.verifiers.9.weight=1", "scoring.verifiers.x.weight=1"]
)
def test_an_override_that_is_none_is_refused(override):
    assert "--set" in refused(override)


def test_a_missing_key_is_named(tmp_path):
    path = tmp_path / "x.toml"
    path.write_text('name = "x"\nseed = 1\n')
    assert "rollout: is missing" in refused(recipe=str(path))


def test_a_file_that_is_not_toml_names_the_place(tmp_path):
    path = tmp_path / "x.toml"
    path.write_text("name = = 1")
    assert "is not a TOML file" in refused(recipe=str(path))
    path.write_bytes(b"\xff\xfe")
    assert "is not a TOML file" in refused(recipe=str(path))


def test_an_unknown_recipe_names_those_that_there_are():
    assert "quickstart" in refused(recipe="quickstrat")


@pytest.mark.parametrize(
    "setting",
    [
        "machine.compile=eager",
        "machine.offload_optimiser=true",
        "update.lora={ rank = 4 }",
        "update.optimiser.state=int8",
    ],
)
def test_what_several_processes_can_not_do_is_refused_with_the_way_out(setting):
    with pytest.raises(RecipeError, match=r"num_processes 2 goes neither with.* set (machine\.)?num_processes to 1"):
        load_recipe("quickstart", ["machine.num_processes=2", setting])
    assert load_recipe("quickstart", [setting]).machine.num_processes == 1
