"""Help for the taps of JAX libraries: reads the fixed parameter that versions are told by, cheaply.

JAX arrays never change, an update makes new ones: what was read of an array stays true, and acting again with
the same parameters costs a comparison of identities.
"""

import jax
import numpy as np


class Kernel:
    """Reads the first matrix of a tree of parameters (the first layer's kernel) as numpy."""

    def __init__(self, params):
        leaves = jax.tree_util.tree_leaves(params)
        self._position = next(i for i, leaf in enumerate(leaves) if leaf.ndim == 2)
        self._params, self._values = None, None

    def leaf(self, params):
        """Return the kernel of ``params`` as it is, also while it is traced."""
        return jax.tree_util.tree_leaves(params)[self._position]

    def __call__(self, params):
        """Return the kernel of ``params`` as numpy; waits for it when it is still being computed."""
        if params is not self._params:
            self._params, self._values = params, np.asarray(self.leaf(params))
        return self._values


def count(params):
    """Return the number of elements of all parameters."""
    return sum(int(np.prod(leaf.shape)) for leaf in jax.tree_util.tree_leaves(params))
