"""Taps for Chainer: a link hook on the policy's first layer, and a hook of its optimizer.

Whether a pass learns is told by Chainer's back-propagation mode: acting, target values and recomputed
log-probabilities run without it, and of these only acting has batches of at most one row per environment.
"""

import chainer
import numpy as np


def tap_policy(probe, layer, optimizer, n_envs):
    """Tap the policy whose first link with weights is ``layer``, and ``optimizer``, set up to train it.

    To be called once the agent is made: agents copy their networks, and a hook cannot be copied.
    """
    layer.add_hook(_Fed(probe, layer, n_envs))
    _describe(probe, optimizer)

    def stepped(optimizer):
        probe.updated(layer.W.array, _rate(optimizer))

    optimizer.add_hook(stepped, name="rlbench", timing="post")


def tap_actor_learner(probe, agent, shared_layer):
    """Tap an asynchronous agent (A3C), one copy of which acts and learns in each of several processes.

    ``shared_layer`` is the policy's first link with weights in ``agent.shared_model``. To be called before the
    processes are forked. Updates are lock-free, so there is no one order of them: versions count in the order in
    which processes have stepped and pulled, and the weights of a version are those that were pulled. They may hold
    part of a step that another process is making at that moment: a lag is certain to within the number of processes.
    """
    place = list(agent.shared_model.links()).index(shared_layer)
    layer = list(agent.model.links())[place]
    layer.add_hook(_Acting(probe, layer))
    probe.share("policy")
    _describe(probe, agent.optimizer)
    update, pull = agent.update, agent.sync_parameters

    def tapped_update(statevar):
        states = [agent.past_states[step] for step in range(agent.t_start, agent.t)]
        probe.learned(np.concatenate(states))
        update(statevar)

    def tapped_pull():
        pull()
        probe.updated(layer.W.array, _rate(agent.optimizer))

    agent.update, agent.sync_parameters = tapped_update, tapped_pull


def _describe(probe, optimizer):
    parameters = sum(each.size for each in optimizer.target.params())
    probe.describe_optimizer(kind=type(optimizer).__name__, parameters=parameters)


def _rate(optimizer):
    return float(optimizer.alpha if isinstance(optimizer, chainer.optimizers.Adam) else optimizer.lr)


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


class _Acting(chainer.LinkHook):
    """Notes what is fed to a link of a network that acts; the last time before an action is what counts."""

    name = "rlbench"

    def __init__(self, probe, layer):
        super().__init__()
        self._probe, self._layer = probe, layer

    def forward_preprocess(self, args):
        self._probe.acted(chainer.as_array(args.args[0]), self._layer.W.array)
