"""TF-Agents' agents with the scenario's settings: each function returns agent, policy network and its optimizer.

``env`` is anything with the specifications of a TensorFlow environment.
"""

import tensorflow as tf
from tf_agents.agents import DqnAgent, PPOClipAgent, SacAgent
from tf_agents.agents.ddpg.critic_network import CriticNetwork
from tf_agents.agents.sac.tanh_normal_projection_network import TanhNormalProjectionNetwork
from tf_agents.networks.actor_distribution_network import ActorDistributionNetwork
from tf_agents.networks.q_network import QNetwork
from tf_agents.networks.value_network import ValueNetwork
from tf_agents.utils import common


def ppo(trial, env):
    network = {"fc_layer_params": trial.net_arch, "activation_fn": _activation(trial)}
    actor = ActorDistributionNetwork(env.observation_spec(), env.action_spec(), **network)
    optimizer = tf.keras.optimizers.Adam(trial.learning_rate)
    agent = PPOClipAgent(
        env.time_step_spec(),
        env.action_spec(),
        optimizer=optimizer,
        actor_net=actor,
        value_net=ValueNetwork(env.observation_spec(), **network),
        importance_ratio_clipping=trial.clip_range,
        lambda_value=trial.gae_lambda,
        discount_factor=trial.gamma,
        entropy_regularization=trial.ent_coef,
        value_pred_loss_coef=trial.vf_coef,
        gradient_clipping=trial.max_grad_norm,
        num_epochs=1,
        use_gae=True,
        use_td_lambda_return=True,
        normalize_rewards=False,
        normalize_observations=False,
        compute_value_and_advantage_in_train=False,
        update_normalizers_in_train=False,
        train_step_counter=tf.Variable(0, dtype=tf.int64),
    )
    return agent, actor, optimizer


def dqn(trial, env):
    network = QNetwork(
        env.observation_spec(),
        env.action_spec(),
        fc_layer_params=trial.net_arch,
        activation_fn=_activation(trial),
    )
    optimizer = tf.keras.optimizers.Adam(trial.learning_rate)
    counter = tf.Variable(0, dtype=tf.int64)

    def epsilon():
        steps = trial.learning_starts + tf.cast(counter, tf.float32) * trial.train_freq / trial.gradient_steps
        done = tf.minimum(1.0, steps / max(1.0, trial.exploration_fraction * trial.env_steps))
        return 1.0 + done * (trial.exploration_final_eps - 1.0)

    agent = DqnAgent(
        env.time_step_spec(),
        env.action_spec(),
        q_network=network,
        optimizer=optimizer,
        epsilon_greedy=epsilon,
        target_update_period=max(1, trial.target_update_interval * trial.gradient_steps // trial.train_freq),
        td_errors_loss_fn=common.element_wise_huber_loss,
        gamma=trial.gamma,
        train_step_counter=counter,
    )
    return agent, network, optimizer


def sac(trial, env):
    actor = ActorDistributionNetwork(
        env.observation_spec(),
        env.action_spec(),
        fc_layer_params=trial.net_arch,
        activation_fn=_activation(trial),
        continuous_projection_net=TanhNormalProjectionNetwork,
    )
    critic = CriticNetwork(
        (env.observation_spec(), env.action_spec()),
        joint_fc_layer_params=trial.net_arch,
        activation_fn=_activation(trial),
    )
    actor_optimizer, critic_optimizer, alpha_optimizer = (
        tf.keras.optimizers.Adam(trial.learning_rate) for _ in range(3)
    )
    agent = SacAgent(
        env.time_step_spec(),
        env.action_spec(),
        critic_network=critic,
        actor_network=actor,
        actor_optimizer=actor_optimizer,
        critic_optimizer=critic_optimizer,
        alpha_optimizer=alpha_optimizer,
        target_update_tau=trial.tau,
        gamma=trial.gamma,
        train_step_counter=tf.Variable(0, dtype=tf.int64),
    )
    # The agent has made itself an optimizer of Keras' older kind from the one it was given.
    return agent, actor, agent._actor_optimizer


def _activation(trial):
    return tf.keras.activations.tanh if trial.activation == "tanh" else tf.keras.activations.relu
