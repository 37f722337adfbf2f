"""Greedy evaluation by the harness: fresh environments, fixed seeds, no taps."""

import tempfile

from rlbench.probe.env import TapEnv, make_plain

EPISODES = 20
FIRST_SEED = 1_000_000
MAX_STEPS = 100_000


def greedy_episodes(policy, env_id, kwargs, episodes=EPISODES):
    """Return ``[(return, length, truncated)]`` of ``episodes`` episodes of ``policy(observation) -> action``.

    The observations are stamped as in training, so the policy sees inputs of the same shape and kind. Raises
    RuntimeError for an episode of more than MAX_STEPS steps.
    """
    results = []
    with tempfile.TemporaryDirectory() as folder:
        env = TapEnv(make_plain(env_id, kwargs), folder, 0)
        for episode in range(episodes):
            observation, _ = env.reset(seed=FIRST_SEED + episode)
            total, length, over = 0.0, 0, False
            while not over:
                observation, reward, terminated, truncated, _ = env.step(policy(observation))
                total += float(reward)
                length += 1
                over = terminated or truncated
                if length >= MAX_STEPS:
                    raise RuntimeError("a greedy episode did not end within %d steps" % MAX_STEPS)
            results.append((total, length, bool(truncated)))
        env.close()
    return results
