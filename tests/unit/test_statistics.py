"""Statistics over seeds: known answers, and what must hold for any values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlbench.analyse.statistics import interval, iqm, iqm_band, ratio, summary

values = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=12)
positive = st.dictionaries(st.integers(0, 9), st.floats(1e-3, 1e6), min_size=1, max_size=8)


def test_interval_of_two_values_is_their_range() -> None:
    # Of two values, a quarter of the resamples are all-low and a quarter all-high.
    assert interval([10.0, 20.0]) == (10.0, 20.0)


def test_interval_matches_the_normal_one_for_many_values() -> None:
    sample = np.random.default_rng(1).normal(100, 10, size=400)
    low, high = interval(sample) or (0, 0)
    half = 1.96 * sample.std() / math.sqrt(400)
    assert low == pytest.approx(sample.mean() - half, abs=0.15)
    assert high == pytest.approx(sample.mean() + half, abs=0.15)


@pytest.mark.parametrize("few", [[], [3.0]])
def test_no_interval_for_fewer_than_two(few: list[float]) -> None:
    assert interval(few) is None


def test_equal_values_have_an_interval_without_width() -> None:
    assert interval([0.1, 0.1, 0.1]) == (0.1, 0.1)


def test_values_that_are_not_finite_are_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        interval([1.0, math.nan])


@settings(max_examples=25)
@given(values)
def test_interval_is_deterministic_and_inside_the_data(sample: list[float]) -> None:
    low, high = interval(sample) or (0, 0)
    assert (low, high) == interval(sample)
    assert min(sample) <= low <= high <= max(sample)


def test_summary() -> None:
    assert summary([10.0, 20.0]) == (15.0, 10.0, 20.0, 2)
    assert summary([7.0]) == (7.0, None, None, 1)
    assert summary([]) == (None, None, None, 0)


def test_iqm_drops_a_quarter_at_each_end() -> None:
    assert iqm([-1000, 2, 4, 1000]) == 3
    assert iqm([0, 0, 1, 2, 3, 4, 99, 99]) == 2.5
    assert iqm([1, 2, 6]) == 3
    assert iqm([]) is None


def test_iqm_band_of_shifted_curves() -> None:
    curves = np.array([[0.0, 0.0], [2.0, 4.0], [4.0, 8.0]])
    middle, low, high = iqm_band(curves)
    assert middle.tolist() == [2.0, 4.0]
    assert (low >= curves.min(axis=0)).all()
    assert (high <= curves.max(axis=0)).all()
    one = iqm_band(curves[:1])
    assert all(part.tolist() == [0.0, 0.0] for part in one)


def test_paired_ratio_cancels_what_the_seeds_share() -> None:
    found = ratio({0: 20.0, 1: 200.0, 2: 2.0}, {0: 10.0, 1: 100.0, 2: 1.0})
    assert found is not None
    assert found.paired
    assert found.n == 3
    assert [found.value, found.low, found.high] == pytest.approx([2.0, 2.0, 2.0])


def test_ratio_is_a_geometric_mean() -> None:
    found = ratio({0: 4.0, 1: 1.0}, {0: 1.0, 1: 1.0})
    assert found is not None
    assert [found.value, found.low, found.high] == pytest.approx([2.0, 1.0, 4.0])


def test_partly_matching_seeds_are_paired_over_the_common_ones() -> None:
    found = ratio({0: 2.0, 1: 2.0}, {0: 1.0, 1: 1.0, 2: 50.0})
    assert found is not None
    assert (found.n, found.paired) == (2, True)
    assert found.value == pytest.approx(2)


def test_ratio_without_common_seeds_is_unpaired() -> None:
    found = ratio({0: 8.0, 1: 8.0}, {5: 2.0, 6: 2.0, 7: 2.0})
    assert found is not None
    assert (found.n, found.paired) == (2, False)
    assert found.value == pytest.approx(4)


def test_one_seed_has_a_ratio_but_no_interval() -> None:
    assert ratio({0: 3.0}, {0: 2.0}) == (pytest.approx(1.5), None, None, 1, True)
    assert ratio({0: 3.0}, {1: 2.0}) == (pytest.approx(1.5), None, None, 1, False)


@pytest.mark.parametrize(
    ("candidate", "baseline"), [({}, {0: 1.0}), ({0: 1.0}, {}), ({0: 0.0}, {0: 1.0}), ({0: 1.0}, {0: -1.0})]
)
def test_undefined_ratios_are_none(candidate: dict[int, float], baseline: dict[int, float]) -> None:
    assert ratio(candidate, baseline) is None


@settings(max_examples=25)
@given(positive, positive)
def test_ratio_and_its_inverse_agree(candidate: dict[int, float], baseline: dict[int, float]) -> None:
    there, back = ratio(candidate, baseline), ratio(baseline, candidate)
    assert there is not None
    assert back is not None
    assert there.value * back.value == pytest.approx(1)
    if there.low is not None and there.high is not None:
        assert there.low <= there.value * (1 + 1e-9)
        assert there.value <= there.high * (1 + 1e-9)
