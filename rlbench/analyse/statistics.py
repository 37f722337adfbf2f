"""Means, interquartile means and ratios over seeds, each with a bootstrap interval.

Intervals are percentile bootstraps (Efron 1979, doi:10.1214/aos/1176344552) by ``scipy.stats.bootstrap``.
They resample whole seeds: the variation inside one trial says nothing about how another seed would do.
Ratios are geometric means (Fleming and Wallace 1986, doi:10.1145/5666.5673), so that A/B and B/A agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats

Array = npt.NDArray[np.float64]
Statistic = Callable[..., npt.NDArray[np.float64]]

RESAMPLES = 2000

# With n seeds, all of them fall on the same side of "no difference" by chance alone with probability 2^(1-n);
# from 6 seeds on that is below 5 %, so an interval over fewer seeds is narrower than its name promises.
FEW_SEEDS = 6


class Summary(NamedTuple):
    """Mean of ``n`` values with its interval; ``low`` and ``high`` are None for fewer than 2 values."""

    mean: float | None
    low: float | None
    high: float | None
    n: int


class Ratio(NamedTuple):
    """Candidate / baseline with its interval (None for fewer than 2 values on a side).

    ``n`` is the number of pairs, or of values on the smaller side when ``paired`` is False.
    """

    value: float
    low: float | None
    high: float | None
    n: int
    paired: bool


def interval(values: Iterable[float], confidence: float = 0.95, seed: int = 0) -> tuple[float, float] | None:
    """Return the bootstrap interval ``(low, high)`` of the mean, or None for fewer than 2 values.

    The same values, confidence and seed give the same interval. Raises ValueError for NaN and infinity.
    """
    sample = _finite(values)
    if sample.size < 2:
        return None
    if np.all(sample == sample[0]):
        return float(sample[0]), float(sample[0])
    low, high = _bootstrap((sample,), np.mean, confidence, seed)
    # Resampled means differ from their bounds by rounding; an interval beyond the data would be absurd.
    return max(float(low), float(sample.min())), min(float(high), float(sample.max()))


def summary(values: Iterable[float], confidence: float = 0.95) -> Summary:
    """Return mean, interval and number of the values; the mean is None when there are none."""
    sample = _finite(values)
    low, high = interval(sample, confidence) or (None, None)
    return Summary(float(sample.mean()) if sample.size else None, low, high, int(sample.size))


def iqm(values: Iterable[float]) -> float | None:
    """Return the interquartile mean: the mean of the middle half (Agarwal et al. 2021, arXiv:2108.13264).

    Fewer than 4 values leave nothing to trim, which makes it the mean; no values give None.
    """
    sample = _finite(values)
    return float(stats.trim_mean(sample, 0.25)) if sample.size else None


def iqm_band(curves: Array, confidence: float = 0.95, seed: int = 0) -> tuple[Array, Array, Array]:
    """Return ``(iqm, low, high)``, each of shape ``(points,)``, of ``curves`` of shape ``(seeds, points)``.

    The interval at each point is a bootstrap over seeds (Agarwal et al. 2021, arXiv:2108.13264, with one
    task); with one seed all three are that curve.
    """
    if len(curves) < 2:
        return curves[0], curves[0], curves[0]
    middle = np.asarray(stats.trim_mean(curves, 0.25, axis=0))
    low, high = _bootstrap((curves,), _trimmed, confidence, seed, resamples=1000)
    return middle, low, high


def ratio(candidate: Mapping[int, float], baseline: Mapping[int, float], confidence: float = 0.95) -> Ratio | None:
    """Return the geometric-mean ratio candidate / baseline of values by seed.

    Seeds that both sides have are compared in pairs (their trials ran next to each other, so slow drift of
    the machine cancels); with fewer than 2 common seeds, and seeds that differ, the sides are resampled
    apart. None when a side is empty or has a value that is not above 0: no ratio is defined then.
    """
    if not candidate or not baseline or min(*candidate.values(), *baseline.values()) <= 0:
        return None
    common = sorted(candidate.keys() & baseline.keys())
    if len(common) >= 2 or (common and candidate.keys() == baseline.keys()):
        logs = np.log([candidate[seed] / baseline[seed] for seed in common])
        bounds = interval(logs, confidence)
        low, high = (math.exp(bounds[0]), math.exp(bounds[1])) if bounds else (None, None)
        return Ratio(math.exp(logs.mean()), low, high, len(common), paired=True)
    ours, theirs = np.log(list(candidate.values())), np.log(list(baseline.values()))
    value, n = math.exp(ours.mean() - theirs.mean()), min(ours.size, theirs.size)
    if n < 2:
        return Ratio(value, None, None, n, paired=False)
    low_log, high_log = _bootstrap((ours, theirs), _difference, confidence, 0)
    return Ratio(value, math.exp(low_log), math.exp(high_log), n, paired=False)


def _difference(ours: Array, theirs: Array, axis: int = -1) -> Array:
    return np.asarray(ours.mean(axis=axis) - theirs.mean(axis=axis))


def _trimmed(curves: Array, axis: int = 0) -> Array:
    return np.asarray(stats.trim_mean(curves, 0.25, axis=axis))


def _bootstrap(
    samples: tuple[Array, ...], statistic: Statistic, confidence: float, seed: int, resamples: int = RESAMPLES
) -> tuple[Array, Array]:
    found = stats.bootstrap(
        samples,
        statistic,
        n_resamples=resamples,
        axis=0,
        confidence_level=confidence,
        method="percentile",
        vectorized=True,
        random_state=np.random.default_rng(seed),
    ).confidence_interval
    return np.asarray(found.low), np.asarray(found.high)


def _finite(values: Iterable[float]) -> Array:
    sample = np.asarray(list(values), dtype=np.float64)
    if not np.isfinite(sample).all():
        raise ValueError("statistics need finite values: leave out what was not measured")
    return sample
