"""Seeds derived by hashing."""

import pytest

from tasks.values.seeds import MAX_SEED, derive_seed


def test_a_seed_depends_on_every_part_its_type_and_its_place():
    seeds = {
        derive_seed(1, "a"),
        derive_seed("1", "a"),
        derive_seed("a", 1),
        derive_seed("1a"),
        derive_seed("a"),
        derive_seed("ab"),
        derive_seed("a", "b"),
        derive_seed(1, 1),
        derive_seed(11),
    }
    assert len(seeds) == 9
    assert all(0 <= seed <= MAX_SEED for seed in seeds)


def test_it_is_the_same_on_every_machine():
    assert derive_seed(1, 2, "p", 3) == 3398142606333967272


@pytest.mark.parametrize("parts", [(), (1.5,), (True,), (None,)])
def test_what_names_nothing_is_refused(parts):
    with pytest.raises(ValueError):
        derive_seed(*parts)
