"""Learning: episode returns from the env tap, and when the scenario's threshold was reached."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from rlbench.analyse.ledgers import Ledgers


def episodes_table(ledgers: Ledgers, greedy: list[tuple[float, int, bool]]) -> pd.DataFrame:
    """One row per finished training episode, in order of their ends, and per greedy evaluation episode.

    ``greedy``: ``(return, length, truncated)`` of each evaluation episode.
    """
    samples = ledgers.samples
    steps = samples.step
    columns = ["phase", "env", "end_step", "end_s", "length", "return", "truncated"]
    parts = []
    if len(steps):
        order = np.argsort(samples.action_ns[steps], kind="stable")
        position = np.empty(len(steps), np.int64)
        position[order] = np.arange(1, len(steps) + 1)
        reward = np.cumsum(samples.reward[steps])
        over = np.flatnonzero(samples.terminated[steps] | samples.truncated[steps])
        # A reset before the end leaves an unfinished piece: its steps belong to no finished episode.
        start = _episode_starts(ledgers, steps)[over]
        done = steps[over]
        parts.append(
            pd.DataFrame(
                {
                    "phase": "train",
                    "env": samples.env[done],
                    "end_step": position[over],
                    "end_s": (samples.action_ns[done] - samples.action_ns[steps].min()) / 1e9,
                    "length": over - start + 1,
                    "return": reward[over] - reward[start] + samples.reward[steps[start]],
                    "truncated": samples.truncated[done],
                }
            ).sort_values("end_step")
        )
    if greedy:
        frame = pd.DataFrame(greedy, columns=["return", "length", "truncated"])
        parts.append(frame.assign(phase="greedy", env=None, end_step=None, end_s=None)[columns])
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)


def _episode_starts(ledgers: Ledgers, steps: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """For each step, the position in ``steps`` of its episode's first step: where samples are not consecutive."""
    samples = ledgers.samples
    begins = np.ones(len(steps), bool)
    begins[1:] = (np.diff(steps) != 1) | (samples.env[steps[1:]] != samples.env[steps[:-1]])
    return np.maximum.accumulate(np.where(begins, np.arange(len(steps)), 0))


def learning(episodes: pd.DataFrame, window: int, threshold: float | None) -> tuple[dict[str, float], dict[str, str]]:
    """Return ``(figures, reasons for those left out)``.

    The threshold is reached at the first episode at whose end the mean return of the last ``window`` training
    episodes is at least ``threshold``.
    """
    figures: dict[str, float] = {}
    reasons: dict[str, str] = {}
    train = episodes[episodes["phase"] == "train"]
    greedy = episodes[episodes["phase"] == "greedy"]["return"].astype(float)
    if len(greedy):
        figures["return_greedy"] = float(greedy.mean())
    else:
        reasons["return_greedy"] = "no greedy evaluation was run"
    if len(train) < window:
        short = f"only {len(train)} training episodes finished, the window is {window}"
        return figures, {
            **reasons,
            **dict.fromkeys(("return_last", "steps_to_threshold", "seconds_to_threshold"), short),
        }
    running = train["return"].astype(float).rolling(window).mean()
    figures["return_last"] = float(running.iloc[-1])
    if threshold is None:
        why = "the scenario has no return threshold"
    else:
        reached = np.flatnonzero(running.to_numpy() >= threshold)
        if len(reached):
            row = train.iloc[reached[0]]
            figures["steps_to_threshold"] = int(row["end_step"])
            figures["seconds_to_threshold"] = float(row["end_s"])
            return figures, reasons
        why = f"the mean return of {window} episodes never reached {threshold:g}"
    return figures, {**reasons, **dict.fromkeys(("steps_to_threshold", "seconds_to_threshold"), why)}
