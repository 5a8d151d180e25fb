"""The estimators: hand-worked values, and laws over every row of the table."""

import random

import pytest

from tasks.grpo import components
from tasks.grpo.estimators import ESTIMATORS, Episode

SETTINGS = {
    "group": components.GroupAdvantages(kind="group"),
    "group, no scale": components.GroupAdvantages(kind="group", scale="none"),
    "group, population": components.GroupAdvantages(kind="group", ddof=0),
    "group, each source": components.GroupAdvantages(kind="group", normalise="each_source"),
    "process": components.ProcessAdvantages(kind="process"),
    "leave one out": components.LeaveOneOutAdvantages(kind="leave_one_out"),
    "batch": components.BatchAdvantages(kind="batch"),
    "batch, baseline": components.BatchAdvantages(kind="batch", baseline="group_mean"),
    "gae": components.GaeAdvantages(kind="gae"),
    "gae, plain": components.GaeAdvantages(kind="gae", normalise="none"),
    "correct only": components.CorrectOnlyAdvantages(kind="correct_only"),
}
NO_EPS = {"std_eps": 0.0}


def estimated(episodes, config):
    return ESTIMATORS[type(config)](episodes, config)


def tokens(advantage, episode):
    return advantage.by_token if advantage.by_token is not None else [advantage.outcome] * episode.num_tokens


def episode(reward, num_tokens=2, group="g", **changes):
    defaults = {
        "is_correct": reward >= 1,
        "sources": {"exact": reward},
        "weights": {"exact": 1.0},
        "step_rewards": (reward,),
        "step_ends": (num_tokens - 1,),
        "values": [0.0] * num_tokens,
    }
    return Episode(group, num_tokens, reward, **{**defaults, **changes})


def test_every_estimator_has_settings_here():
    assert {type(config) for config in SETTINGS.values()} == set(ESTIMATORS)


@pytest.mark.parametrize("name", sorted(set(SETTINGS) - {"gae", "gae, plain", "correct only"}))
def test_equal_rewards_give_zero_and_no_signal(name):
    episodes = [episode(0.35, group=group) for group in "aab"] + [episode(0.35, group="b")]
    for advantage, each in zip(estimated(episodes, SETTINGS[name]), episodes, strict=True):
        assert tokens(advantage, each) == [0.0] * 2
        assert not advantage.has_signal


@pytest.mark.parametrize("name", ["gae", "gae, plain"])
def test_a_critic_that_foresees_the_reward_leaves_nothing_to_learn(name):
    episodes = [episode(1.0, 3, values=[1.0] * 3), episode(0.35, 2, values=[0.35] * 2)]
    assert [each.by_token for each in estimated(episodes, SETTINGS[name])] == [[0.0] * 3, [0.0] * 2]


@pytest.mark.parametrize("name", SETTINGS)
def test_permuting_rows_and_groups_permutes_advantages(name):
    rng = random.Random(1)
    episodes = [
        episode(
            float(rng.randint(0, 1)),
            1 + index % 3,
            "abc"[index % 3],
            penalties=None if name in ("process", "correct only") else [0.1 * index] * (1 + index % 3),
            values=[rng.random() for _ in range(1 + index % 3)],
        )
        for index in range(11)
    ]
    base = [tokens(*pair) for pair in zip(estimated(episodes, SETTINGS[name]), episodes, strict=True)]
    order = list(range(11))
    rng.shuffle(order)
    shuffled = [episodes[index] for index in order]
    found = [tokens(*pair) for pair in zip(estimated(shuffled, SETTINGS[name]), shuffled, strict=True)]
    for position, index in enumerate(order):
        assert found[position] == pytest.approx(base[index], abs=1e-12)
    assert any(value for row in base for value in row)


@pytest.mark.parametrize("name", SETTINGS)
def test_no_completions_give_no_advantages(name):
    assert estimated([], SETTINGS[name]) == []


@pytest.mark.parametrize("name", ["group", "group, no scale", "leave one out"])
def test_a_kl_in_the_reward_is_taken_off_the_whole_completion(name):
    penalised = [episode(1.0, penalties=[0.25, 0.5]), episode(0.0, penalties=[0.0, 0.0])]
    plain = [episode(0.25), episode(0.0)]
    found, expected = (estimated(each, SETTINGS[name]) for each in (penalised, plain))
    assert [each.outcome for each in found] == pytest.approx([each.outcome for each in expected])


class TestEachSource:
    """One reward on a big scale must not decide the sign."""

    LENGTHS = [0.0, 100.0, 200.0, 300.0]
    CORRECT = [1.0, 1.0, 0.0, 0.0]

    def advantages(self, weights, normalise="each_source", constant=None):
        episodes = []
        for correct, length in zip(self.CORRECT, self.LENGTHS, strict=True):
            sources = {"correct": correct, "length": length} | ({} if constant is None else {"constant": constant})
            weights = weights | ({} if constant is None else {"constant": 5.0})
            total = sum(weights[name] * value for name, value in sources.items())
            episodes.append(episode(total, sources=sources, weights=weights))
        config = components.GroupAdvantages(kind="group", normalise=normalise, std_eps=0.0)
        return [each.outcome for each in estimated(episodes, config)]

    @pytest.mark.parametrize(
        ("weight", "expected"),
        [(0.1, [0.7498, 0.8273, -0.8273, -0.7498]), (1.0, [-0.2959, 0.4787, -0.4787, 0.2959])],
    )
    def test_the_weight_applies_after_the_scaling(self, weight, expected):
        assert self.advantages({"correct": 1.0, "length": weight}) == pytest.approx(expected, abs=1e-4)

    def test_the_total_lets_the_big_scale_decide(self):
        expected = [-1.1627, -0.3850, 0.3850, 1.1627]
        found = self.advantages({"correct": 1.0, "length": 1.0}, normalise="total")
        assert found == pytest.approx(expected, abs=1e-4)

    def test_both_right_answers_stay_above_both_wrong_ones(self):
        right, also, wrong, worse = self.advantages({"correct": 1.0, "length": 0.1})
        assert min(right, also) > max(wrong, worse)

    def test_a_constant_source_adds_exactly_nothing(self):
        weights = {"correct": 1.0, "length": 0.1}
        assert self.advantages(weights, constant=0.35) == self.advantages(weights)

    def test_a_source_that_does_not_apply_to_a_row_leaves_the_others_alone(self):
        episodes = [
            episode(1.0, sources={"exact": 1.0, "extra": None}, weights={"exact": 1.0, "extra": 1.0}),
            episode(0.0, sources={"exact": 0.0, "extra": 1.0}, weights={"exact": 1.0, "extra": 1.0}),
        ]
        config = components.GroupAdvantages(kind="group", normalise="each_source", scale="none")
        assert [each.outcome for each in estimated(episodes, config)] == [0.5, -0.5]


class TestProcess:
    EPISODES = [
        episode(0.0, 4, step_rewards=(1.0, 0.0), step_ends=(1, 3)),
        episode(1.0, 3, step_rewards=(1.0,), step_ends=(2,)),
    ]

    def test_step_rewards_are_normalised_over_all_steps_of_the_group(self):
        config = components.ProcessAdvantages(kind="process", std_eps=0.0)
        first, second = estimated(self.EPISODES, config)
        assert first.by_token == pytest.approx([-0.577350, -0.577350, -1.154701, -1.154701], abs=1e-6)
        assert second.by_token == pytest.approx([0.577350] * 3, abs=1e-6)
        assert first.outcome is None

    def test_the_population_deviation_is_a_setting(self):
        config = components.ProcessAdvantages(kind="process", std_eps=0.0, ddof=0)
        first, _ = estimated(self.EPISODES, config)
        assert first.by_token == pytest.approx([-0.707107, -0.707107, -1.414214, -1.414214], abs=1e-6)

    def test_groups_keep_their_own_statistics(self):
        others = [episode(1.0, 2, "h", step_rewards=(5.0,)), episode(0.0, 2, "h", step_rewards=(5.0,))]
        config = components.ProcessAdvantages(kind="process", std_eps=0.0)
        found = estimated([others[0], *self.EPISODES, others[1]], config)
        assert found[1].by_token == pytest.approx([-0.577350, -0.577350, -1.154701, -1.154701], abs=1e-6)
        assert [found[0].has_signal, found[1].has_signal] == [False, True]

    def test_a_completion_without_steps_has_no_advantage_and_no_signal(self):
        found = estimated([*self.EPISODES, episode(0.0, 2, step_rewards=(), step_ends=())], SETTINGS["process"])
        assert found[2].by_token == [0.0, 0.0]
        assert not found[2].has_signal


class TestBatch:
    def test_advantages_are_normalised_over_all_tokens(self):
        config = components.BatchAdvantages(kind="batch", std_eps=0.0)
        long, short = estimated([episode(0.0, 2, "b"), episode(1.0, 1, "a")], config)
        assert short.by_token == pytest.approx([1.154701], abs=1e-6)
        assert long.by_token == pytest.approx([-0.577350] * 2, abs=1e-6)

    def test_a_token_pays_for_the_kl_from_it_on(self):
        config = components.BatchAdvantages(kind="batch", std_eps=0.0)
        short, long = estimated([episode(1.0, 1, penalties=[0.1]), episode(0.0, 2, penalties=[0.1, 0.2])], config)
        assert short.by_token == pytest.approx([1.151441], abs=1e-6)
        assert long.by_token == pytest.approx([-0.650814, -0.500626], abs=1e-6)

    def test_the_baseline_takes_the_group_mean_off_first(self):
        episodes = [episode(reward, 1, group) for group, reward in (("a", 5.0), ("a", 4.0), ("b", 1.0), ("b", 0.0))]
        plain, baseline = (
            [each.by_token[0] for each in estimated(episodes, components.BatchAdvantages(kind="batch", **settings))]
            for settings in (NO_EPS, {**NO_EPS, "baseline": "group_mean"})
        )
        assert baseline == pytest.approx([0.866025, -0.866025] * 2, abs=1e-6)
        assert plain == pytest.approx([1.050210, 0.630126, -0.630126, -1.050210], abs=1e-6)

    def test_the_baseline_is_of_the_reward_without_its_kl(self):
        config = components.BatchAdvantages(kind="batch", baseline="group_mean", std_eps=0.0)
        first, second = estimated([episode(1.0, 1, penalties=[0.5]), episode(1.0, 1, penalties=[0.0])], config)
        assert first.by_token == pytest.approx([-0.707107], abs=1e-6)
        assert second.by_token == pytest.approx([0.707107], abs=1e-6)


class TestGae:
    def test_returns_are_advantages_before_normalisation_plus_values(self):
        one = episode(1.0, 3, values=[0.5, 0.6, 0.7])
        for name in ("gae", "gae, plain"):
            (found,) = estimated([one], SETTINGS[name])
            assert found.returns == pytest.approx([0.96575, 0.985, 1.0], abs=1e-12)
        assert found.by_token == pytest.approx([0.46575, 0.385, 0.3], abs=1e-12)

    def test_normalised_advantages_have_mean_zero_and_deviation_one(self):
        (found,) = estimated([episode(1.0, 3, values=[0.5, 0.6, 0.7])], SETTINGS["gae"])
        assert found.by_token == pytest.approx([0.991335, 0.017094, -1.008430], abs=1e-5)

    def test_the_kl_is_a_reward_of_its_token(self):
        (found,) = estimated([episode(1.0, 2, values=[0.0, 0.0], penalties=[0.1, 0.2])], SETTINGS["gae, plain"])
        assert found.by_token == pytest.approx([-0.1 + 0.95 * 0.8, 0.8], abs=1e-12)

    def test_without_values_the_cure_is_named(self):
        with pytest.raises(ValueError, match="gae needs a critic"):
            estimated([episode(1.0, values=None)], SETTINGS["gae"])


def test_only_correct_completions_count_whatever_their_reward():
    episodes = [episode(1.1), episode(0.9, is_correct=False), episode(1.0, is_correct=None)]
    found = estimated(episodes, SETTINGS["correct only"])
    assert [(each.outcome, each.has_signal) for each in found] == [(1.0, True), (0.0, False), (0.0, False)]
