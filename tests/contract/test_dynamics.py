"""One environment for all guests: the same actions give the same trajectory, bit for bit, in every interpreter.

Rewards are compared as float32, which is what the dm_env interface hands over.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rlbench.catalog.library import load_libraries
from rlbench.errors import Unavailable
from rlbench.execute.guest import guest_code, guest_variables
from rlbench.provision.build import environments

pytestmark = pytest.mark.contract

ENVIRONMENTS = ["CartPole-v1", "Pendulum-v1", "Acrobot-v1"]
PROGRAM = """
import hashlib, importlib.util, json, sys, tempfile
import numpy as np
from rlbench.probe.bridges import dm_env, old_gym
from rlbench.probe.env import TapEnv, make_plain

def trajectory(make, step, reset):
    digest = hashlib.sha256()
    env = make()
    random = np.random.default_rng(3)
    observation = reset(env, 5)
    for _ in range(1000):
        digest.update(np.asarray(observation, np.float32).tobytes())
        # Actions come from numpy, not from the space: spaces of different versions sample differently.
        action = int(random.integers(0, count)) if count else random.uniform(low, high).astype(np.float32)
        observation, reward, over = step(env, action)
        digest.update(np.float32(reward).tobytes() + bytes([bool(over)]))
        if over:
            digest.update(np.asarray(observation, np.float32).tobytes())
            observation = reset(env, None)
    return digest.hexdigest()

def tapped():
    return TapEnv(make_plain(name, {}), tempfile.mkdtemp(), 0)

def step(env, action):
    observation, reward, terminated, truncated, _ = env.step(action)
    return observation, reward, terminated or truncated

answer = {}
for name in sys.argv[1].split(","):
    space = make_plain(name, {}).action_space
    count = int(space.n) if hasattr(space, "n") else 0
    low, high = (None, None) if count else (space.low, space.high)
    answer[name + " gymnasium"] = trajectory(tapped, step, lambda env, seed: env.reset(seed=seed)[0])
    if importlib.util.find_spec("gym"):
        def reset_old(env, seed):
            env.seed(seed)
            return env.reset()
        answer[name + " old gym"] = trajectory(lambda: old_gym(tapped()), lambda env, a: env.step(a)[:3], reset_old)
    if importlib.util.find_spec("dm_env"):
        def step_dm(env, action):
            made = env.step(action)
            return made.observation, made.reward, made.last()
        def reset_dm(env, seed):
            env.seed(seed)
            return env.reset().observation
        answer[name + " dm_env"] = trajectory(lambda: dm_env(tapped()), step_dm, reset_dm)
print("\\nanswer:" + json.dumps(answer))
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """For each library that this machine can provide, the digest of each trajectory by environment and interface."""
    code = guest_code(tmp_path_factory.mktemp("guest"))
    found: dict[str, dict[str, str]] = {}
    for name, guest in environments(load_libraries().values()).items():
        if isinstance(guest, Unavailable):
            assert "--source" in str(guest), f"{name}: {guest}"
            continue
        done = subprocess.run(
            [str(guest.python), "-c", PROGRAM, ",".join(ENVIRONMENTS)],
            env=guest_variables(Path(code), 1, "dynamics"),
            capture_output=True,
            text=True,
            timeout=300,
        )
        lines = [line for line in done.stdout.splitlines() if line.startswith("answer:")]
        assert lines, f"{name}: {done.stderr[-2000:]}"
        found[name] = json.loads(lines[-1].removeprefix("answer:"))
    return found


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_trajectories_are_equal_in_all_interpreters_and_interfaces(answers: Any, environment: str) -> None:
    digests = {
        f"{library}, {interface}": digest
        for library, mine in answers.items()
        for interface, digest in mine.items()
        if interface.startswith(environment + " ")
    }
    assert len(digests) >= len(answers)
    assert len(set(digests.values())) == 1, digests
