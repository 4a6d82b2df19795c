"""Warm-up prompts have the lengths that each class's prompts have."""

from gateway.settings import warm_up_lengths


def test_three_quantiles_between_a_class_s_bounds() -> None:
    assert warm_up_lengths({"long": None, "short": 1000}) == {
        "short": (100, 500, 900),
        "long": (1105, 1524, 1943),
    }


def test_a_class_above_a_prefill_step_reaches_twice_its_lower_bound() -> None:
    assert warm_up_lengths({"a": 4000, "b": None})["b"] == (4400, 6000, 7600)


def test_one_class_for_all_reaches_a_prefill_step() -> None:
    assert warm_up_lengths({"all": None}) == {"all": (205, 1024, 1843)}
