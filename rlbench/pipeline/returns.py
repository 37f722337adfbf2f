"""Returns and advantages over rollouts; time is the first dimension of every array.

numpy rather than torch: the recursion runs over time in Python, and on rows of a few environments a numpy operation
costs a third of a torch one. Torch tensors on the CPU are taken as they are.
"""

import numpy as np


def discounted(rewards, ends, bootstrap, gamma):
    """Return the discounted sums ``R_t = r_t + gamma R_{t+1}`` of a rollout, float32 (T, ...).

    ``rewards`` (T, ...); ``ends`` (T, ...) is true where the episode ends with step t, so that nothing flows back over
    it; ``bootstrap`` (...) is the value of the observation after the last step.

    >>> discounted([1.0, 1.0, 1.0], [False, True, False], 10.0, gamma=0.5).tolist()
    [1.5, 1.0, 6.0]
    """
    rewards, going = _arrays(rewards, ends)
    result = np.empty_like(rewards)
    after = np.asarray(bootstrap, np.float32)
    discount = np.float32(gamma) * going
    for t in range(len(rewards) - 1, -1, -1):
        result[t] = after = rewards[t] + discount[t] * after
    return result


def gae(rewards, values, ends, bootstrap, gamma, gae_lambda, end_values=None):
    """Return ``(advantages, returns)`` by generalised advantage estimation, float32 (T, ...).

    Schulman et al. 2016 (arXiv:1506.02438), eq. 16: A_t = sum_l (gamma lambda)^l delta_{t+l}; returns are A + V.
    ``rewards``, ``values``, ``ends`` (T, ...): reward of step t, value of the observation it started from, and
    whether the episode ended with it. ``bootstrap`` (...): value of the observation after the last step.
    ``end_values`` (T, ...): the value of the final observation where a time limit cut the episode, 0 where it
    terminated (None: all ends are terminations).

    >>> a, r = gae([1.0, 1.0], [0.5, 0.5], [False, False], 0.5, gamma=1.0, gae_lambda=1.0)
    >>> a.tolist(), r.tolist()
    ([2.0, 1.0], [2.5, 1.5])
    """
    rewards, going = _arrays(rewards, ends)
    values = np.asarray(values, np.float32)
    delta = rewards + np.float32(gamma) * _next_values(values, going, bootstrap, end_values) - values
    decay = np.float32(gamma * gae_lambda) * going
    return _backward(delta, decay, values)


def vtrace(
    rewards,
    values,
    ends,
    bootstrap,
    behaviour_log_prob,
    target_log_prob,
    gamma,
    clip_rho=1.0,
    clip_c=1.0,
    trace_lambda=1.0,
    end_values=None,
):
    """Return ``(value targets v_s, policy-gradient advantages)`` by V-trace, float32 (T, ...).

    Espeholt et al. 2018 (arXiv:1802.01561), eq. 1:
    v_s = V(x_s) + sum_{t >= s} gamma^{t-s} (prod_{i < t} c_i) rho_t (r_t + gamma V(x_{t+1}) - V(x_t)),
    rho_t = min(clip_rho, pi/mu), c_i = trace_lambda min(clip_c, pi/mu); the advantage at s is
    rho_s (r_s + gamma v_{s+1} - V(x_s)). Arguments as those of ``gae``; the log probabilities (T, ...) are those of
    the actions taken, by the policy that acted (mu) and by the one that learns (pi). On-policy, ``v_s`` is the
    lambda-return of ``gae`` with lambda = trace_lambda.

    >>> v, a = vtrace([1.0, 1.0], [0.0, 0.0], [False, False], 2.0, [0.0, 0.0], [0.0, 0.0], gamma=0.5)
    >>> v.tolist()
    [2.0, 2.0]
    """
    rewards, going = _arrays(rewards, ends)
    values = np.asarray(values, np.float32)
    ratio = np.exp(np.asarray(target_log_prob, np.float32) - np.asarray(behaviour_log_prob, np.float32))
    rho = np.minimum(np.float32(clip_rho), ratio)
    c = np.float32(trace_lambda) * np.minimum(np.float32(clip_c), ratio)
    following = _next_values(values, going, bootstrap, end_values)
    delta = rho * (rewards + np.float32(gamma) * following - values)
    _, targets = _backward(delta, np.float32(gamma) * going * c, values)
    after = following.copy()
    after[:-1] = np.where(going[:-1] > 0, targets[1:], following[:-1])
    return targets, rho * (rewards + np.float32(gamma) * after - values)


def _arrays(rewards, ends):
    """Return the rewards and 1 where the episode goes on after the step, float32."""
    return np.asarray(rewards, np.float32), 1 - np.asarray(ends, np.float32)


def _next_values(values, going, bootstrap, end_values):
    """Return the value of what follows each step: the next observation, a cut episode's last one, or nothing."""
    following = np.empty_like(values)
    following[:-1] = values[1:]
    following[-1] = bootstrap
    following *= going
    if end_values is not None:
        following += (1 - going) * np.asarray(end_values, np.float32)
    return following


def _backward(delta, decay, values):
    """Return ``(A, A + values)`` with A_t = delta_t + decay_t A_{t+1}."""
    advantages = np.empty_like(delta)
    after = np.zeros(delta.shape[1:], np.float32)
    for t in range(len(delta) - 1, -1, -1):
        advantages[t] = after = delta[t] + decay[t] * after
    return advantages, advantages + values
