"""A fixed workload timed just before each trial, so that a machine that changed speed is noticed."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

DRIFT = 0.10
_ROUNDS = 5


def calibrate() -> float:
    """Return how long a fixed mix of interpreter and matrix work takes, ms: the fastest of a few rounds."""
    matrix = np.random.default_rng(0).standard_normal((160, 160))
    best = float("inf")
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        total = 0
        for number in range(100_000):
            total += number % 7
        product = matrix
        for _ in range(10):
            product = product @ matrix / 160
        best = min(best, time.perf_counter() - start)
    return 1000 * best


def drifted(calibrations: Sequence[float]) -> list[bool]:
    """For each calibration, whether it is more than 10 % off their median."""
    middle = float(np.median(calibrations)) if len(calibrations) else 0.0
    return [abs(each - middle) > DRIFT * middle for each in calibrations]
