"""rlbench compares reinforcement-learning libraries by measuring them from outside.

This file and ``rlbench/probe`` are the only parts that run inside a library's own interpreter (the *guest*);
everything else runs in the harness (the *host*).
"""

__version__ = "0.1.0"
