"""The probe's own cost: the same trial with the full probe and with a bare step counter, in turn."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlbench.analyse.statistics import ratio
from rlbench.catalog.library import Library
from rlbench.catalog.scenario import Scenario
from rlbench.errors import UserError
from rlbench.execute.guest import guest_code, write_job
from rlbench.execute.supervisor import supervise
from rlbench.probe import BARE, FULL
from rlbench.provision.build import GuestEnv

# Marks before this share of the budget belong to start-up: imports, first compilation, discovery of modules.
SETTLED = 0.15


def measure_overhead(
    library: Library, guest: GuestEnv, scenario: Scenario, rounds: int, say: Callable[[str], None]
) -> dict[str, Any]:
    """Return the ratio (full probe / bare counter) of throughput and of steps per CPU second, with intervals.

    Each round runs both arms with the same seed, the order changing from round to round; every ratio pairs the two
    arms of a round. Raises UserError when an arm does not finish.
    """
    speeds: dict[str, dict[int, float]] = {FULL: {}, BARE: {}}
    frugality: dict[str, dict[int, float]] = {FULL: {}, BARE: {}}
    with tempfile.TemporaryDirectory(prefix="rlbench-overhead-") as temporary:
        code = guest_code(Path(temporary) / "guest")
        for turn in range(rounds):
            for arm in (FULL, BARE) if turn % 2 == 0 else (BARE, FULL):
                folder = Path(temporary) / f"{turn}-{arm}"
                folder.mkdir()
                write_job(folder, library, scenario, seed=turn + 1, arm=arm)
                ended = supervise(guest.python, folder, code, scenario.limits, scenario.topology.threads)
                if ended.status != "ok":
                    raise UserError(f"{library.name}, {arm} arm: {ended.status}: {ended.reason}\n{ended.output_tail}")
                marks = ended.outcome["marks"]
                wall, cpu = _rates(marks, scenario.topology.n_envs)
                speeds[arm][turn], frugality[arm][turn] = wall, cpu
                say(f"{library.name} round {turn + 1}/{rounds}, {arm}: {wall:,.0f} steps/s, {cpu:,.0f} steps/CPU s")
                shutil.rmtree(folder)
    result: dict[str, Any] = {"library": library.name, "scenario": scenario.name, "rounds": rounds}
    for name, values in (("throughput", speeds), ("cpu", frugality)):
        paired = sorted(values[FULL][turn] / values[BARE][turn] for turn in range(rounds))
        middle = rounds // 2
        median = paired[middle] if rounds % 2 else (paired[middle - 1] + paired[middle]) / 2
        found = ratio(values[FULL], values[BARE])
        assert found is not None, "throughputs are positive and both arms ran every round"
        result[name] = {"median_ratio": median, "ratio": found.value, "low": found.low, "high": found.high}
    return result


def _rates(marks: list[list[int]], n_envs: int) -> tuple[float, float]:
    """Steps per wall second and per CPU second between the first settled mark and the last."""
    settled = marks[int(len(marks) * SETTLED) :]
    if len(settled) < 2:
        raise UserError(f"only {len(marks)} moments were noted: the budget is too small to measure the overhead")
    steps = (settled[-1][0] - settled[0][0]) * n_envs
    return steps / (settled[-1][1] - settled[0][1]) * 1e9, steps / (settled[-1][2] - settled[0][2]) * 1e9
