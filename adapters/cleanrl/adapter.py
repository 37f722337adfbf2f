"""Drives CleanRL's own single-file scripts, unmodified: they run as ``__main__`` with command-line arguments."""

import functools
import importlib.util
import sys
import types
from pathlib import Path

import numpy as np
import torch

from rlbench.probe.bridges import gym_space, old_gym

ENV_ID = "RlbenchTrial-v0"


class Stop(Exception):
    """Raised from the vector environment when the budget in seconds is used up; the scripts have no other end."""


class Adapter:
    def skip(self, trial):
        if trial.algorithm == "dqn" and trial.n_envs != 1:
            return "dqn.py takes one environment only"
        if trial.algorithm == "ppo" and "n" not in vars(trial.spaces()[3]):
            return "ppo.py takes discrete actions only (ppo_continuous_action.py normalises what it observes)"
        return None

    def train(self, trial, probe):
        logged = _stub_tensorboard()
        script = "ppo.py" if trial.algorithm == "ppo" else "dqn.py"
        arguments = getattr(self, "_" + trial.algorithm)(trial)
        arguments += ["--env-id", ENV_ID, "--seed", str(trial.seed), "--cuda", str(trial.device == "cuda")]
        arguments += ["--total-timesteps", str(trial.env_steps), "--learning-rate", str(trial.learning_rate)]
        _register(trial, probe, old=trial.algorithm == "ppo")
        main = _run_script(script, arguments)
        if "charts/SPS" in logged:
            note = "charts/SPS, a whole number: since the first reset, at its last entry"
            probe.report("env_steps_per_s", logged["charts/SPS"], note)
        if not trial.seconds:  # which end it after it has counted a step that is not made
            probe.report("env_steps", main.global_step, "global_step at the end")
        if trial.algorithm == "dqn":
            network, device = main.q_network, main.device
        else:
            network, device = main.agent.actor, main.device

        def policy(observation):
            with torch.no_grad():
                return int(network(torch.as_tensor(np.asarray(observation)[None]).to(device)).argmax())

        return policy

    def _ppo(self, trial):
        flags = {
            "num-envs": trial.n_envs,
            "num-steps": trial.n_steps,
            "num-minibatches": trial.n_steps * trial.n_envs // trial.batch_size,
            "update-epochs": trial.n_epochs,
            "gamma": trial.gamma,
            "gae-lambda": trial.gae_lambda,
            "clip-coef": trial.clip_range,
            "clip-vloss": False,
            "anneal-lr": False,
            "norm-adv": trial.normalize_advantage,
            "ent-coef": trial.ent_coef,
            # The script halves the squared error before it applies the coefficient.
            "vf-coef": 2 * trial.vf_coef,
            "max-grad-norm": trial.max_grad_norm,
        }
        return _flags(flags)

    def _dqn(self, trial):
        flags = {
            "buffer-size": trial.buffer_size,
            "gamma": trial.gamma,
            "target-network-frequency": trial.target_update_interval,
            "batch-size": trial.batch_size,
            "end-e": trial.exploration_final_eps,
            "exploration-fraction": trial.exploration_fraction,
            "learning-starts": trial.learning_starts,
            "train-frequency": trial.train_freq,
        }
        return _flags(flags)


def _flags(flags):
    return [part for name, value in flags.items() for part in ("--" + name, str(value))]


def _register(trial, probe, old):
    """Register the instrumented environment under ENV_ID with the gym that the script imports.

    The script asks for that gym's SyncVectorEnv. It gets a subclass that numbers the environments and ends at the
    budget in seconds; with worker processes, one of AsyncVectorEnv.
    """
    if old:
        import gym
    else:
        import gymnasium as gym
    number = []

    def make(**ignored):
        env = trial.make_env(*number)
        return old_gym(env) if old else env

    def numbered(index, make_env):
        # Set where the environment is made: in the process that steps it.
        number[:] = [index]
        return make_env()

    # Given, not taken from the first environment: gym 0.23 cannot send a space that has been seeded to a process.
    spaces = [gym_space(space) for space in trial.spaces()[2:]] if old else []

    class Vector(gym.vector.SyncVectorEnv if trial.mode == "sync" else gym.vector.AsyncVectorEnv):
        def __init__(self, makers):
            numbers = enumerate(makers)
            super().__init__([functools.partial(numbered, index, maker) for index, maker in numbers], *spaces)

        if trial.seconds:

            def step_async(self, actions):
                if probe.should_stop():
                    self.close()
                    raise Stop
                super().step_async(actions)

    options = {} if old else {"disable_env_checker": True}
    gym.register(id=ENV_ID, entry_point=make, order_enforce=False, **options)
    gym.vector.SyncVectorEnv = Vector


def _run_script(name, arguments):
    """Execute a script of the installed package as ``__main__`` and return its namespace as a module."""
    folder = importlib.util.find_spec("cleanrl").submodule_search_locations[0]
    path = str(Path(folder) / name)
    main = types.ModuleType("__main__")
    main.__file__ = path
    sys.modules["__main__"] = main
    sys.argv = [path, *arguments]
    try:
        exec(compile(Path(path).read_text(), path, "exec"), main.__dict__)
    except Stop:
        print("stopped: the budget in seconds is used up")
    return main


def _stub_tensorboard():
    """Stand in for TensorBoard, which the scripts log to: its cost is not the library's.

    Returns the dictionary that the last value under each name goes to.
    """
    logged = {}

    class SummaryWriter:
        def __init__(self, *args, **kwargs):
            pass

        def add_text(self, *args, **kwargs):
            pass

        def add_scalar(self, name, value, step):
            logged[name] = value

        def close(self):
            pass

    module = types.ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = SummaryWriter
    sys.modules["torch.utils.tensorboard"] = module
    return logged
