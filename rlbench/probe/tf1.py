"""TensorFlow 1's interface on TensorFlow 2, for libraries that were written for the former."""

import sys
import types

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
    # Submodules (tensorflow.python and the like) are found under TensorFlow 2's own path.
    tf1.__path__ = tensorflow.__path__
    sys.modules["tensorflow"] = tf1
    return tf1
