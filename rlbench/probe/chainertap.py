"""Taps for Chainer: a link hook on the policy's first layer, and a hook of its optimizer.

Whether a pass learns is told by Chainer's back-propagation mode: acting, target values and recomputed
log-probabilities run without it, and of these only acting has batches of at most one row per environment.
"""

import chainer


def tap_policy(probe, layer, optimizer, n_envs):
    """Tap the policy whose first link with weights is ``layer``, and ``optimizer``, set up to train it.

    To be called once the agent is made: agents copy their networks, and a hook cannot be copied.
    """
    layer.add_hook(_Fed(probe, layer, n_envs))
    probe.describe_optimizer(
        kind=type(optimizer).__name__, parameters=sum(each.size for each in optimizer.target.params())
    )
    rate = "alpha" if hasattr(optimizer, "alpha") else "lr"

    def stepped(optimizer):
        probe.updated(layer.W.array, float(getattr(optimizer, rate)))

    optimizer.add_hook(stepped, name="rlbench", timing="post")


class _Fed(chainer.LinkHook):
    """Notes what is fed to a link."""

    name = "rlbench"

    def __init__(self, probe, layer, n_envs):
        super().__init__()
        self._probe, self._layer, self._n_envs = probe, layer, n_envs

    def forward_preprocess(self, args):
        batch = chainer.as_array(args.args[0])
        if chainer.config.enable_backprop:
            self._probe.learned(batch)
        elif len(batch) <= self._n_envs:
            self._probe.acted(batch, self._layer.W.array)
