"""The env tap changes nothing but the stamp bits, and its ledger says what happened."""

from __future__ import annotations

import copy
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")

from rlbench.analyse.ledgers import read_ledgers  # noqa: E402
from rlbench.probe import stamp  # noqa: E402
from rlbench.probe.env import CountEnv, TapEnv, make_plain, stamped_space  # noqa: E402
from rlbench.probe.ledger import ENV, HEADER, Ledger, env_steps, read_header, read_rows  # noqa: E402
from rlbench.probe.taps import Taps, fingerprint  # noqa: E402

# Bits of each float32 element that a stamp may touch.
MASKS = {"float4": 0xFF, "float6": 0xFF, "float3": 0x7FF, "tail4": 0}


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0"])
def test_the_same_actions_give_the_same_states_rewards_and_observations(env_id: str, tmp_path: Path) -> None:
    """Bit for bit: states and rewards wholly, observations but for the bits that hold the stamp."""
    plain, tapped = make_plain(env_id, {}), TapEnv(make_plain(env_id, {}), str(tmp_path), 3)
    layout, dim, space = stamped_space(plain.observation_space)
    assert tapped.observation_space == space
    plain.action_space.seed(1)
    first, second = plain.reset(seed=5)[0], tapped.reset(seed=5)[0]
    for _ in range(3000):
        for index, (a, b) in enumerate(zip(first, second[: len(first)], strict=True)):
            kept = ~np.uint32(MASKS[layout] if index < stamp.FLOAT_LAYOUTS[layout] else 0)
            assert np.float32(a).view(np.uint32) & kept == b.view(np.uint32) & kept
        assert np.array_equal(plain.unwrapped.state, tapped.unwrapped.state)
        action = plain.action_space.sample()
        first, *rest = plain.step(action)
        second, *same = tapped.step(action)
        assert rest == same
        if rest[1] or rest[2]:
            first, second = plain.reset()[0], tapped.reset()[0]
    assert dim == len(second)


def test_the_ledger_holds_every_step_with_its_id(tmp_path: Path) -> None:
    env = TapEnv(make_plain("CartPole-v1", {}), str(tmp_path), 2)
    seen, rewards = [env.reset(seed=0)[0]], []
    resets = 1
    for number in range(500):
        observation, reward, terminated, truncated, _ = env.step(number % 2)
        seen.append(observation)
        rewards.append(reward)
        if terminated or truncated:
            seen.append(env.reset()[0])
            resets += 1
    path = tmp_path / "env-2.ledger"
    header = read_header(path)
    assert header is not None
    assert (header["env"], header["layout"]) == (2, "float4")
    rows = read_rows(path, ENV)
    assert len(rows) == len(seen) == 500 + resets
    ids = stamp.decode("float4", stamp.extract("float4", 4, np.stack(seen)))
    assert set(ids[0]) == {2}
    assert ids[1].tolist() == list(range(len(seen)))
    acted = rows[rows["action_ns"] > 0]
    assert len(acted) == env.steps == 500
    assert env_steps(tmp_path) == (500, len(seen))
    assert acted["reward"].tolist() == rewards
    assert (np.diff(rows["ready_ns"]) > 0).all()
    assert (acted["action_ns"] >= acted["ready_ns"]).all()
    assert (rows["flags"] > 0).sum() == resets - 1


def test_a_ledger_grows_and_is_read_up_to_its_last_row(tmp_path: Path) -> None:
    env = TapEnv(make_plain("CartPole-v1", {}), str(tmp_path), 0)
    env.reset(seed=0)
    for _ in range(90_000):
        if env.step(0)[2]:
            env.reset()
    rows = read_rows(tmp_path / "env-0.ledger", ENV)
    assert int((rows["action_ns"] > 0).sum()) == 90_000


def test_a_copy_made_before_the_first_reset_works_and_a_later_one_is_refused(tmp_path: Path) -> None:
    original = TapEnv(make_plain("CartPole-v1", {}), str(tmp_path))
    for twin in (copy.deepcopy(original), pickle.loads(pickle.dumps(original)), original):
        twin.reset(seed=0)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"env-{index}.ledger" for index in range(3)]
    with pytest.raises(TypeError, match="cannot be copied"):
        pickle.dumps(original)
    with pytest.raises(FileExistsError, match="environment index 1 is in use"):
        TapEnv(make_plain("CartPole-v1", {}), str(tmp_path), 1).reset(seed=0)


def test_an_array_that_the_environment_keeps_is_not_touched(tmp_path: Path) -> None:
    class Keeps(gymnasium.Env):  # type: ignore[misc]
        observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
        action_space = gymnasium.spaces.Discrete(2)
        state = np.full(4, 0.1, np.float32)

        def reset(self, *, seed=None, options=None):  # type: ignore[no-untyped-def]
            return self.state, {}

        def step(self, action):  # type: ignore[no-untyped-def]
            return self.state, 0.0, False, False, {}

    env = TapEnv(Keeps(), str(tmp_path), 9)
    first, second = env.reset()[0], env.step(0)[0]
    assert np.array_equal(Keeps.state, np.full(4, 0.1, np.float32))
    assert not np.shares_memory(first, second)


def test_the_bare_counter_gives_the_same_shapes(tmp_path: Path) -> None:
    marks: list[tuple[int, int, int]] = []
    env = CountEnv(make_plain("MountainCar-v0", {}), marks, every=10)
    assert env.reset(seed=0)[0].shape == env.observation_space.shape == (6,)
    for _ in range(35):
        env.step(0)
    assert [mark[0] for mark in marks] == [10, 20, 30]


def test_environments_that_cannot_be_used_are_named() -> None:
    with pytest.raises(ValueError, match="environment 'Nonsense-v0' cannot be made"):
        make_plain("Nonsense-v0", {})
    with pytest.raises(ValueError, match="cannot be stamped"):
        stamped_space(gymnasium.spaces.Discrete(4))


@pytest.mark.parametrize(("layout", "dim"), [("float4", 4), ("float4", 5), ("float6", 64), ("pixel", 64)])
def test_passes_keep_their_rows_in_order_and_survive_growth(tmp_path: Path, layout: str, dim: int) -> None:
    taps = Taps(str(tmp_path), layout, dim)
    kind = np.uint8 if layout == "pixel" else np.float32
    encode = stamp.make_encoder(layout, 0)
    batch = np.stack([encode(np.ones(dim, kind), number) for number in range(4096)])
    for start in range(100):
        taps.learned(batch[start:])
    if layout != "pixel":
        # As a Q network is fed: the action beside the observation.
        taps.learned(np.concatenate([batch, np.ones((4096, 2), np.float32)], axis=1))
    Ledger(tmp_path / "env-0.ledger", {"env": 0, "pid": os.getpid()})
    ledger = np.memmap(tmp_path / "env-0.ledger", ENV, "r+", HEADER, 4096)
    ledger["ready_ns"] = 1
    passes = read_ledgers(tmp_path).passes
    starts = list(range(100)) + [0] * (layout != "pixel")
    assert passes.rows.tolist() == [4096 - start for start in starts]
    assert np.array_equal(passes.sample, np.concatenate([np.arange(start, 4096) for start in starts]))


def test_fingerprints_tell_versions_apart() -> None:
    weights = np.random.default_rng(0).standard_normal((64, 4)).astype(np.float32)
    assert fingerprint(weights) == fingerprint(weights.copy())
    assert len(fingerprint(weights)) == len(fingerprint(np.ones(1))) == 16
    assert fingerprint(weights) != fingerprint(weights + 1e-6)


def test_a_full_disk_is_an_error_in_the_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    ledger = Ledger(str(tmp_path / "x.ledger"), {"pid": 1})

    def full(*arguments: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        ledger.grow(1 << 21)
