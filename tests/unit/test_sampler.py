"""Processor time is booked to who uses it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlbench.probe import sampler as sampler_module
from rlbench.probe.sampler import OwnerSampler

SPIN = """
import time
def spin(seconds, call=None):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        sum(range(100)) if call is None else call(0.01)
"""


def spinner(path: str) -> Callable[..., None]:
    """A function that uses processor time, or has another use it, whose code lies in ``path``."""
    scope: dict[str, Any] = {}
    exec(compile(SPIN, path, "exec"), scope)
    found: Callable[..., None] = scope["spin"]
    return found


def test_time_is_booked_to_its_owner() -> None:
    adapter, library = spinner("/somewhere/adapters/mine/adapter.py"), spinner("/env/site-packages/lib/ppo.py")
    sampler = OwnerSampler("/somewhere/adapters/mine/adapter.py", "lib")
    sampler.start()
    adapter(1.0)
    library(1.0)
    # What an adapter has the library do is the library's, and waiting is nobody's.
    adapter(1.0, library)
    time.sleep(0.3)
    found = sampler.stop()
    assert found["looks"] >= 10
    seconds = found["seconds"]
    assert sum(seconds.values()) == pytest.approx(3.0, abs=0.6)
    assert seconds["adapter"] / sum(seconds.values()) == pytest.approx(1 / 3, abs=0.2)
    assert seconds["probe"] == seconds["env"] == 0


@pytest.mark.parametrize("module", ["costly", "tokens"])
def test_an_environment_beside_the_probe_is_no_part_of_it(module: str) -> None:
    probe = Path(sampler_module.__file__).parent
    step = "def step(call): call(0.01)\n"
    tap: dict[str, Any] = {}
    exec(compile(step, str(probe / "env.py"), "exec"), tap)
    environment = spinner(str(probe / f"{module}.py"))
    sampler = OwnerSampler("/somewhere/adapters/mine/adapter.py", "lib")
    sampler.start()
    spinner("/env/site-packages/lib/ppo.py")(1.0, lambda seconds: tap["step"](environment))
    seconds = sampler.stop()["seconds"]
    assert seconds["env"] > 0.7 * sum(seconds.values()) > 0
