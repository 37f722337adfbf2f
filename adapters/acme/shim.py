"""What must be done before Acme is imported; importing this module does it."""

import os
import types

THREADS = os.environ.get("OMP_NUM_THREADS", "1")
os.environ["JAX_PLATFORMS"] = "cpu"
# The threads of XLA and of TensorFlow (Reverb's data sets) do not obey OMP_NUM_THREADS.
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
os.environ["TF_NUM_INTRAOP_THREADS"] = os.environ["TF_NUM_INTEROP_THREADS"] = THREADS
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import jax  # noqa: E402

# Acme 0.4.0 is written for JAX 0.3, of which no build for Python 3.10 is left: names that JAX 0.4 dropped.
jax.xla = types.SimpleNamespace(Device=jax.Device, DeviceArray=jax.Array)
jax.pxla = types.SimpleNamespace(ShardedDeviceArray=jax.Array)
jax.numpy.DeviceArray = jax.Array
jax.tree_multimap = jax.tree_util.tree_map
