"""Runs the tests of the pipeline's parts inside the environment of the adapter ``reference``, which has PyTorch."""

import importlib.util
import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.contract
HERE = Path(__file__).parent


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="PyTorch is here: they run by themselves")
def test_parts() -> None:
    from rlbench.catalog.library import load_libraries
    from rlbench.provision.build import environment

    guest = environment(load_libraries()["reference"])
    tests = sorted(str(path) for path in HERE.glob("test_part_*.py"))
    variables = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [str(guest.python), "-m", "pytest", "-p", "no:cacheprovider", *tests],
        cwd=HERE.parents[1],
        env={**variables, "PYTHONPATH": str(HERE.parents[1])},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
