"""CartPole with a price: the same task, and the price is paid in processor time."""

from __future__ import annotations

import time

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")

from rlbench.probe.costly import CostlyCartPole  # noqa: E402
from rlbench.probe.env import make_plain  # noqa: E402

ID = "rlbench.probe.costly:CostlyCartPole-v1"


def test_it_plays_as_cartpole_does() -> None:
    costly, plain = make_plain(ID, {"milliseconds": 0.01}), make_plain("CartPole-v1", {})
    assert costly.spec.max_episode_steps == plain.spec.max_episode_steps
    actions = np.random.default_rng(0).integers(0, 2, 300)
    np.testing.assert_array_equal(costly.reset(seed=7)[0], plain.reset(seed=7)[0])
    for action in actions:
        (seen, *rest), (wanted, *others) = costly.step(action), plain.step(action)
        np.testing.assert_array_equal(seen, wanted)
        assert rest == others
        if rest[1] or rest[2]:
            np.testing.assert_array_equal(costly.reset()[0], plain.reset()[0])


def test_a_step_costs_its_price() -> None:
    env = make_plain(ID, {"milliseconds": 2.0})
    env.reset(seed=0)
    before = time.thread_time_ns()
    for _ in range(5):
        env.step(0)
    assert time.thread_time_ns() - before >= 5 * 2_000_000


@pytest.mark.parametrize("price", [-1, float("nan")])
def test_a_wrong_price_is_refused(price: float) -> None:
    with pytest.raises(ValueError, match="milliseconds is"):
        CostlyCartPole(price)
