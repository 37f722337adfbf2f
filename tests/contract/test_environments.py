"""Environments really built by uv, from a lock with one small package."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rlbench.catalog.library import Library, load_library
from rlbench.provision import cache
from rlbench.provision.build import cached, environment
from rlbench.provision.check import check
from rlbench.provision.lock import lock
from tests.conftest import heed_signals

pytestmark = pytest.mark.contract

ADAPTER = """
name = "sample"
title = "Sample"
package = "six"
import_name = "six"
licence = "MIT"
alive = true
python = "{}.{}"
backend = "numpy"

[capabilities]
algorithms = ["ppo"]
action_spaces = ["discrete"]

[axes]
orchestration = "none"
rollout_buffer = "none"
weight_sync = "none"
staleness_management = "none"
partial_rollouts = "none"
lora = "none"
distributed_backend = "none"
"""

BUILD = """
import sys
from pathlib import Path
from rlbench.catalog.library import load_library
from rlbench.provision.build import environment
environment(load_library(Path(sys.argv[1])), report=lambda message: print(message, flush=True))
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Library:
    monkeypatch.setenv("RLBENCH_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "sample"
    folder.mkdir()
    (folder / "adapter.toml").write_text(ADAPTER.format(*sys.version_info[:2]))
    (folder / "adapter.py").write_text("")
    (folder / "requirements.in").write_text("six==1.16.0\n")
    (folder / "requirements.lock").write_text("six==1.16.0\n")
    return load_library(folder)


def in_cache() -> list[str]:
    """What lies in the cache besides lock files."""
    return sorted(path.name for path in cache.environments_root().iterdir() if ".lock-" not in path.name)


def test_built_once_then_cached(library: Library) -> None:
    messages: list[str] = []
    first = environment(library, report=messages.append)
    assert first.build_s is not None
    assert first.build_s > 0
    assert first.size_mb > 0
    assert first.packages == {"six": "1.16.0"}
    assert check(library) == []
    second = environment(library, report=messages.append)
    assert second.build_s is None
    assert second.folder == first.folder
    assert len([message for message in messages if message.startswith("sample: built")]) == 1
    assert in_cache() == [first.folder.name]


def test_works_where_it_was_renamed_to(library: Library) -> None:
    built = environment(library)
    where = "import six, sys; print(sys.prefix, six.__version__)"
    output = subprocess.run([built.python, "-I", "-c", where], capture_output=True, text=True, check=True).stdout
    assert output.split() == [str(built.folder), "1.16.0"]
    assert list(built.folder.rglob("six.*.pyc"))


def test_another_lock_is_another_environment(library: Library) -> None:
    first = environment(library)
    library.lock.write_text("six==1.17.0\n")
    assert cached(library) is None
    second = environment(library)
    assert second.packages == {"six": "1.17.0"}
    assert second.folder != first.folder
    assert sorted([first.folder.name, second.folder.name]) == in_cache()
    library.lock.write_text("six==1.16.0\n")
    assert environment(library).folder == first.folder


def test_package_removed_by_hand_is_put_back(library: Library) -> None:
    built = environment(library)
    next(built.folder.rglob("six-1.16.0.dist-info")).rename(built.folder / "elsewhere")
    assert check(library) == ["six==1.16.0 is missing"]
    again = environment(library)
    assert again.build_s is not None
    assert check(library) == []


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
def test_killed_build_leaves_no_half_environment(library: Library, ending: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", BUILD, str(library.folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=heed_signals,
    )
    # The moment at which uv has made the folder and packages are being put there.
    deadline = time.monotonic() + 60
    while not list(cache.environments_root().glob(".partial-*/bin")):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.002)
    os.kill(process.pid, ending)
    process.communicate(timeout=60)
    assert process.returncode != 0
    left = in_cache()
    assert all(name.startswith(".partial-sample-") for name in left)
    if ending == signal.SIGINT:
        assert left == []
    assert cached(library) is None
    built = environment(library)
    assert check(library) == []
    assert in_cache() == [built.folder.name]


def test_removed(library: Library) -> None:
    built = environment(library)
    assert cache.remove(library.name, print) == 1
    assert not built.folder.exists()
    assert in_cache() == []
    assert environment(library).build_s is not None


def test_lock_is_made_from_requirements(library: Library) -> None:
    library.lock.write_text("")
    assert lock(library) == {"six": (None, "1.16.0")}
    assert library.lock.read_text() == "six==1.16.0\n"
    assert lock(library) == {}


def test_adapters_given_by_a_relative_path(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(library.folder.parent)
    relative = load_library(Path(library.folder.name))
    assert environment(relative).packages == {"six": "1.16.0"}
    assert lock(relative) == {}
