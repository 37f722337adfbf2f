"""Drives Intel RL Coach: one agent in one environment, under a graph manager of its own."""

import tempfile

import numpy as np
import tensorflow.compat.v1 as tf1
import tensorflow_probability as tfp

from rlbench.probe.tf1 import stand_in_as_tensorflow

# Both are loaded lazily and want TensorFlow 2, which they find only before the stand-in.
DISTRIBUTIONS = tfp.distributions
tf = stand_in_as_tensorflow(
    {
        "distributions": DISTRIBUTIONS,
        "layers.xavier_initializer": tf1.glorot_uniform_initializer,
        "layers.flatten": tf1.layers.flatten,
        "framework.get_name_scope": lambda: tf1.get_default_graph().get_name_scope(),
        "framework.load_checkpoint": tf1.train.load_checkpoint,
    }
)
tf.distributions = DISTRIBUTIONS
placeholder = tf.placeholder


def _placeholder(dtype, shape=None, name=None):
    """A placeholder that takes what Coach's SAC gives as a shape: arrays among the numbers."""
    if isinstance(shape, (list, tuple)):
        shape = [number for part in shape for number in ([part] if part is None else np.ravel(part).tolist())]
    return placeholder(dtype, shape, name)


tf.placeholder = _placeholder

from rl_coach.agents.actor_critic_agent import ActorCriticAgentParameters  # noqa: E402
from rl_coach.agents.clipped_ppo_agent import ClippedPPOAgentParameters  # noqa: E402
from rl_coach.agents.dqn_agent import DQNAgentParameters  # noqa: E402
from rl_coach.agents.policy_optimization_agent import PolicyGradientRescaler  # noqa: E402
from rl_coach.agents.soft_actor_critic_agent import SoftActorCriticAgentParameters  # noqa: E402
from rl_coach.architectures.head_parameters import VHeadParameters  # noqa: E402
from rl_coach.architectures.layers import Dense  # noqa: E402
from rl_coach.architectures.tensorflow_components.architecture import TensorFlowArchitecture  # noqa: E402
from rl_coach.base_parameters import TaskParameters, VisualizationParameters  # noqa: E402
from rl_coach.core_types import EnvironmentSteps, RunPhase  # noqa: E402
from rl_coach.environments.environment import Environment, EnvironmentParameters  # noqa: E402
from rl_coach.filters.filter import NoInputFilter, NoOutputFilter  # noqa: E402
from rl_coach.graph_managers.basic_rl_graph_manager import BasicRLGraphManager  # noqa: E402
from rl_coach.graph_managers.graph_manager import ScheduleParameters  # noqa: E402
from rl_coach.logger import screen  # noqa: E402
from rl_coach.memories.memory import MemoryGranularity  # noqa: E402
from rl_coach.schedules import ConstantSchedule, LinearSchedule  # noqa: E402
from rl_coach.spaces import (  # noqa: E402
    BoxActionSpace,
    DiscreteActionSpace,
    StateSpace,
    VectorObservationSpace,
)
from rl_coach.utils import force_list, squeeze_list  # noqa: E402
from workers import train_async  # noqa: E402


class EnvParameters(EnvironmentParameters):
    def __init__(self, trial, index):
        super().__init__(level="trial")
        self.trial, self.index = trial, index
        self.frame_skip = 1
        self.default_input_filter, self.default_output_filter = NoInputFilter, NoOutputFilter

    @property
    def path(self):
        return __name__ + ":Env"


class Env(Environment):
    """The instrumented environment in Coach's own interface; it has one flag for the end of an episode."""

    def __init__(self, trial, index, **parameters):
        super().__init__(**parameters)
        self._env = trial.make_env(index)
        space = self._env.observation_space
        vector = VectorObservationSpace(space.shape[0], space.low, space.high)
        self.state_space = StateSpace({"observation": vector})
        space = self._env.action_space
        if hasattr(space, "n"):
            self.action_space = DiscreteActionSpace(int(space.n))
        else:
            self.action_space = BoxActionSpace(int(space.shape[0]), space.low, space.high)
        self._continuous = not hasattr(space, "n")
        if index is not None:
            self.reset_internal_state(True)

    def _take_action(self, action):
        action = np.asarray(action, np.float32).reshape(-1) if self._continuous else int(action)
        observation, self.reward, terminated, truncated, _ = self._env.step(action)
        self.state, self.done = {"observation": observation}, terminated or truncated

    def _restart_environment_episode(self, force_environment_reset=False):
        seed, self.seed = self.seed, None
        self.state = {"observation": self._env.reset(seed=seed)[0]}

    def _update_state(self):
        pass

    def close(self):
        self._env.close()


class Adapter:
    def skip(self, trial):
        if trial.mode == "async" and trial.algorithm not in ("ppo", "a2c"):
            return "asynchronous training is wired for A3C, in place of PPO and A2C"
        return None

    def train(self, trial, probe):
        screen.log = screen.log_dict = screen.log_title = lambda *args, **kwargs: None
        weights = None
        if trial.mode == "async":
            weights = train_async(
                trial, probe, lambda index: self._manager(trial, index), lambda agent: _tap(agent, probe, "main")
            )
        # After asynchronous training only the agent is wanted: its environment is never stepped.
        manager = self._manager(trial, None if weights else 0)
        task = TaskParameters(experiment_path=tempfile.mkdtemp(), use_cpu=True, seed=trial.seed)
        manager.create_graph(task)
        agent = manager.get_agent()
        if weights:
            network = agent.networks["main"].online_network
            network.sess.run(network.update_weights_from_list, dict(zip(network.weights_placeholders, weights)))
        else:
            self._train_here(trial, probe, manager, agent)
        manager.environments[0].close()
        agent.phase = RunPhase.TEST
        discrete = hasattr(trial.spaces()[3], "n")

        def policy(observation):
            action = agent.choose_action({"observation": observation}).action
            return int(action) if discrete else np.asarray(action, np.float32).reshape(-1)

        return policy

    def _manager(self, trial, index):
        return BasicRLGraphManager(
            agent_params=getattr(self, "_a2c" if trial.mode == "async" else "_" + trial.algorithm)(trial),
            env_params=EnvParameters(trial, index),
            schedule_params=ScheduleParameters(),
            vis_params=VisualizationParameters(dump_csv=False),
        )

    def _train_here(self, trial, probe, manager, agent):
        _tap(agent, probe, "policy" if trial.algorithm == "sac" else "main")
        if trial.algorithm in ("dqn", "sac"):
            manager.heatup(EnvironmentSteps(trial.learning_starts))
        # The body of the manager's own train_and_act, which knows no end in seconds.
        with manager.phase_context(RunPhase.TRAIN):
            manager.reset_internal_state(force_environment_reset=True)
            while not probe.should_stop():
                manager.act(EnvironmentSteps(1))
                manager.train()
        probe.report("env_steps", agent.total_steps_counter, "total_steps_counter of the agent")
        note = "training_iteration of the agent: for PPO all steps on one rollout are one"
        probe.report("updates", agent.training_iteration, note)

    def _network(self, trial, network):
        first, *others = trial.net_arch
        embedder = network.input_embedders_parameters["observation"]
        embedder.scheme, embedder.activation_function = [Dense(first)], trial.activation
        middleware = network.middleware_parameters
        middleware.scheme, middleware.activation_function = [Dense(n) for n in others], trial.activation
        network.learning_rate = trial.learning_rate
        return network

    def _ppo(self, trial):
        parameters = ClippedPPOAgentParameters()
        network = self._network(trial, parameters.network_wrappers["main"])
        network.heads_parameters[0].loss_weight = trial.vf_coef
        network.batch_size = trial.batch_size
        network.clip_gradients = trial.max_grad_norm
        algorithm = parameters.algorithm
        algorithm.discount, algorithm.gae_lambda = trial.gamma, trial.gae_lambda
        algorithm.clip_likelihood_ratio_using_epsilon = trial.clip_range
        algorithm.beta_entropy = trial.ent_coef
        algorithm.optimization_epochs = trial.n_epochs
        algorithm.num_consecutive_playing_steps = EnvironmentSteps(trial.n_steps * trial.n_envs)
        algorithm.num_steps_between_copying_online_weights_to_target = EnvironmentSteps(trial.n_steps * trial.n_envs)
        return parameters

    def _a2c(self, trial):
        parameters = ActorCriticAgentParameters()
        network = self._network(trial, parameters.network_wrappers["main"])
        network.heads_parameters[0] = VHeadParameters(loss_weight=trial.vf_coef)
        network.use_separate_networks_per_head = True
        network.clip_gradients = trial.max_grad_norm
        algorithm = parameters.algorithm
        algorithm.discount, algorithm.gae_lambda = trial.gamma, trial.gae_lambda
        algorithm.policy_gradient_rescaler = PolicyGradientRescaler.GAE
        algorithm.estimate_state_value_using_gae = True
        algorithm.apply_gradients_every_x_episodes = 1
        rollout = trial.n_steps * trial.n_envs
        if trial.mode == "async":
            # Each worker updates by itself, after steps of its own.
            rollout = trial.batch_size if trial.algorithm == "ppo" else trial.n_steps
        algorithm.num_steps_between_gradient_updates = rollout
        algorithm.beta_entropy = trial.ent_coef
        return parameters

    def _dqn(self, trial):
        parameters = DQNAgentParameters()
        network = self._network(trial, parameters.network_wrappers["main"])
        network.batch_size = trial.batch_size
        algorithm = parameters.algorithm
        algorithm.discount = trial.gamma
        algorithm.num_consecutive_playing_steps = EnvironmentSteps(trial.train_freq)
        algorithm.num_consecutive_training_steps = trial.gradient_steps
        algorithm.num_steps_between_copying_online_weights_to_target = EnvironmentSteps(trial.target_update_interval)
        parameters.memory.max_size = (MemoryGranularity.Transitions, trial.buffer_size)
        decay = max(1, int(trial.exploration_fraction * trial.env_steps))
        parameters.exploration.epsilon_schedule = LinearSchedule(1.0, trial.exploration_final_eps, decay)
        parameters.exploration.evaluation_epsilon = 0.0
        return parameters

    def _sac(self, trial):
        parameters = SoftActorCriticAgentParameters()
        for name in ("policy", "v"):
            self._network(trial, parameters.network_wrappers[name])
        q = parameters.network_wrappers["q"]
        q.heads_parameters[0].network_layers_sizes = tuple(trial.net_arch)
        q.learning_rate = trial.learning_rate
        for network in parameters.network_wrappers.values():
            network.batch_size = trial.batch_size
        algorithm = parameters.algorithm
        algorithm.discount = trial.gamma
        algorithm.num_consecutive_playing_steps = EnvironmentSteps(trial.train_freq)
        algorithm.num_consecutive_training_steps = trial.gradient_steps
        algorithm.rate_for_copying_weights_to_target = trial.tau
        parameters.memory.max_size = (MemoryGranularity.Transitions, trial.buffer_size)
        parameters.exploration.noise_schedule = ConstantSchedule(0)
        return parameters


def _tap(agent, probe, wrapper):
    """Tap the network that acts and learns: Coach feeds it with numpy batches and applies gradients apart."""
    network = agent.networks[wrapper]
    online, shared = network.online_network, network.global_network
    # With one network per head the policy's head is the last.
    last = "network_%d" % (len(online.network_parameters.heads_parameters) - 1)
    policy = [each for each in online.weights if last in each.name] or online.weights
    kernel = policy[0]
    predict, accumulate = TensorFlowArchitecture.predict, TensorFlowArchitecture.accumulate_gradients
    apply = TensorFlowArchitecture.apply_gradients
    size = sum(int(np.prod(each.shape)) for each in online.weights)
    probe.describe_optimizer(type((shared or online).optimizer).__name__, size)

    def tapped_predict(self, inputs, outputs=None, squeeze_output=True, initial_feed_dict=None):
        if self is not online or len(inputs["observation"]) > 1:
            if self is online and initial_feed_dict:
                # SAC: gradients of the policy come from a prediction, two for one step.
                batch[:] = [inputs["observation"]]
            return predict(self, inputs, outputs, squeeze_output, initial_feed_dict)
        fetches = force_list(self.outputs if outputs is None else outputs)
        *result, weights = predict(self, inputs, [*fetches, kernel], False, initial_feed_dict)
        probe.acted(inputs["observation"], weights)
        return squeeze_list(result) if squeeze_output else result

    def tapped_accumulate(self, inputs, *args, **kwargs):
        if self is online:
            probe.learned(inputs["observation"])
        return accumulate(self, inputs, *args, **kwargs)

    def tapped_apply(self, *args, **kwargs):
        if self is online and batch:
            probe.learned(batch.pop())
        apply(self, *args, **kwargs)
        if self is online:
            probe.updated(self.sess.run(kernel), float(self.optimizer._lr))

    def tapped_sync(*args, **kwargs):
        sync(*args, **kwargs)
        # The optimizer is the server's; what came of its step are the weights that this worker acts with from here.
        probe.updated(online.sess.run(kernel), float(shared.optimizer._lr))

    batch, sync = [], network.apply_gradients_and_sync_networks
    if shared:
        network.apply_gradients_and_sync_networks = tapped_sync
    TensorFlowArchitecture.predict = tapped_predict
    TensorFlowArchitecture.accumulate_gradients = tapped_accumulate
    TensorFlowArchitecture.apply_gradients = tapped_apply
