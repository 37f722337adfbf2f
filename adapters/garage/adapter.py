"""Drives the PyTorch branch of Garage with its local sampler."""

import tempfile

import akro
import numpy as np
import shim  # noqa: F401
import torch
from dowel import logger
from garage import Environment, EnvSpec, EnvStep, StepType
from garage.experiment import SnapshotConfig
from garage.experiment.deterministic import set_seed
from garage.np.exploration_policies import EpsilonGreedyPolicy
from garage.replay_buffer import PathBuffer
from garage.sampler import FragmentWorker, LocalSampler, VecWorker
from garage.torch.algos import DQN, PPO, SAC
from garage.torch.modules import MLPModule
from garage.torch.optimizers import OptimizerWrapper
from garage.torch.policies import DiscreteQFArgmaxPolicy, GaussianMLPPolicy, TanhGaussianMLPPolicy
from garage.torch.policies.stochastic_policy import StochasticPolicy
from garage.torch.q_functions import ContinuousMLPQFunction, DiscreteMLPQFunction
from garage.torch.value_functions import GaussianMLPValueFunction
from garage.trainer import Trainer
from torch.distributions import Categorical

from rlbench.probe.sampler import library_call


class Stop(Exception):
    """Raised before a rollout when the budget is used up: the algorithms end on whole epochs only."""


class Bridge(Environment):
    """The instrumented environment as Garage's own. Samplers copy environments; this one is theirs already."""

    def __init__(self, env, seed):
        self._env, self._seed, self._length = env, seed, 0
        actions, observations = env.action_space, env.observation_space
        self._box = None if hasattr(actions, "n") else actions
        space = akro.Box(actions.low, actions.high) if self._box else akro.Discrete(int(actions.n))
        limit = env.spec.max_episode_steps or np.inf
        self._spec = EnvSpec(akro.Box(observations.low, observations.high), space, max_episode_length=limit)

    action_space = property(lambda self: self._spec.action_space)
    observation_space = property(lambda self: self._spec.observation_space)
    spec = property(lambda self: self._spec)
    render_modes = property(lambda self: [])

    def reset(self):
        seed, self._seed, self._length = self._seed, None, 0
        return self._env.reset(seed=seed)[0], {}

    def step(self, action):
        taken = np.clip(action, self._box.low, self._box.high) if self._box else int(action)
        observation, reward, terminated, _, _ = self._env.step(taken)
        self._length += 1
        kind = StepType.get_step_type(self._length, self._spec.max_episode_length, terminated)
        return EnvStep(self._spec, action, reward, observation, {}, kind)

    # Garage's interface demands these two; with no render modes, it asks for this error.
    def render(self, mode):
        raise ValueError("environments under measurement are not drawn")

    def visualize(self):
        self.render(None)

    def close(self):
        self._env.close()

    def __deepcopy__(self, memo):
        return self


class OverAtOnce(Bridge):
    """Episodes of one step that nobody sees: DQN evaluates in it, once, before it starts."""

    def reset(self):
        return np.zeros(self.observation_space.shape, np.float32), {}

    def step(self, action):
        return EnvStep(self._spec, action, 0.0, self.reset()[0], {}, StepType.TERMINAL)


class CategoricalPolicy(StochasticPolicy):
    """A policy for discrete actions, of which Garage has none with a multilayer perceptron."""

    def __init__(self, spec, **network):
        super().__init__(spec, "CategoricalPolicy")
        self._module = MLPModule(spec.observation_space.flat_dim, spec.action_space.flat_dim, **network)

    def forward(self, observations):
        # As Garage's own policy for images does; its time is no business of the adapter.
        return library_call(Categorical, logits=self._module(observations)), {}


class SeparateVecWorker(VecWorker):
    """VecWorker keeps views of the array that it writes the next observations into; a list has none."""

    def step_episode(self):
        self._prev_obs = list(self._prev_obs)
        return super().step_episode()


class BudgetTrainer(Trainer):
    """A trainer that ends before the rollout that would exceed the budget, and saves nothing."""

    probe = None

    def obtain_episodes(self, *args, **kwargs):
        if self.probe.should_stop():
            raise Stop
        return super().obtain_episodes(*args, **kwargs)

    def save(self, epoch):
        pass


class Adapter:
    def skip(self, trial):
        if trial.variant and trial.algorithm != "ppo":
            return "VecWorker is for algorithms that learn from whole episodes"
        return None

    def train(self, trial, probe):
        set_seed(trial.seed)
        envs = [Bridge(trial.make_env(index), trial.seed + index) for index in range(trial.n_envs)]
        spec = envs[0].spec
        spec.action_space.seed(trial.seed)
        build = getattr(self, "_" + trial.algorithm)
        agent, make_algorithm, batch = build(trial, envs[0])
        fragments = {"timesteps_per_call": max(1, batch // trial.n_envs)}
        worker = {None: FragmentWorker, "vecworker": VecWorker, "fixed": SeparateVecWorker}[trial.variant]
        sampler = LocalSampler(
            agents=agent,
            envs=[envs],
            max_episode_length=spec.max_episode_length,
            seed=trial.seed,
            n_workers=1,
            worker_class=worker,
            worker_args={"n_envs": trial.n_envs, **(fragments if worker is FragmentWorker else {})},
        )
        algorithm = make_algorithm(sampler)
        logger.disable_warnings()
        with tempfile.TemporaryDirectory() as folder:
            trainer = BudgetTrainer(SnapshotConfig(snapshot_dir=folder, snapshot_mode="none", snapshot_gap=1))
            trainer.probe = probe
            trainer.setup(algorithm, envs[0])
            try:
                trainer.train(n_epochs=trial.env_steps, batch_size=batch)
            except Stop:
                print("stopped: the budget is used up")
        sampler.shutdown_worker()
        policy, box = algorithm.policy, None if trial.algorithm == "dqn" else envs[0]._box

        def greedy(observation):
            with torch.no_grad():
                out = policy(torch.as_tensor(observation[None]))
                if trial.algorithm == "dqn":
                    return int(out[0])
                if box is None:
                    return int(out[0].probs.argmax())
                mean = out[0].mean if trial.algorithm == "ppo" else torch.tanh(out[1]["mean"])
                return np.clip(mean[0].numpy(), box.low, box.high)

        return greedy

    def _network(self, trial):
        return {
            "hidden_sizes": trial.net_arch,
            "hidden_nonlinearity": torch.tanh if trial.activation == "tanh" else torch.relu,
        }

    def _ppo(self, trial, env):
        spec = env.spec
        policy = (GaussianMLPPolicy if env._box else CategoricalPolicy)(spec, **self._network(trial))
        value = GaussianMLPValueFunction(spec, **self._network(trial))

        def optimizer(module):
            return OptimizerWrapper(
                (torch.optim.Adam, {"lr": trial.learning_rate}),
                module,
                max_optimization_epochs=trial.n_epochs,
                minibatch_size=trial.batch_size,
            )

        def make(sampler):
            return PPO(
                env_spec=spec,
                policy=policy,
                value_function=value,
                sampler=sampler,
                policy_optimizer=optimizer(policy),
                vf_optimizer=optimizer(value),
                lr_clip_range=trial.clip_range,
                discount=trial.gamma,
                gae_lambda=trial.gae_lambda,
                center_adv=trial.normalize_advantage,
                policy_ent_coeff=trial.ent_coef,
                entropy_method="regularized" if trial.ent_coef else "no_entropy",
            )

        return policy, make, trial.n_steps * trial.n_envs

    def _dqn(self, trial, env):
        spec = env.spec
        q = DiscreteMLPQFunction(spec, **self._network(trial))
        policy = DiscreteQFArgmaxPolicy(q, spec)
        explorer = EpsilonGreedyPolicy(
            spec,
            policy,
            total_timesteps=trial.env_steps,
            max_epsilon=1.0,
            min_epsilon=trial.exploration_final_eps,
            decay_ratio=trial.exploration_fraction,
        )

        def make(sampler):
            return DQN(
                env_spec=spec,
                policy=policy,
                qf=q,
                replay_buffer=PathBuffer(capacity_in_transitions=trial.buffer_size),
                sampler=sampler,
                exploration_policy=explorer,
                eval_env=OverAtOnce(env._env, None),
                num_eval_episodes=1,
                double_q=False,
                steps_per_epoch=trial.env_steps,
                n_train_steps=trial.gradient_steps,
                buffer_batch_size=trial.batch_size,
                min_buffer_size=trial.learning_starts,
                discount=trial.gamma,
                qf_lr=trial.learning_rate,
                clip_gradient=None,
                # Counted in rollouts of train_freq steps.
                target_update_freq=max(1, trial.target_update_interval // trial.train_freq),
            )

        return explorer, make, trial.train_freq

    def _sac(self, trial, env):
        spec = env.spec
        policy = TanhGaussianMLPPolicy(spec, **self._network(trial))
        critics = [ContinuousMLPQFunction(spec, **self._network(trial)) for _ in range(2)]

        def make(sampler):
            return SAC(
                env_spec=spec,
                policy=policy,
                qf1=critics[0],
                qf2=critics[1],
                replay_buffer=PathBuffer(capacity_in_transitions=trial.buffer_size),
                sampler=sampler,
                gradient_steps_per_itr=trial.gradient_steps,
                discount=trial.gamma,
                buffer_batch_size=trial.batch_size,
                min_buffer_size=trial.learning_starts,
                target_update_tau=trial.tau,
                policy_lr=trial.learning_rate,
                qf_lr=trial.learning_rate,
                # It evaluates at the end of an epoch, which it never reaches.
                steps_per_epoch=trial.env_steps,
                eval_env=env,
            )

        return policy, make, trial.train_freq
