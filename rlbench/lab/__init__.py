"""The lab: one experiment for each claim of a practitioners' guide to asynchronous RL, and a verdict on it.

The host has ``catalog``, ``run``, ``store``, ``chart`` and ``page``. All else, the experiments included, runs in the
interpreter of the ``reference`` environment and may import the standard library, numpy, torch and ``rlbench.pipeline``.
"""
