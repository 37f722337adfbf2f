"""The reference asynchronous pipeline: its parts can be imported one by one into a trainer of one's own.

Runs where PyTorch is (the environment of the adapter ``reference``), on the standard library, numpy and torch; the
harness itself never imports it. ``buffer``, ``staleness`` and ``shared`` need no torch.
"""
