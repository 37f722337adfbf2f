"""Makes Spinning Up's PyTorch half importable without TensorFlow, which its logger imports and does not use there.

The stand-in has the spec that PyTorch asks modules for.
"""

import importlib.machinery
import sys
import types

sys.modules["tensorflow"] = module = types.ModuleType("tensorflow")
module.__spec__ = importlib.machinery.ModuleSpec("tensorflow", None)
