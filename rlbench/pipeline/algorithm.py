"""Losses: PPO's clipped surrogate and the actor-critic loss that V-trace targets go into.

All arguments are 1-D tensors over a minibatch; ``weights`` (None: all 1) weighs each sample, 0 leaves it out, and the
mean is over the sum of weights. Each returns one scalar to minimise.
"""

import torch


def ppo_loss(log_prob, old_log_prob, advantages, clip_range, weights=None):
    """Clipped surrogate objective (Schulman et al. 2017, arXiv:1707.06347, eq. 7), negated.

    ``old_log_prob``: of the policy that acted, or of the one at the beginning of the round.

    >>> zero = torch.zeros(2)
    >>> ppo_loss(torch.log(torch.tensor([2.0, 0.5])), zero, torch.tensor([1.0, 1.0]), 0.2).item()
    -0.8500000238418579
    """
    ratio = (log_prob - old_log_prob).exp()
    clipped = ratio.clamp(1 - clip_range, 1 + clip_range)
    return -_mean(torch.minimum(ratio * advantages, clipped * advantages), weights)


def policy_gradient_loss(log_prob, advantages, weights=None):
    """-E[A log pi], with GAE advantages (A2C, Mnih et al. 2016) or V-trace's (Espeholt et al. 2018, sec. 4.2).

    >>> policy_gradient_loss(torch.tensor([-1.0, -3.0]), torch.tensor([2.0, 0.0]), torch.tensor([1.0, 0.0])).item()
    2.0
    """
    return -_mean(log_prob * advantages, weights)


def value_loss(values, targets, weights=None):
    """Mean squared error of the values.

    >>> value_loss(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 2.0])).item()
    0.5
    """
    if weights is None:
        return torch.nn.functional.mse_loss(values, targets)
    return _mean((values - targets).square(), weights)


def normalised(advantages, weights=None):
    """Return advantages of mean 0 and deviation 1 over the minibatch, those of weight 0 left out of both.

    >>> normalised(torch.tensor([1.0, 3.0])).tolist()
    [-0.7071067690849304, 0.7071067690849304]
    """
    counted = advantages if weights is None else advantages[weights > 0]
    if len(counted) < 2:
        return advantages
    deviation, mean = torch.std_mean(counted)
    return (advantages - mean) / (deviation + 1e-8)


def _mean(terms, weights):
    if weights is None:
        return terms.mean()
    return (terms * weights).sum() / weights.sum().clamp(min=1e-8)
