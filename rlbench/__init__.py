"""rlbench compares reinforcement-learning libraries by measuring them from outside.

This file, ``rlbench/probe`` and ``rlbench/pipeline`` (our own contestant) are the only parts that run inside a
library's own interpreter (the *guest*); everything else runs in the harness (the *host*).
"""

__version__ = "0.1.0"
