"""Makes RLlib's environments.

A module of its own, since RLlib pickles what is registered with it: a function that pickles by name keeps the
trial of this process, and with it the count of steps.
"""

import itertools

_trial, _indices = None, None


def use(trial):
    """Set the trial whose environments ``make`` makes."""
    global _trial, _indices
    _trial, _indices = trial, itertools.count()


def make(context):
    """Return the next environment; ``context`` is RLlib's and the same for all environments of a runner.

    In a process of a remote runner the trial comes with ``context``, and the ledgers tell which number is free.
    """
    if _trial is None:
        return context["trial"].make_env(None)
    return _trial.make_env(next(_indices))
