"""The ceiling: how fast the same environment steps in the same interpreter with random actions and no library."""

import itertools
import os
import tempfile

from rlbench.probe import clock
from rlbench.probe.env import TapEnv, make_plain

_ACTIONS = 256


def measure_ceiling(env_id, kwargs, seconds=1.0, rounds=6):
    """Return ``(ceiling_steps_per_s, probe_us_per_step)``, each from the median of alternating rounds.

    The probe's cost is the difference per step between the instrumented and the bare environment; ``seconds`` is
    shared by all rounds. Both see the same actions and seed.
    """
    bare, tapped = [], []
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(rounds):
            bare.append(_ns_per_step(make_plain(env_id, kwargs), seconds / rounds / 2))
            ledgers = os.path.join(folder, str(turn))
            os.mkdir(ledgers)
            tapped.append(_ns_per_step(TapEnv(make_plain(env_id, kwargs), ledgers, 0), seconds / rounds / 2))
    middle = sorted(bare)[rounds // 2]
    return 1e9 / middle, (sorted(tapped)[rounds // 2] - middle) / 1e3


def _ns_per_step(env, seconds):
    """Mean time of a step in ns over about ``seconds``; resets are part of stepping and are included."""
    env.action_space.seed(0)
    actions = itertools.cycle([env.action_space.sample() for _ in range(_ACTIONS)])
    env.reset(seed=0)
    start, steps = clock.now_ns(), 0
    stop = start + int(seconds * 1e9)
    while clock.now_ns() < stop:
        for _ in range(64):
            _, _, terminated, truncated, _ = env.step(next(actions))
            if terminated or truncated:
                env.reset()
        steps += 64
    elapsed = clock.now_ns() - start
    env.close()
    return elapsed / steps
