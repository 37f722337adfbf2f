"""Prioritised replay against the probabilities of its definition."""

import numpy as np
import pytest

from rlbench.pipeline.replay import AdaptiveDepth, PrioritisedReplay

RECORD = np.dtype([("number", "<i8")])


def rows(*numbers):
    return np.array([(n,) for n in numbers], RECORD)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_draws_follow_the_priorities_and_weights_undo_them(alpha):
    replay = PrioritisedReplay(5, RECORD, alpha)
    replay.add(rows(*range(5)))
    priority = np.array([1.0, 2.0, 4.0, 0.5, 8.0])
    replay.update(np.arange(5), priority)
    expected = priority**alpha / (priority**alpha).sum()
    records, index, weight = replay.sample(100_000, np.random.default_rng(0), beta=1.0)
    assert np.array_equal(records["number"], index)
    assert np.bincount(index, minlength=5) / 100_000 == pytest.approx(expected, abs=2e-3)
    weights = (5 * expected) ** -1.0
    assert weight == pytest.approx((weights / weights.max())[index], rel=1e-5)
    # Weighted draws are uniform again.
    assert np.bincount(index, weight) / weight.sum() == pytest.approx(np.full(5, 0.2), abs=3e-3)


def test_new_records_have_the_highest_priority_and_replace_the_oldest():
    replay = PrioritisedReplay(3, RECORD, 1.0)
    replay.add(rows(0, 1, 2))
    replay.update([0, 1, 2], [10.0, 1e-9, 1e-9])
    replay.add(rows(3))
    assert replay.records["number"].tolist() == [3, 1, 2]
    replay.add(rows(4))
    _, index, _ = replay.sample(1000, np.random.default_rng(0))
    assert np.bincount(index, minlength=3)[:2] == pytest.approx([500, 500], abs=2)
    assert len(replay) == 3


def test_the_same_index_twice_keeps_the_tree_whole():
    replay = PrioritisedReplay(6, RECORD, 1.0)
    replay.add(rows(*range(6)))
    replay.update([2, 2, 3], [5.0, 7.0, 1.0])
    leaves = replay._tree[replay._leaves :]
    assert replay._tree[1] == pytest.approx(leaves.sum())


def test_bad_use_is_refused():
    with pytest.raises(ValueError, match="capacity >= 1"):
        PrioritisedReplay(0, RECORD)
    with pytest.raises(LookupError, match="nothing to sample"):
        PrioritisedReplay(2, RECORD).sample(1, np.random.default_rng(0))
    with pytest.raises(ValueError, match="do not fit"):
        PrioritisedReplay(1, RECORD).add(rows(1, 2))
    with pytest.raises(ValueError, match=r"not in 1\.\.4"):
        AdaptiveDepth(4, 10, depth=5)


def test_a_thousand_random_updates_keep_every_sum_right():
    rng = np.random.default_rng(1)
    replay = PrioritisedReplay(100, RECORD, 0.7)
    for _ in range(1000):
        replay.add(rows(*range(rng.integers(1, 5))))
        index = rng.integers(0, len(replay), 8)
        replay.update(index, rng.random(8) + 1e-3)
    tree, n = replay._tree, replay._leaves
    assert tree[1:n] == pytest.approx(tree[2 : 2 * n : 2] + tree[3 : 2 * n : 2])
