"""The network that a user of MushroomRL writes: the library has none of its own."""

from itertools import pairwise

import torch
from torch import nn

from rlbench.probe.sampler import library_call


class Network(nn.Module):
    """A multilayer perceptron, called as MushroomRL does: with the state, or with the state and an action.

    ``joined`` True: the action is an input (SAC's critics). Otherwise an action selects an output (DQN).
    """

    def __init__(self, input_shape, output_shape, hidden, activation, joined=False, **ignored):
        super().__init__()
        sizes = [input_shape[0], *hidden, output_shape[0]]
        layers = [each for a, b in pairwise(sizes) for each in (nn.Linear(a, b), activation())]
        self._body, self._joined = nn.Sequential(*layers[:-1]), joined

    def forward(self, state, action=None):
        # A2C feeds double precision.
        state = state.float()
        if self._joined:
            return library_call(self._body, torch.cat((state, action.float()), dim=1)).squeeze(1)
        out = library_call(self._body, state)
        return out if action is None else out.gather(1, action.long()).squeeze(1)
