"""The reference asynchronous pipeline: its parts can be imported one by one into a trainer of one's own.

    buffer, shared       rollouts and counters in shared memory that no killed process leaves behind
    staleness, replay    what old samples count for; prioritised replay; a depth that follows what is measured
    returns, algorithm   GAE and V-trace; losses of PPO and actor-critic
    lora, sync, adam     low-rank adapters; weights as one flat buffer and the ways it travels; Adam over it
    policy, gradient     actor-critic perceptrons, and their losses' gradient written out
    actor, learner, trainer, processes, board, settings    the whole: see ``rlbench.pipeline.trainer.train``

Runs where PyTorch is (the environment of the adapter ``reference``), on Linux and x86, with the standard library, numpy
and torch; the harness itself never imports it. ``buffer``, ``staleness``, ``returns``, ``replay``, ``shared`` and
``board`` need no torch.
"""
