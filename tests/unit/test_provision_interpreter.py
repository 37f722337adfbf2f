"""The search for an interpreter, against pyenv folders made of shell scripts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlbench.errors import Unavailable
from rlbench.provision import interpreter
from rlbench.provision.uv import UvFailed

# No machine has it, so nothing but the fake folders can answer.
VERSION = "3.99"


def fake_python(folder: Path, version: str, name: str = "python", implementation: str = "CPython") -> Path:
    """An executable that answers like Python ``version`` when it is asked."""
    path = folder / "bin" / name
    path.parent.mkdir(parents=True)
    answer = json.dumps([str(path), version, implementation])
    path.write_text(f"#!/bin/sh\necho '{answer}'\n")
    path.chmod(0o755)
    return path


def shim(folder: Path, name: str) -> None:
    """An executable that fails like a pyenv shim of a version that is not active."""
    folder.mkdir()
    path = folder / name
    path.write_text(f"#!/bin/sh\necho 'pyenv: {name}: command not found' >&2\nexit 127\n")
    path.chmod(0o755)


@pytest.fixture
def pyenv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "shims"))
    return tmp_path / "pyenv" / "versions"


def refuse(arguments: list[str], **_: object) -> str:
    raise UvFailed("error: failed to fetch\n  cause: dns error")


def test_newest_patch_of_pyenv(pyenv: Path) -> None:
    fake_python(pyenv / "3.99.9", "3.99.9")
    newest = fake_python(pyenv / "3.99.10", "3.99.10")
    fake_python(pyenv / "3.9.1", "3.9.1")
    assert interpreter.find_interpreter(VERSION) == interpreter.Interpreter(newest, "3.99.10")


def test_what_does_not_answer_is_passed_over(pyenv: Path, tmp_path: Path) -> None:
    broken = fake_python(pyenv / "3.99.5", "3.99.5")
    broken.write_text("#!/bin/sh\nexit 1\n")
    fake_python(pyenv / "3.99.4", "3.99.4", implementation="PyPy")
    named = fake_python(pyenv / "mine", "3.99.3")
    shim(tmp_path / "shims", "python3.99")
    assert interpreter.find_interpreter(VERSION).path == named


def test_path_comes_after_pyenv(pyenv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path = fake_python(tmp_path / "usr", "3.99.1", name="python3.99")
    shim(tmp_path / "shims", "python3.99")
    monkeypatch.setenv("PATH", f"{tmp_path / 'shims'}:{on_path.parent}")
    assert interpreter.find_interpreter(VERSION).path == on_path


def test_no_interpreter_names_the_way_out(pyenv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "run_uv", refuse)
    with pytest.raises(Unavailable, match=r"Python 3\.99 was not found.*dns error.*pyenv install 3\.99"):
        interpreter.find_interpreter(VERSION)


def test_uv_fetches_what_is_missing(pyenv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def fetching(arguments: list[str], **_: object) -> str:
        calls.append(arguments[1])
        if arguments[1] == "install":
            fake_python(tmp_path / "managed", "3.99.2")
            return ""
        if "install" not in calls:
            raise UvFailed("error: No interpreter found")
        return str(tmp_path / "managed" / "bin" / "python") + "\n"

    messages: list[str] = []
    monkeypatch.setattr(interpreter, "run_uv", fetching)
    assert interpreter.find_interpreter(VERSION, messages.append).version == "3.99.2"
    assert calls == ["find", "install", "find"]
    assert messages == ["Python 3.99 is not on this machine; uv fetches it"]
