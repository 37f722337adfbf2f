"""Drives ChainerRL: its agents in its own batch training loop, and A3C in its asynchronous one."""

import collections
import collections.abc
import multiprocessing
import tempfile
import warnings

import chainer
import chainer.functions as F
import numpy as np
from chainerrl.agents import A2C, A3C, DQN, PPO, SoftActorCritic
from chainerrl.agents.a2c import A2CSeparateModel
from chainerrl.agents.a3c import A3CSeparateModel
from chainerrl.distribution import SquashedGaussianDistribution
from chainerrl.envs import MultiprocessVectorEnv, SerialVectorEnv
from chainerrl.experiments import train_agent_async, train_agent_batch
from chainerrl.explorers import LinearDecayEpsilonGreedy
from chainerrl.links import MLP, Sequence
from chainerrl.misc import set_random_seed
from chainerrl.misc.async_ import AbnormalExitWarning
from chainerrl.policies import GaussianHeadWithStateIndependentCovariance, SoftmaxPolicy
from chainerrl.q_functions import SingleModelStateQFunctionWithDiscreteAction
from chainerrl.replay_buffer import ReplayBuffer

from rlbench.probe.chainertap import tap_actor_learner, tap_policy

# A3C asks for it; Python 3.10 took it away.
collections.Iterable = collections.abc.Iterable


class Stop(Exception):
    """Raised from a step hook when the budget in seconds is used up; the trainer itself counts steps only."""


class Bridge:
    """The instrumented environment as ChainerRL wants it: a time limit is no end but ``needs_reset``."""

    spec = None

    def __init__(self, env, seed, to_env):
        self._env, self._seed, self._to_env = env, seed, to_env
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.close = env.close

    def reset(self):
        seed, self._seed = self._seed, None
        return self._env.reset(seed=seed)[0]

    def step(self, action):
        observation, reward, terminated, truncated, info = self._env.step(self._to_env(action))
        return observation, reward, terminated, {**info, "needs_reset": truncated}


class Adapter:
    def skip(self, trial):
        if trial.algorithm == "sac" and trial.gradient_steps != 1:
            return "SoftActorCritic makes one gradient step per update"
        if trial.mode == "async" and trial.algorithm not in ("ppo", "a2c"):
            return "asynchronous training is wired for A3C, in place of PPO and A2C"
        return None

    def train(self, trial, probe):
        set_random_seed(trial.seed)
        _, inputs, _, actions = trial.spaces()
        to_env = _action_map(trial, actions)
        train = self._train_async if trial.mode == "async" else self._train_batch
        agent = train(trial, probe, inputs, actions, to_env)
        agent.act_deterministically = True
        return lambda observation: to_env(agent.act(observation))

    def _train_batch(self, trial, probe, inputs, actions, to_env):
        makers = [
            lambda index=index: Bridge(trial.make_env(index), trial.seed + index, to_env)
            for index in range(trial.n_envs)
        ]
        env = SerialVectorEnv([make() for make in makers]) if trial.mode == "sync" else MultiprocessVectorEnv(makers)
        agent, body, optimizer = getattr(self, "_" + trial.algorithm)(trial, inputs, actions)
        tap_policy(probe, body.hidden_layers[0], optimizer, trial.n_envs)

        steps = 0

        def each_step(env, agent, step):
            nonlocal steps
            steps = step
            if trial.seconds and step % 256 == 0 and probe.should_stop():
                raise Stop

        # The trainer saves the agent when it ends.
        with tempfile.TemporaryDirectory() as folder:
            try:
                train_agent_batch(agent, env, trial.env_steps, folder, step_hooks=[each_step])
                env.close()
            except Stop:
                print("stopped: the budget in seconds is used up")
        probe.report("env_steps", steps, "step, as the training loop logs it")
        updates = dict(agent.get_statistics()).get("n_updates")
        if updates is not None:
            probe.report("updates", updates, "n_updates of the agent's statistics")
        return agent

    def _train_async(self, trial, probe, inputs, actions, to_env):
        agent, body = self._a3c(trial, inputs, actions)
        tap_actor_learner(probe, agent, body.hidden_layers[0])
        used_up = multiprocessing.Value("b", False, lock=False)

        def make_env(index, test):
            # The trainer seeds each process with its number alone.
            set_random_seed(1000 * trial.seed + index)
            return Bridge(trial.make_env(index), trial.seed + index, to_env)

        def each_step(env, agent, step):
            used_up.value = used_up.value or (step % 256 == 0 and probe.should_stop())
            if used_up.value:
                raise SystemExit(0)

        hooks = [each_step] if trial.seconds else []
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            # The trainer merely warns, once the others have ended, when a process has died.
            warnings.simplefilter("error", AbnormalExitWarning)
            try:
                train_agent_async(
                    folder,
                    trial.workers,
                    make_env,
                    steps=trial.env_steps,
                    eval_interval=None,
                    agent=agent,
                    global_step_hooks=hooks,
                )
            finally:
                for process in multiprocessing.active_children():
                    process.kill()
        agent.model = agent.shared_model
        return agent

    def _body(self, trial, inputs, outputs):
        return MLP(inputs, outputs, trial.net_arch, F.tanh if trial.activation == "tanh" else F.relu)

    def _adam(self, trial, model, clipped=False):
        optimizer = chainer.optimizers.Adam(alpha=trial.learning_rate)
        optimizer.setup(model)
        if clipped:
            optimizer.add_hook(chainer.optimizer_hooks.GradientClipping(trial.max_grad_norm))
        return optimizer

    def _policy(self, trial, inputs, actions):
        """Return the policy of PPO and A2C, and its multilayer perceptron."""
        if hasattr(actions, "n"):
            body = self._body(trial, inputs, int(actions.n))
            return SoftmaxPolicy(body), body
        size = actions.shape[0]
        body = self._body(trial, inputs, size)
        head = GaussianHeadWithStateIndependentCovariance(
            size, var_type="diagonal", var_func=lambda log_std: F.exp(2 * log_std), var_param_init=0
        )
        return Sequence(body, head), body

    def _ppo(self, trial, inputs, actions):
        policy, body = self._policy(trial, inputs, actions)
        model = A3CSeparateModel(pi=policy, v=self._body(trial, inputs, 1))
        optimizer = self._adam(trial, model, clipped=True)
        agent = PPO(
            model,
            optimizer,
            gamma=trial.gamma,
            lambd=trial.gae_lambda,
            value_func_coef=trial.vf_coef,
            entropy_coef=trial.ent_coef,
            # Of all environments together.
            update_interval=trial.n_steps * trial.n_envs,
            minibatch_size=trial.batch_size,
            epochs=trial.n_epochs,
            clip_eps=trial.clip_range,
            standardize_advantages=trial.normalize_advantage,
        )
        return agent, body, optimizer

    def _a2c(self, trial, inputs, actions):
        policy, body = self._policy(trial, inputs, actions)
        model = A2CSeparateModel(pi=policy, v=self._body(trial, inputs, 1))
        optimizer = self._adam(trial, model, clipped=True)
        agent = A2C(
            model,
            optimizer,
            gamma=trial.gamma,
            num_processes=trial.n_envs,
            update_steps=trial.n_steps,
            v_loss_coef=trial.vf_coef,
            entropy_coeff=trial.ent_coef,
            use_gae=True,
            tau=trial.gae_lambda,
        )
        return agent, body, optimizer

    def _a3c(self, trial, inputs, actions):
        policy, body = self._policy(trial, inputs, actions)
        model = A3CSeparateModel(pi=policy, v=self._body(trial, inputs, 1))
        agent = A3C(
            model,
            self._adam(trial, model, clipped=True),
            t_max=trial.batch_size if trial.algorithm == "ppo" else trial.n_steps,
            gamma=trial.gamma,
            beta=trial.ent_coef,
            # Its loss is half the squared error.
            v_loss_coef=2 * trial.vf_coef,
            normalize_grad_by_t_max=True,
        )
        return agent, body

    def _dqn(self, trial, inputs, actions):
        body = self._body(trial, inputs, int(actions.n))
        model = SingleModelStateQFunctionWithDiscreteAction(body)
        optimizer = self._adam(trial, model)
        explorer = LinearDecayEpsilonGreedy(
            1.0,
            trial.exploration_final_eps,
            max(1, round(trial.exploration_fraction * trial.env_steps)),
            lambda: np.random.randint(int(actions.n)),
        )
        agent = DQN(
            model,
            optimizer,
            ReplayBuffer(trial.buffer_size),
            trial.gamma,
            explorer,
            replay_start_size=trial.learning_starts,
            minibatch_size=trial.batch_size,
            update_interval=trial.train_freq,
            n_times_update=trial.gradient_steps,
            target_update_interval=trial.target_update_interval,
        )
        return agent, body, optimizer

    def _sac(self, trial, inputs, actions):
        size = actions.shape[0]
        body = self._body(trial, inputs, 2 * size)
        policy = Sequence(body, _squashed)
        critics = [chainer.Sequential(_joined, self._body(trial, inputs + size, 1)) for _ in range(2)]
        optimizer = self._adam(trial, policy)
        agent = SoftActorCritic(
            policy,
            *critics,
            optimizer,
            *(self._adam(trial, critic) for critic in critics),
            ReplayBuffer(trial.buffer_size),
            gamma=trial.gamma,
            replay_start_size=trial.learning_starts,
            minibatch_size=trial.batch_size,
            update_interval=trial.train_freq,
            soft_update_tau=trial.tau,
            burnin_action_func=lambda: np.random.uniform(-1, 1, size).astype(np.float32),
            entropy_target=-float(size),
            temperature_optimizer=chainer.optimizers.Adam(alpha=trial.learning_rate),
        )
        return agent, body, optimizer


def _joined(observation, action):
    return F.concat((observation, action), axis=-1)


def _squashed(head):
    mean, log_std = F.split_axis(head, 2, axis=1)
    return SquashedGaussianDistribution(mean, var=F.exp(2 * F.clip(log_std, -20.0, 2.0)))


def _action_map(trial, actions):
    """Return what turns an agent's action into the environment's."""
    if hasattr(actions, "n"):
        return int
    low, high = actions.low, actions.high
    if trial.algorithm == "sac":
        return lambda action: low + (action + 1) / 2 * (high - low)
    return lambda action: np.clip(action, low, high)
