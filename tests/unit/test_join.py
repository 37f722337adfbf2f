"""What counts as a consumption of an acted-on sample, and what as a look ahead for a bootstrap value."""

from __future__ import annotations

import dataclasses

import numpy as np

from rlbench.analyse.join import Joined
from rlbench.analyse.steady import lags


def test_a_frame_whose_action_is_still_to_come_is_a_bootstrap_value() -> None:
    """An actor has asked for its action and the learner has the frame, but the environment has not moved."""
    nothing = {field.name: np.empty(0, np.int64) for field in dataclasses.fields(Joined) if field.type == "Array"}
    joined = Joined(
        **nothing
        | {
            "consumed": np.array([0, 1, 2, -1]),
            "consumed_ns": np.array([50, 50, 50, 50]),
            "consumed_version": np.array([7, 7, 7, 7]),
            "acting_version": np.array([4, 5, 6]),
            "acted_ns": np.array([10, 40, 60]),
            "action_ns": np.array([20, 55, 70]),
        },
        fed=4,
        decoded=3,
        module=0,
    )
    assert joined.early.tolist() == [False, True, True, False]
    assert lags(joined).tolist() == [3, -1, -1, -1]
