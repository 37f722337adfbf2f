"""Lets Spinning Up's logger take an epoch in which a process ended no episode: its part of a rollout may be short.

The logger fails there for want of a first value; its statistics over all MPI processes allow for one that has none.
"""

import numpy as np
import shim  # noqa: F401
from spinup.utils.logx import EpochLogger

_log_tabular = EpochLogger.log_tabular


def log_tabular(self, key, val=None, **settings):
    if val is None and not self.epoch_dict.get(key):
        self.epoch_dict[key] = [np.empty(0)]
    _log_tabular(self, key, val, **settings)


EpochLogger.log_tabular = log_tabular
