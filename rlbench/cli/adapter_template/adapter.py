"""Drives the library. Replace the sample learner below by calls of yours; keep the two methods."""

import numpy as np


class Adapter:
    def skip(self, trial):
        """Return None, or in one sentence why this library cannot run this trial.

        Algorithms, action spaces, modes and devices that adapter.toml does not declare are ruled out before.
        """
        return None

    def train(self, trial, probe):
        """Train within the trial's budget and return the greedy policy: observation -> action.

        ``trial`` has every setting by its name: trial.n_envs, trial.n_steps, trial.gamma, trial.learning_rate,
        trial.net_arch, trial.seed, trial.env_steps (the budget), ...: those of `rlbench scenarios NAME`; counts are in
        environment steps over all environments. ``probe.should_stop()`` says when the budget is used up.
        """
        # The instrumented environments, one per index, in Gymnasium's interface.
        # For a library that wants gym before 0.26: rlbench.probe.bridges.old_gym(trial.make_env(index)).
        envs = [trial.make_env(index) for index in range(trial.n_envs)]
        learner = SampleLearner(envs, trial)
        observations = np.stack([env.reset(seed=trial.seed + i)[0] for i, env in enumerate(envs)])
        while not probe.should_stop():
            rollout = []
            for _ in range(trial.n_steps):
                # The three taps below are for libraries without PyTorch; with backend = "torch" they are automatic.
                # 1. The batch that the policy acts on, and the weights that it acts with.
                probe.acted(observations, learner.weights)
                actions = learner.act(observations)
                steps = [env.step(int(action)) for env, action in zip(envs, actions)]
                rewards = np.array([step[1] for step in steps])
                done = np.array([step[2] or step[3] for step in steps])
                rollout.append((observations, actions, rewards, done))
                observations = np.stack([env.reset()[0] if d else s[0] for env, s, d in zip(envs, steps, done)])
            # 2. The batch that goes into the loss.
            batch = np.concatenate([step[0] for step in rollout])
            probe.learned(batch, learner.weights)
            learner.learn(rollout)
            # 3. The weights after the optimizer step.
            probe.updated(learner.weights, trial.learning_rate)
        for env in envs:
            env.close()
        return lambda observation: int(np.argmax(observation @ learner.weights))


class SampleLearner:
    """A linear softmax policy that climbs the policy gradient (REINFORCE, Williams 1992): enough for CartPole."""

    def __init__(self, envs, trial):
        self.random = np.random.default_rng(trial.seed)
        self.gamma = trial.gamma
        self.weights = np.zeros((envs[0].observation_space.shape[0], envs[0].action_space.n))

    def probabilities(self, observations):
        scores = observations @ self.weights
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return scores / scores.sum(axis=-1, keepdims=True)

    def act(self, observations):
        chances = self.probabilities(observations)
        return (chances.cumsum(axis=-1) > self.random.random((len(chances), 1))).argmax(axis=-1)

    def learn(self, rollout):
        """One step along the gradient of the discounted return, returns standardised over the rollout."""
        following, returns = 0.0, []
        for _, _, rewards, done in reversed(rollout):
            following = rewards + self.gamma * following * (1 - done)
            returns.append(following)
        returns = np.concatenate(returns[::-1])
        returns = (returns - returns.mean()) / (returns.std() + 1e-8)
        observations = np.concatenate([step[0] for step in rollout])
        actions = np.concatenate([step[1] for step in rollout])
        pull = -self.probabilities(observations)
        pull[np.arange(len(actions)), actions] += 1
        self.weights = self.weights + observations.T @ (pull * returns[:, None]) / len(actions)
