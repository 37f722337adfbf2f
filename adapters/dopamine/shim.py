"""What must be done before Dopamine is imported; importing this module does it."""

import os
import sys
import types

os.environ["JAX_PLATFORMS"] = "cpu"
# XLA's own threads do not obey OMP_NUM_THREADS.
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# Dopamine's Atari module imports OpenAI Baselines, which its wheel does not ask for.
for name in ("baselines", "baselines.common", "baselines.common.atari_wrappers"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["baselines.common"].atari_wrappers = sys.modules["baselines.common.atari_wrappers"]
