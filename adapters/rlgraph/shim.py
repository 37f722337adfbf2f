"""Makes RLgraph importable on TensorFlow 2, in this process and in those that Ray starts: import it first."""

import os
import tempfile
import types

import tensorflow.compat.v1 as tf1
import tensorflow_probability as tfp
from tensorflow.python.ops.data_flow_ops import StagingArea

from rlbench.probe.tf1 import stand_in_as_tensorflow

# Distributions built from logits no longer know their probabilities by the old name.
for each in (tfp.distributions.Categorical, tfp.distributions.Bernoulli):
    each.probs = property(lambda self: self.probs_parameter())
stand_in_as_tensorflow(
    {
        "framework.nest": tf1.nest,
        "staging.StagingArea": StagingArea,
        "eager": types.ModuleType("tensorflow.contrib.eager"),
    }
)
if "RLGRAPH_HOME" not in os.environ:
    os.environ["RLGRAPH_HOME"] = tempfile.mkdtemp()
# With "ray", every mode would need Ray; workers.py changes it when it is there.
os.environ.update(RLGRAPH_BACKEND="tf", RLGRAPH_DISTRIBUTED_BACKEND="distributed_tf")
