"""Drives the PyTorch branch of Garage.

Mode "sync" is its local sampler; "workers" its multiprocessing sampler (variant "ray": its Ray sampler), whose workers
share the environments.
"""

import tempfile

import numpy as np
import shim  # noqa: F401

# isort: split
import torch
from dowel import logger
from environment import Bridge, OverAtOnce
from garage.experiment import SnapshotConfig
from garage.experiment.deterministic import set_seed
from garage.np.exploration_policies import EpsilonGreedyPolicy
from garage.replay_buffer import PathBuffer
from garage.torch.algos import DQN, PPO, SAC
from garage.torch.optimizers import OptimizerWrapper
from garage.torch.policies import DiscreteQFArgmaxPolicy, GaussianMLPPolicy, TanhGaussianMLPPolicy
from garage.torch.q_functions import ContinuousMLPQFunction, DiscreteMLPQFunction
from garage.torch.value_functions import GaussianMLPValueFunction
from policy import CategoricalPolicy
from sampling import BudgetTrainer, Stop, end, make_sampler


class Adapter:
    def skip(self, trial):
        if trial.variant in ("vecworker", "fixed") and trial.algorithm != "ppo":
            return "VecWorker is for algorithms that learn from whole episodes"
        if trial.variant == "ray" and trial.mode == "sync":
            return "its Ray sampler has workers: it is for mode workers"
        if trial.mode != "sync" and trial.algorithm != "ppo":
            return "off-policy algorithms are wired for in-process sampling only"
        if trial.mode != "sync" and trial.n_envs % trial.workers:
            return "every worker has the same number of environments: n_envs must be a multiple of workers"
        return None

    def train(self, trial, probe):
        set_seed(trial.seed)
        envs = [Bridge(trial.make_env(index), trial.seed + index) for index in range(trial.n_envs)]
        spec = envs[0].spec
        spec.action_space.seed(trial.seed)
        build = getattr(self, "_" + trial.algorithm)
        agent, make_algorithm, batch = build(trial, envs[0])
        sampler = make_sampler(trial, agent, envs, max(1, batch // trial.n_envs))
        try:
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
        finally:
            end(sampler)
        probe.report("env_steps", trainer.total_env_steps, "TotalEnvSteps: steps that were handed to the algorithm")
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
