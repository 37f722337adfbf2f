"""The whole pipeline: its modes agree, its account adds up, the dead are named, nothing is left behind."""

import multiprocessing
import os
import signal
import threading
import time
from multiprocessing import shared_memory

import gymnasium
import numpy as np
import pytest
import torch

from rlbench.lab.batched import Grid
from rlbench.pipeline.policy import Categorical, Gaussian
from rlbench.pipeline.processes import PipelineError
from rlbench.pipeline.settings import Settings
from rlbench.pipeline.trainer import train
from tests.pipeline.leftovers import segments_of

SMALL = {"n_steps": 32, "batch_size": 32, "n_epochs": 2, "learning_rate": 1e-3, "n_envs": 4, "seed": 3}


def cartpole(index):
    return gymnasium.make("CartPole-v1", disable_env_checker=True)


class Pendulum(gymnasium.Wrapper):
    def step(self, action):
        assert action.shape == (1,)
        assert abs(action[0]) <= 2
        return super().step(action)


def pendulum(index):
    return Pendulum(gymnasium.make("Pendulum-v1", disable_env_checker=True))


def weights(result):
    return torch.cat([p.detach().reshape(-1) for p in result.policy.parameters()])


def run(make_env=cartpole, dim=4, distribution=None, note=None, should_stop=lambda: False, **settings):
    return train(make_env, dim, distribution or Categorical(2), Settings(**{**SMALL, **settings}), should_stop, note)


@pytest.fixture(autouse=True)
def no_process_is_left():
    yield
    assert multiprocessing.active_children() == []


class Room(gymnasium.Env):
    """The lab's sparse task, one environment of it: the only reward is in the opposite corner."""

    def __init__(self, index):
        self._grid = Grid([index], 1)

    def reset(self, *, seed=None, options=None):
        return self._grid.observation()[0, 0], {}

    def step(self, action):
        seen, reward, end = self._grid.step(np.array([[action]]))
        return seen[0, 0], float(reward[0, 0]), bool(end[0, 0]), False, {}


def test_a_sparse_task_is_learned_asynchronously_with_staleness_control():
    result = run(
        Room, 12, Categorical(4), env_steps=32_768, mode="async", actors=2, ent_coef=0.01,
        staleness_form="scaled", staleness_threshold=16,
    )  # fmt: skip
    assert result.dropped > 0
    env, reached = Room(9), 0
    for _ in range(20):
        seen, total, end = env.reset()[0], 0.0, False
        while not end:
            action = torch.distributions.Categorical(logits=result.policy.actor(torch.from_numpy(seen)[None])).sample()
            seen, reward, end, _, _ = env.step(int(action))
            total += reward
        reached += total
    # A random policy reaches it in 6 % of the episodes.
    assert reached >= 15


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_one_actor_process_trains_bitwise_as_one_process_for_all(method):
    alone = run(env_steps=1024)
    assert torch.equal(weights(alone), weights(run(env_steps=1024)))
    apart = run(env_steps=1024, mode="workers", actors=1, start_method=method)
    assert torch.equal(weights(alone), weights(apart))
    assert (alone.env_steps, alone.updates, alone.lag_mean) == (apart.env_steps, apart.updates, apart.lag_mean)


@pytest.mark.parametrize("mode, actors, learners", [("sync", 0, 1), ("workers", 2, 1), ("workers", 4, 2)])
def test_lag_in_turn_is_that_of_the_schedule(mode, actors, learners):
    result = run(env_steps=1024, mode=mode, actors=actors, learners=learners)
    # 128 samples a round for all learners together, each of two epochs.
    updates = 2 * (128 // learners) // 32
    assert result.env_steps == 1024
    assert result.updates == 8 * updates
    assert (result.lag_mean, result.lag_max) == ((updates - 1) / 2, updates - 1)
    assert result.dropped == 0


@pytest.mark.parametrize("overwrite, threshold, depth", [(False, 6, 3), (False, None, 1), (True, None, 2)])
def test_asynchronous_run_accounts_for_every_sample(overwrite, threshold, depth):
    result = run(
        env_steps=16_000,
        mode="async",
        actors=2,
        depth=depth,
        overwrite=overwrite,
        staleness_threshold=threshold,
        weight_sync_every=1,
    )
    under_way = result.env_steps - result.learned - result.dropped
    # What lies in the rings, and what the learner had taken for its next round.
    assert 0 <= result.overtaken <= under_way <= 2 * (depth + 1) * 64
    assert result.env_steps >= 16_000
    assert result.lag_max > 7
    assert result.deaths == []
    if threshold:
        assert result.dropped > 0
    elif not overwrite:
        assert result.dropped == 0


def test_depth_follows_the_age_of_samples():
    """A limit that every sample exceeds keeps the depth at one, one that none does lets it grow."""
    lags = [
        run(env_steps=16_000, mode="async", actors=2, depth=8, oldest=oldest, n_epochs=8).lag_mean
        for oldest in (1, 10**6)
    ]
    assert lags[0] < lags[1] / 1.5


def test_learners_apart_end_with_equal_weights():
    """They drift apart between all-reduces; the trainer compares what they end with."""
    result = run(
        env_steps=4096, mode="async", actors=2, learners=2, gradient_sync_every=4, weight_sync_every=6, batch_size=16
    )
    assert result.updates > 0


def test_continuous_actions_in_every_mode():
    for mode, actors in (("sync", 0), ("workers", 2), ("async", 2)):
        result = run(pendulum, 3, Gaussian([-2.0], [2.0]), env_steps=512, mode=mode, actors=actors)
        assert result.updates > 0
        assert abs(result.policy.greedy(np.zeros(3, np.float32))[0]) <= 2
        assert result.policy.log_std.item() != 0


class Mortal(gymnasium.Wrapper):
    """Environment 3 kills its process, or raises, at its 100th step."""

    def __init__(self, env, how):
        super().__init__(env)
        self.how, self.steps = how, 0

    def step(self, action):
        self.steps += 1
        if self.steps == 100 and self.how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.steps == 100:
            raise ValueError("a broken joint")
        return super().step(action)


def mortal(how):
    return lambda index: Mortal(cartpole(index), how) if index == 3 else cartpole(index)


def test_a_killed_actor_is_named_and_the_rest_goes_on(capfd):
    result = run(mortal("kill"), env_steps=8192, mode="async", actors=2)
    assert len(result.deaths) == 1
    assert result.deaths[0].startswith("actor 1 (process ")
    assert result.deaths[0].endswith("was killed by SIGKILL")
    assert "1 actors go on" in capfd.readouterr().err
    assert result.env_steps >= 8192


def test_a_failing_actor_is_quoted():
    result = run(mortal("raise"), env_steps=4096, mode="async", actors=2)
    assert result.deaths[0].endswith("failed: ValueError: a broken joint")


def test_a_dead_actor_ends_what_cannot_go_on():
    with pytest.raises(PipelineError, match=r"actor 1 .* SIGKILL: the rollout it owed"):
        run(mortal("kill"), env_steps=8192, mode="workers", actors=2)
    with pytest.raises(PipelineError, match="SIGKILL: it was the last actor of learner 0"):
        run(mortal("kill"), env_steps=8192, mode="async", actors=1)


@pytest.mark.parametrize("learners", [1, 2])
def test_a_killed_learner_ends_the_run(learners):
    def note(crew):
        for name in [*crew.running("actor"), *crew.running("learner")]:
            assert segments_of(crew.pid(name)) == set()
        threading.Timer(0.5, os.kill, (crew.pid("learner %d" % (learners - 1)), signal.SIGKILL)).start()

    begun = time.monotonic()
    with pytest.raises(PipelineError, match=r"learner \d .*: the run ends"):
        run(env_steps=10**8, mode="async", actors=2, learners=learners, note=note)
    assert time.monotonic() - begun < 30


def test_a_silent_actor_is_named_and_the_rest_goes_on(capfd):
    pids, deadline = [], time.monotonic() + 60

    def note(crew):
        pids.append(crew.pid("actor 1"))
        threading.Timer(0.3, os.kill, (pids[0], signal.SIGSTOP)).start()

    def told():
        if said() not in capfd.readouterr().err and time.monotonic() < deadline:
            return False
        os.kill(pids[0], signal.SIGCONT)
        return True

    def said():
        return "actor 1 (process %d) has not moved for 0.5 s" % pids[0]

    result = run(env_steps=10**8, mode="async", actors=2, note=note, should_stop=told, silent_s=0.5)
    assert said() in result.silences
    assert result.deaths == []


def endless():
    run(env_steps=10**8, mode="async", actors=2, note=lambda crew: print("up", flush=True))


def descendants(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid)) as file:
        return [int(each) for each in file.read().split()]


def test_a_killed_trainer_leaves_no_process_and_no_segment():
    trainer = multiprocessing.get_context("fork").Process(target=endless)
    trainer.start()
    deadline = time.monotonic() + 30
    while len(descendants(trainer.pid)) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    children = descendants(trainer.pid)
    time.sleep(0.5)
    assert [segments_of(pid) for pid in (trainer.pid, *children)] == [set()] * 4
    os.kill(trainer.pid, signal.SIGKILL)
    trainer.join()
    while any(os.path.exists("/proc/%d/cwd" % pid) and running(pid) for pid in children):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_named_segment_would_be_seen():
    segment = shared_memory.SharedMemory(create=True, size=4096)
    assert segment.name in segments_of(os.getpid())
    segment.close()
    segment.unlink()


def running(pid):
    try:
        with open("/proc/%d/stat" % pid) as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_should_stop_ends_a_run():
    asked = []
    result = run(env_steps=10**8, mode="async", actors=2, should_stop=lambda: asked.append(0) or len(asked) > 50)
    assert 0 < result.env_steps < 10**8


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"mode": "parallel"}, "mode 'parallel' is unknown: use sync or workers or async"),
        ({"mode": "async", "actors": 3}, "n_envs 4 is no multiple of 3 actors"),
        ({"mode": "async", "actors": 2, "learners": 4}, "cannot be shared out among 4 learners"),
        ({"mode": "async", "actors": 2, "overwrite": True}, "needs a depth of at least 2"),
        ({"batch_size": 33}, "batch_size 33 does not divide"),
    ],
)
def test_wrong_settings_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        Settings(env_steps=1, **{**SMALL, **wrong})
