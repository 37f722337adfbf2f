"""Tests of the pipeline's parts: they need PyTorch, so ``test_in_environment`` runs them where it is."""

import importlib.util

if importlib.util.find_spec("torch") is None:
    collect_ignore_glob = ["test_part_*.py"]
else:
    import torch

    # A process that is forked after PyTorch has used several threads waits for them for ever.
    torch.set_num_threads(1)
