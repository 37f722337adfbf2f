"""Makes garage importable without TensorFlow: its worker factory imports one class of the TensorFlow branch."""

import sys
import types


class TFWorkerClassWrapper:
    """Never made: it wraps workers of the TensorFlow branch."""


def install():
    """Put the stand-ins in place; importing this module does it, and Ray's workers are told to."""
    sys.modules["garage.tf"] = types.ModuleType("garage.tf")
    sys.modules["garage.tf.samplers"] = samplers = types.ModuleType("garage.tf.samplers")
    samplers.TFWorkerClassWrapper = TFWorkerClassWrapper


if "garage.tf" not in sys.modules:
    install()
