"""Plays a script: the harness must find exactly what it says."""

import mmap
import multiprocessing
import os
import signal
import subprocess
import sys
import time

import numpy as np
from script import FAULTS, LEARNER, SCRIPTS

from rlbench.probe import clock
from rlbench.probe.taps import Taps


class Adapter:
    def skip(self, trial):
        return None

    def train(self, trial, probe):
        scripts = {**SCRIPTS, **FAULTS}
        if trial.variant not in scripts:
            return getattr(self, "_" + trial.variant)(trial)
        script = scripts[trial.variant]()
        base = clock.now_ns()
        layout, dim = trial.spaces()[:2]
        seen = {}
        if script.actors:
            queue = multiprocessing.get_context("fork").Queue()
            for env in range(script.n_envs):
                arguments = (queue, trial, script, script.process(env), base, layout, dim)
                multiprocessing.get_context("fork").Process(target=_actor, args=arguments).start()
            for _ in range(script.n_envs):
                seen.update(queue.get())
        play(trial, probe, script, LEARNER, base, seen)
        if trial.variant == "crowded":
            taps = probe.updated.__self__
            taps.facts = {"compute_threads": 1000}
            taps.describe()
        return lambda observation: 0

    def _busy(self, trial):
        _step(trial)
        until = time.thread_time() + 4
        while time.thread_time() < until:
            sum(range(1000))
        return lambda observation: 0

    def _growing(self, trial):
        env = trial.make_env(0)
        env.reset(seed=0)
        hoard = []
        for _ in range(300):
            hoard.append(b"x" * (2 << 20))
            time.sleep(0.05)
            if env.step(0)[2]:
                env.reset()
        return lambda observation: 0

    def _leaky(self, trial, seconds=2):
        _step(trial)
        path = os.environ["RLBENCH_TEST_SEGMENT"]
        with open(path, "w+b") as file:
            file.truncate(4096)
            held = mmap.mmap(file.fileno(), 4096)
        time.sleep(seconds)
        assert held[0] == 0
        os.kill(os.getpid(), signal.SIGKILL)

    def _holds(self, trial):
        self._leaky(trial, 3600)

    def _raises(self, trial):
        _step(trial)
        raise RuntimeError("the oracle was told to raise")

    def _exits(self, trial):
        _step(trial)
        print("last words", flush=True)
        os._exit(7)

    def _hangs(self, trial):
        _step(trial)
        # As a worker does that puts a title of its own over its environment, and will not be asked to end.
        subprocess.call(["sh", "-c", "trap '' TERM; exec sleep 3600"], start_new_session=True, env={})

    def _killed(self, trial):
        _step(trial)
        os.kill(os.getpid(), signal.SIGKILL)

    def _grandchild(self, trial):
        _step(trial)
        program = "import os, time; os.setsid(); open(%r, 'w').write(str(os.getpid())); time.sleep(3600)"
        path = os.environ.get("RLBENCH_TEST_PIDFILE", os.path.join(trial.folder, "pid"))
        subprocess.Popen([sys.executable, "-c", program % path])
        while not (os.path.exists(path) and open(path).read()):
            time.sleep(0.01)
        return lambda observation: 0

    def _hungry(self, trial):
        _step(trial)
        hoard = []
        while True:
            hoard.append(np.ones(1 << 20))
            time.sleep(0.005)


def _step(trial):
    env = trial.make_env(0)
    env.reset(seed=0)
    env.step(0)


def _actor(queue, trial, script, process, base, layout, dim):
    queue.put(play(trial, Taps(trial.folder, layout, dim), script, process, base, {}))


def weights(version):
    """The parameter array of policy version ``version``."""
    return np.arange(8, dtype=np.float32) + 100 * version


def play(trial, taps, script, process, base, seen):
    """Play the events of one process by the script's clock and return the observations that it was handed."""
    times = []
    clock.now_ns = lambda: base + times.pop(0)
    envs, numbers = {}, {}
    for event in script.events:
        if event["process"] != process:
            continue
        kind = event["kind"]
        if kind in ("reset", "step"):
            env = event["env"]
            if env not in envs:
                envs[env], numbers[env] = trial.make_env(env), 0
            if kind == "reset":
                times.append(event["ready"])
                observation = envs[env].reset(seed=env)[0]
            else:
                times.extend([event["action"], event["ready"]])
                observation = envs[env].step(0)[0]
            seen[env, numbers[env]] = observation
            numbers[env] += 1
            continue
        times.append(event["time"])
        if kind == "update":
            taps.updated(weights(event["version"]), learning_rate=1e-3)
            continue
        rows = np.stack([seen[tuple(sample)] for sample in event["samples"]])
        if kind == "act":
            taps.acted(rows, weights(event["version"]))
        else:
            for position in event["unreadable"]:
                rows[position] = rows[position] * np.float32(0.37) + np.float32(3.3)
            taps.learned(rows)
    assert not times
    # Whatever follows, the harness's evaluation included, goes by the real clock again.
    clock.now_ns = time.monotonic_ns
    return seen
