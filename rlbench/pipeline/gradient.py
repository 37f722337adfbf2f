"""The gradient of the losses in ``rlbench.pipeline.algorithm``, written out for two multi-layer perceptrons.

On networks this small autograd's own work is most of an update: the same numbers come from a third of the operations
when they are written down. Anything else than plain perceptrons is left to autograd.
"""

import torch
from torch import nn

from rlbench.pipeline import algorithm
from rlbench.pipeline.policy import HALF_LOG_2PI, Categorical

_BACKWARD = {
    nn.Tanh: torch.ops.aten.tanh_backward,
    nn.ReLU: lambda gradient, output: torch.ops.aten.threshold_backward(gradient, output, 0),
}
_FORWARD = {nn.Tanh: torch.tanh_, nn.ReLU: torch.relu_}


def applies(policy):
    """Return whether actor and critic of ``policy`` are plain perceptrons: linear layers with tanh or relu between."""
    return all(_plain(network) for network in (policy.actor, policy.critic))


def _plain(network):
    if not isinstance(network, nn.Sequential):
        return False
    linear, between = list(network)[::2], list(network)[1::2]
    kinds = {type(each) for each in between}
    return (
        all(isinstance(each, nn.Linear) and each.bias is not None for each in linear)
        and len(kinds) == 1
        and kinds <= set(_FORWARD)
    )


class Gradient:
    """Calling it writes the gradient of one minibatch's loss into every parameter's ``grad``, which must be allocated.

    ``policy``: an ActorCritic that ``applies``; ``settings`` gives the loss (Settings). Arguments are those of
    ``Learner._step``: observations (B, dim), actions, and (B,) log probabilities, advantages, targets and weights.
    """

    def __init__(self, policy, settings):
        self._policy, self._settings = policy, settings
        self._actor, self._critic = _Perceptron(policy.actor), _Perceptron(policy.critic)

    def __call__(self, observations, actions, old_log_prob, advantages, targets, weights=None):
        s = self._settings
        # As modules and with gradients enabled, so that whoever watches sees a batch being learned from.
        first = self._actor.first(observations).detach(), self._critic.first(observations).detach()
        with torch.no_grad():
            outputs = self._actor.forward(observations, first[0])
            values = self._critic.forward(observations, first[1])
            if s.algorithm == "ppo" and s.normalize_advantage:
                advantages = algorithm.normalised(advantages, weights)
            share = 1 / len(advantages) if weights is None else weights / weights.sum().clamp(min=1e-8)
            kind = _CategoricalSlope if isinstance(self._policy.distribution, Categorical) else _GaussianSlope
            way = kind(outputs, actions, self._policy.log_std, s.ent_coef)
            slope = _objective(way.log_prob, old_log_prob, advantages, share, s)
            self._actor.backward(way.outputs(slope))
            error = values.squeeze(1) - targets
            self._critic.backward((error * (2 * s.vf_coef * share)).unsqueeze(1))


def _objective(log_prob, old_log_prob, advantages, share, settings):
    """Return d loss / d log_prob, (B,): of the clipped surrogate, or of the policy gradient."""
    if settings.algorithm != "ppo":
        return advantages * -share
    ratio = (log_prob - old_log_prob).exp_()
    surrogate = ratio * advantages
    clipped = ratio.clamp_(1 - settings.clip_range, 1 + settings.clip_range).mul_(advantages)
    # Where the clipped term is the smaller one, the surrogate is constant.
    return surrogate * (surrogate <= clipped) * -share


class _CategoricalSlope:
    """Log probabilities of logits, and the way back to the logits."""

    def __init__(self, outputs, actions, log_std, ent_coef):
        self._log_p, self._chosen, self._ent_coef = outputs.log_softmax(1), actions.unsqueeze(1), ent_coef
        self.log_prob = self._log_p.gather(1, self._chosen).squeeze(1)

    def outputs(self, slope):
        """Return d loss / d logits for ``slope`` = d loss / d log_prob: slope (onehot - p), and the entropy's part."""
        p, slope = self._log_p.exp(), slope.unsqueeze(1)
        result = (p * -slope).scatter_add_(1, self._chosen, slope)
        if self._ent_coef:
            entropy = -(p * self._log_p).sum(1, keepdim=True)
            result += p * (self._log_p + entropy) * (self._ent_coef / len(p))
        return result


class _GaussianSlope:
    """Log probabilities of means and a shared deviation, and the way back; writes ``log_std.grad``."""

    def __init__(self, outputs, actions, log_std, ent_coef):
        self._log_std, self._ent_coef = log_std, ent_coef
        self._precision = (-log_std).exp()
        self._z = (actions - outputs) * self._precision
        self.log_prob = -0.5 * self._z.square().sum(1) - log_std.sum() - outputs.shape[1] * HALF_LOG_2PI

    def outputs(self, slope):
        """Return d loss / d means for ``slope`` = d loss / d log_prob: slope z / deviation."""
        slope = slope.unsqueeze(1)
        torch.sum(slope * (self._z.square() - 1), 0, out=self._log_std.grad)
        if self._ent_coef:
            self._log_std.grad -= self._ent_coef
        return slope * self._z * self._precision


class _Perceptron:
    """Forward and backward passes through an nn.Sequential of linear layers and one kind of activation."""

    def __init__(self, network):
        layers = list(network)
        self.first = layers[0]
        # Transposed views of the parameters, which change in place.
        self._weights = [layer.weight.detach() for layer in layers[::2]]
        self._transposed = [weight.t() for weight in self._weights]
        self._biases = [layer.bias.detach() for layer in layers[::2]]
        self._gradients = [(layer.weight.grad, layer.bias.grad) for layer in layers[::2]]
        self._activate, self._back = _FORWARD[type(layers[1])], _BACKWARD[type(layers[1])]

    def forward(self, x, first):
        """Return the output (B, out) for the input ``x`` and what the first layer made of it, kept for ``backward``."""
        self._inputs = [x]
        for weight, bias in zip(self._transposed[1:], self._biases[1:]):
            self._inputs.append(self._activate(first))
            first = torch.addmm(bias, self._inputs[-1], weight)
        return first

    def backward(self, slope):
        """Write the parameters' gradients for ``slope`` = d loss / d output (B, out)."""
        for number in range(len(self._weights) - 1, -1, -1):
            weight, bias = self._gradients[number]
            torch.mm(slope.t(), self._inputs[number], out=weight)
            torch.sum(slope, 0, out=bias)
            if number:
                slope = self._back(torch.mm(slope, self._weights[number]), self._inputs[number])
