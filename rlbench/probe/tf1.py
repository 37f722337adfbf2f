"""TensorFlow 1's interface on TensorFlow 2, for libraries that were written for the former."""

import sys
import types

import numpy as np
import tensorflow
import tensorflow.compat.v1 as tf1


def stand_in_as_tensorflow(contrib):
    """From now on ``import tensorflow`` in this process gives TensorFlow 1's interface; return that module.

    ``contrib`` maps dotted names under ``tensorflow.contrib``, which TensorFlow 2 no longer has, to stand-ins.
    Nothing on disk changes, and modules that hold TensorFlow 2 already keep it.
    """
    tf1.disable_v2_behavior()
    tf1.logging.set_verbosity(tf1.logging.ERROR)
    for name, value in contrib.items():
        *path, last = ["contrib", *name.split(".")]
        holder = tf1
        for depth, part in enumerate(path, start=1):
            if not hasattr(holder, part):
                module = types.ModuleType(".".join(["tensorflow", *path[:depth]]))
                setattr(holder, part, module)
                sys.modules[module.__name__] = module
            holder = getattr(holder, part)
        setattr(holder, last, value)
        if isinstance(value, types.ModuleType):
            sys.modules["tensorflow.contrib." + name] = value
    # Submodules (tensorflow.python and the like) are found under TensorFlow 2's own path.
    tf1.__path__ = tensorflow.__path__
    sys.modules["tensorflow"] = tf1
    return tf1


def tap_graph(is_policy, probe, rows=None):
    """Tell ``probe`` of every step that TensorFlow 1 optimizers built from now on make of the policy's variables.

    ``is_policy(names)`` tells the policy by the names of the variables of a step; the first of them that multiplies
    the observations is the kernel that is noted. Steps may be made in loops inside one session run. ``rows``: how many
    of the observations, from the first, the loss learns from (None: all). Returns a list that holds the kernel once the
    graph is built.
    """
    kernels, told = [], {}
    optimizer_class = tf1.train.Optimizer
    compute, apply = optimizer_class.compute_gradients, optimizer_class.apply_gradients

    def tapped_compute(self, loss, var_list=None, *args, **kwargs):
        if var_list and is_policy([each.name for each in tf1.nest.flatten(var_list)]):
            kernel, product = _first_product(loss, tf1.nest.flatten(var_list))
            observations = product.inputs[0]
            kernels[:] = [kernel]
            told[id(self)] = tf1.py_func(_quiet(probe.learned), [observations[:rows]], tf1.int64)
        return compute(self, loss, var_list, *args, **kwargs)

    def tapped_apply(self, grads_and_vars, *args, **kwargs):
        pairs = list(grads_and_vars)
        learned = told.pop(id(self), None)
        if learned is None:
            return apply(self, pairs, *args, **kwargs)
        owned = sum(variable.shape.num_elements() for _, variable in pairs)
        probe.describe_optimizer(type(self).__name__, owned)
        with tf1.control_dependencies([learned]):
            applied = apply(self, pairs, *args, **kwargs)
        with tf1.control_dependencies([applied]):
            after = [kernels[0].read_value(), tf1.convert_to_tensor(self._lr_t)]
            noted = tf1.py_func(_quiet(lambda values, rate: probe.updated(values, float(rate))), after, tf1.int64)
        return tf1.group(applied, noted)

    optimizer_class.compute_gradients, optimizer_class.apply_gradients = tapped_compute, tapped_apply
    return kernels


def tap_product(result, tell):
    """Return an operation that calls ``tell(observations, kernel)`` with what ``result`` is computed from.

    For graphs that act inside themselves: ``kernel`` is the value of the first layer's at that moment.
    """
    _, product = _first_product(result, tf1.trainable_variables())
    return tf1.py_func(_quiet(tell), list(product.inputs), tf1.int64)


def _quiet(tell):
    """A graph's function must return something."""

    def call(*values):
        tell(*values)
        return np.int64(0)

    return call


def _first_product(loss, variables):
    """Return ``(variable, operation)`` of the matrix product before ``loss`` whose input comes from no other product.

    That is the first layer: its inputs are the batch of observations and the variable's value.
    """
    of = {each.op: each for each in variables}
    products, seen, stack = [], set(), [loss.op]
    while stack:
        operation = stack.pop()
        if operation in seen:
            continue
        seen.add(operation)
        stack += [each.op for each in operation.inputs]
        if operation.type == "MatMul" and _origin(operation.inputs[1].op, of) is not None:
            products.append(operation)
    first = min(products, key=lambda each: _depth(each.inputs[0].op, set(products), set()))
    return _origin(first.inputs[1].op, of), first


def _origin(operation, of):
    """Return the variable whose value an operation hands on unchanged, or None."""
    while operation not in of:
        if operation.type not in ("Identity", "Enter", "RefEnter", "ReadVariableOp") or not operation.inputs:
            return None
        operation = operation.inputs[0].op
    return of[operation]


def _depth(operation, products, seen):
    """Number of the products that an operation depends on."""
    stack, count = [operation], 0
    while stack:
        operation = stack.pop()
        if operation in seen:
            continue
        seen.add(operation)
        count += operation in products
        stack += [each.op for each in operation.inputs]
    return count
