"""Makes Spinning Up's PyTorch half importable without TensorFlow, which its logger imports and does not use there."""

import importlib.machinery
import sys
import types


def install():
    """Put an empty module ``tensorflow`` in place, with the spec that PyTorch asks modules for."""
    module = types.ModuleType("tensorflow")
    module.__spec__ = importlib.machinery.ModuleSpec("tensorflow", None)
    sys.modules["tensorflow"] = module
