"""Slow, silent and dead actors

The pipeline's trainer (PPO with V-trace) with four actors, whose environments sleep 1 ms a step; from 0.7 s on, half of
the actors are slow (10 ms a step), silent (stopped by a signal) or dead (killed). "in turn": actors and learner wait
for each other. Throughput counts steps from 1 s on. The share of steps from those two actors is what the learner can
train on. Source: a practitioners' guide to asynchronous RL.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from rlbench.lab import rings
from rlbench.lab.rows import Row, interleaved, row, select
from rlbench.lab.statistics import mean, ratio
from rlbench.lab.verdicts import FAILS, HOLDS, UNTESTED, Verdict, all_hold, at_least

CLAIM = "Half of the workers can fall silent without anyone noticing: training goes on with the others."
SIZES: dict[str, dict[str, Any]] = {
    "quick": {"repeats": 2, "seconds": 2.0},
    "full": {"repeats": 6, "seconds": 3.0},
}
CHART: dict[str, Any] = {
    "x": "",
    "panels": [
        {"metric": "steps_per_s", "title": "Environment steps"},
        {"metric": "troubled_percent", "title": "Steps from those in trouble"},
        {"metric": "lag_mean", "title": "Mean lag of samples learned from"},
        {"metric": "told_ms", "title": "Until the pipeline says so"},
    ],
}

WELL, SLOW, SILENT, DEAD = "all well", "half slow", "half silent", "half dead"
WELL_TURN, SLOW_TURN = "all well, in turn", "half slow, in turn"
CONDITIONS = (WELL, SLOW, SILENT, DEAD, WELL_TURN, SLOW_TURN)
ACTORS, TROUBLED, STEP_S, SLOW_S = 4, 2, 0.001, 0.01
TROUBLE_S, COUNT_S = 0.7, 1.0
# How long a process may not move before the pipeline names it; its default suits longer runs.
SILENT_S = 0.5
KEPT = 0.4  # of the steps of four actors: two that go on undisturbed make half of them


def measure(quick: bool, note: Callable[[str], None]) -> list[Row]:
    """Run every condition, in turn within a repeat."""
    import torch

    torch.set_num_threads(1)
    size = SIZES["quick" if quick else "full"]
    rows = []
    for repeat, condition in interleaved(CONDITIONS, size["repeats"]):
        found, said = _run(condition, size["seconds"], repeat)
        rate = found["steps_per_s"]
        note(
            f"{condition}, repeat {repeat + 1}: {rate:.0f} steps/s" + (f"; said: {said[0][1].strip()}" if said else "")
        )
        units = {"steps_per_s": "steps/s", "troubled_percent": "%", "lag_mean": "updates", "lag_max": "updates"}
        rows += [row(condition, repeat, name, found[name], unit) for name, unit in units.items()]
        if condition in (SILENT, DEAD):
            reason = "the pipeline said nothing"
            told = [(moment - found["trouble_s"]) * 1000 for moment, _ in said]
            rows.append(row(condition, repeat, "told_ms", told[0] if told else None, "ms", None, reason))
    return rows


def verdict(rows: list[Row]) -> Verdict:
    """Judge silent actors: whether the other half keeps its pace, and whether the pipeline stays quiet about them."""
    rates = {name: select(rows, "steps_per_s", name) for name in CONDITIONS}
    kept = {name: ratio(rates[name], rates[WELL]) for name in (SLOW, SILENT, DEAD)}
    turn = ratio(rates[SLOW_TURN], rates[WELL_TURN])
    shares = {name: mean(select(rows, "troubled_percent", name).values()) for name in (WELL, SLOW, SILENT)}
    if turn is None or None in kept.values() or None in shares.values():
        return UNTESTED, "a condition is missing."
    silent = [r for r in rows if r["condition"] == SILENT and r["metric"] == "told_ms"]
    noticed = [r["value"] for r in silent if r["value"] is not None]
    dead = mean(select(rows, "told_ms", DEAD).values())
    parts = [at_least(kept[SILENT], KEPT), FAILS if noticed else HOLDS]
    quiet = "is never told of"
    if noticed:
        after = sum(noticed) / len(noticed)
        quiet = (
            f"is named in {len(noticed)} of {len(silent)} runs, after {after:.0f} ms ({1000 * SILENT_S:.0f} allowed)"
        )
    told = ", ".join(f"{name} {value.text(2)}" for name, value in kept.items() if value)
    shared = ", ".join(f"{name} {value.text(2)} %" for name, value in shares.items() if value)
    return all_hold(parts), (
        f"steps per second against all well: {told} (slow half when actors and learner take turns: {turn.text(2)}); "
        f"steps that come from the troubled half: {shared}; a silent actor {quiet}, a dead one after "
        f"{dead.text(2) if dead else 'no'} ms; {turn.n} repeats."
    )


class _Env:
    """Sleeps for every step and counts it; nothing is to be learned."""

    def __init__(self, index: int, counts: np.ndarray, slow: np.ndarray) -> None:
        self.index, self.counts, self.slow, self.steps = index, counts, slow, 0

    def reset(self, seed: int | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        return np.zeros(4, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        time.sleep(SLOW_S if self.slow[0] and self.index < TROUBLED else STEP_S)
        self.steps += 1
        self.counts[self.index, 0] = self.steps
        return np.full(4, 0.01 * (self.steps % 100), np.float32), 1.0, self.steps % 100 == 0, False, {}

    def close(self) -> None:
        """Nothing to close."""


class _Listener(io.TextIOBase):
    """A standard error that notes when each sentence came."""

    def __init__(self) -> None:
        self.said: list[tuple[float, str]] = []

    def write(self, text: str) -> int:
        if text.strip():
            self.said.append((time.monotonic(), text))
        return len(text)


def _run(condition: str, seconds: float, seed: int) -> tuple[dict[str, float], list[tuple[float, str]]]:
    """Return the figures of one training and what it said, each with its time."""
    from rlbench.pipeline.policy import Categorical
    from rlbench.pipeline.settings import Settings
    from rlbench.pipeline.trainer import train

    counts, slow = rings.shared((ACTORS, 16), np.int64), rings.shared(16, np.int64)
    in_turn = condition.endswith("in turn")
    settings = Settings(
        env_steps=10**9, mode="workers" if in_turn else "async", n_envs=ACTORS, actors=ACTORS, n_steps=16,
        batch_size=64, n_epochs=1, depth=2, weight_sync_every=1, seed=seed,
        silent_s=SILENT_S,
    )  # fmt: skip
    begun: list[float] = []
    marks: dict[str, Any] = {}
    stopped: list[int] = []
    timers: list[threading.Timer] = []

    def trouble(pids: list[int]) -> None:
        marks["trouble_s"] = time.monotonic()
        if "slow" in condition:
            slow[0] = 1
        for pid in pids:
            if condition == SILENT:
                os.kill(pid, signal.SIGSTOP)
                stopped.append(pid)
            elif condition == DEAD:
                os.kill(pid, signal.SIGKILL)

    def watched(crew: Any) -> None:
        begun.append(time.monotonic())
        pids = [crew.pid(f"actor {index}") for index in range(TROUBLED)]
        timers.append(threading.Timer(TROUBLE_S, trouble, [pids]))
        timers.append(threading.Timer(COUNT_S, lambda: marks.update(first=counts[:, 0].copy(), at=time.monotonic())))
        for timer in timers:
            timer.start()

    def should_stop() -> bool:
        if not begun or time.monotonic() - begun[0] < seconds:
            return False
        if "last" not in marks:
            marks.update(last=counts[:, 0].copy(), until=time.monotonic())
            for pid in stopped:
                # Silent, not gone: it has to hear that the run is over.
                os.kill(pid, signal.SIGCONT)
        return True

    # Observations are 4 numbers, actions one of 2.
    with contextlib.redirect_stderr(_Listener()) as listener:
        result = train(lambda i: _Env(i, counts, slow), 4, Categorical(2), settings, should_stop, watched)
    for timer in timers:
        timer.join()
    if result.deaths and condition != DEAD:
        print(*result.deaths, sep="\n", file=sys.stderr)
        raise RuntimeError(f"{condition}: {result.deaths[0]}")
    steps = marks["last"] - marks["first"]
    return {
        "steps_per_s": float(steps.sum() / (marks["until"] - marks["at"])),
        "troubled_percent": float(100 * steps[:TROUBLED].sum() / steps.sum()),
        "lag_mean": float(result.lag_mean), "lag_max": float(result.lag_max), "trouble_s": marks["trouble_s"],
    }, listener.said  # fmt: skip
