"""The lab's rows, statistics and the way an interval decides: known answers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlbench.analyse import statistics as host
from rlbench.lab.rows import interleaved, places, row, select
from rlbench.lab.statistics import Estimate, difference, mean, ratio
from rlbench.lab.verdicts import FAILS, HOLDS, UNTESTED, all_hold, at_least


def test_means_agree_with_the_hosts_statistics() -> None:
    sample = np.random.default_rng(3).normal(10, 2, 30)
    found, expected = mean(sample), host.summary(sample)
    assert found is not None
    assert found.value == pytest.approx(expected.mean)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=0.1)


def test_ratios_are_paired_and_geometric() -> None:
    # The machine is ten times slower in repeat 1; in each repeat the candidate is twice as fast.
    found = ratio({0: 200.0, 1: 20.0, 2: 4.0}, {0: 100.0, 1: 10.0, 3: 9.0})
    assert found is not None
    assert found == pytest.approx((2, 2, 2, 2))
    found = ratio({0: 4.0, 1: 1.0}, {0: 1.0, 1: 1.0})
    assert found is not None
    assert found.value == pytest.approx(2)
    assert (found.low, found.high) == pytest.approx((1, 4))


@pytest.mark.parametrize("baseline", [{}, {5: 1.0}, {0: 0.0}, {0: -1.0}])
def test_no_ratio_without_a_common_repeat_or_of_nothing(baseline: dict[int, float]) -> None:
    assert ratio({0: 1.0}, baseline) is None


def test_differences_are_paired() -> None:
    assert difference({0: 3.0, 1: 103.0}, {0: 1.0, 1: 101.0}) == Estimate(2, 2, 2, 2)
    assert difference({0: 1.0}, {1: 1.0}) is None


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9))
def test_an_interval_holds_its_mean_and_stays_within_the_values(values: list[float]) -> None:
    found = mean(values)
    assert found is not None
    slack = 1e-9 * (1 + max(map(abs, values)))
    assert min(values) - slack <= found.low <= found.value + slack
    assert found.value - slack <= found.high <= max(values) + slack
    assert found.n == len(values)


def test_values_that_are_not_finite_are_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        mean([1.0, math.nan])


def test_estimates_are_told_with_their_digits() -> None:
    assert Estimate(1234.56, 0.01234, 99999, 3).text() == "1,230 [0.0123, 100,000]"
    assert Estimate(0.5, 0.25, 1, 3).map(lambda x: 1 - x) == Estimate(0.5, 0, 0.75, 3)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(2.0, 3.0, HOLDS), (1.5, 2.5, HOLDS), (0.5, 1.4, FAILS), (1.0, 2.0, UNTESTED)],
)
def test_an_interval_decides_when_it_lies_on_one_side(low: float, high: float, expected: str) -> None:
    assert at_least(Estimate((low + high) / 2, low, high, 6), 1.5) == expected


def test_nothing_decides_nothing_and_one_part_decides_the_whole() -> None:
    assert at_least(None, 1.0) == UNTESTED
    assert all_hold([HOLDS, HOLDS]) == HOLDS
    assert all_hold([HOLDS, UNTESTED]) == UNTESTED
    assert all_hold([UNTESTED, FAILS, HOLDS]) == FAILS


def test_rows_are_selected_by_cell_and_null_needs_a_reason() -> None:
    rows = [row("a", 0, "m", 1, "s", 2), row("a", 1, "m", None, "s", 2, "it broke"), row("a", 0, "m", 3, "s")]
    assert select(rows, "m", "a", 2) == {0: 1.0}
    assert select(rows, "m", "a") == {0: 3.0}
    assert places(rows, "m", "a") == [2.0]
    with pytest.raises(ValueError, match="needs a reason"):
        row("a", 0, "m", None, "s")


def test_conditions_alternate_inside_each_repeat() -> None:
    assert list(interleaved("ab", 3)) == [(0, "a"), (0, "b"), (1, "b"), (1, "a"), (2, "a"), (2, "b")]
