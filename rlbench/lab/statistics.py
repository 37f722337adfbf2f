"""Means, paired ratios and paired differences over repeats, with bootstrap intervals; needs numpy only.

Intervals are percentile bootstraps (Efron 1979, doi:10.1214/aos/1176344552) that resample whole repeats or seeds.
Ratios are geometric means (Fleming and Wallace 1986, doi:10.1145/5666.5673). Over fewer than 6 repeats an interval is
narrower than its name promises, because all repeats may fall on one side by chance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np

RESAMPLES = 4000


class Estimate(NamedTuple):
    """A figure with its 95 % interval over ``n`` repeats; ``low`` and ``high`` equal ``value`` when n is 1."""

    value: float
    low: float
    high: float
    n: int

    def map(self, function: Callable[[float], float]) -> Estimate:
        """Return the figure seen through a monotonic function; the interval keeps its order."""
        low, high = sorted((function(self.low), function(self.high)))
        return Estimate(function(self.value), low, high, self.n)

    def text(self, digits: int = 3, unit: str = "") -> str:
        """Return ``value [low, high]`` with that many significant digits."""
        return f"{_short(self.value, digits)}{unit} [{_short(self.low, digits)}, {_short(self.high, digits)}]"


def mean(values: Iterable[float], confidence: float = 0.95) -> Estimate | None:
    """Return the mean with its interval, or None without values. Raises ValueError for NaN and infinity."""
    sample = np.asarray(list(values), dtype=np.float64)
    if not np.isfinite(sample).all():
        raise ValueError("statistics need finite values: leave out what was not measured")
    if sample.size == 0:
        return None
    middle = float(sample.mean())
    if sample.size == 1 or np.all(sample == sample[0]):
        return Estimate(middle, middle, middle, int(sample.size))
    draws = np.random.default_rng(0).integers(sample.size, size=(RESAMPLES, sample.size))
    edge = (1 - confidence) / 2
    low, high = np.quantile(sample[draws].mean(axis=1), [edge, 1 - edge])
    return Estimate(middle, float(low), float(high), int(sample.size))


def ratio(candidate: Mapping[int, float], baseline: Mapping[int, float]) -> Estimate | None:
    """Return the geometric mean of candidate / baseline over the repeats that both have.

    None when they share no repeat or a value is not above 0: no ratio is defined then.
    """
    common = sorted(candidate.keys() & baseline.keys())
    if not common or any(min(candidate[repeat], baseline[repeat]) <= 0 for repeat in common):
        return None
    found = mean([math.log(candidate[repeat] / baseline[repeat]) for repeat in common])
    return found.map(math.exp) if found else None


def difference(candidate: Mapping[int, float], baseline: Mapping[int, float]) -> Estimate | None:
    """Return the mean of candidate - baseline over the repeats that both have; None when they share none."""
    return mean([candidate[repeat] - baseline[repeat] for repeat in sorted(candidate.keys() & baseline.keys())])


def _short(value: float, digits: int) -> str:
    if value == 0:
        return "0"
    places = digits - 1 - math.floor(math.log10(abs(value)))
    rounded = round(value, places)
    return f"{rounded:,.{max(0, places)}f}"
