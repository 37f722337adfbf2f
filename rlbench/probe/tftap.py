"""Taps for TensorFlow 2: optimizer steps and batches that live inside compiled functions.

A ``tf.function`` runs its Python code once, when it is traced; what must be seen at every execution is
therefore emitted into the graph as ``tf.numpy_function``. Outside of compiled functions it runs at once.
"""

import numpy as np
import tensorflow as tf


def tap_optimizer(optimizer, weights, probe):
    """Tell ``probe`` of each step of a Keras ``optimizer``: the variable ``weights`` after it, and what it owns.

    To be called before the function that trains is traced.
    """
    apply = optimizer.apply_gradients

    def note(values, rate):
        probe.updated(values, float(rate))

    def tapped(grads_and_vars, *args, **kwargs):
        pairs = list(grads_and_vars)
        owned = sum(int(np.prod(variable.shape)) for _, variable in pairs)
        probe.describe_optimizer(type(optimizer).__name__, owned)
        result = apply(pairs, *args, **kwargs)
        with tf.control_dependencies([result] if tf.is_tensor(result) else []):
            tf.numpy_function(note, [weights.read_value(), optimizer.learning_rate], [])
        return result

    optimizer.apply_gradients = tapped


def tap_batch(observations, probe):
    """Tell ``probe`` that the tensor ``observations`` is learned from, whenever it is computed."""
    tf.numpy_function(probe.learned, [observations], [])


def acting(weights, probe):
    """Return a function to be told the observations that the policy with the variable ``weights`` acts on."""

    def tell(observations):
        probe.acted(observations, weights.numpy())

    return tell
