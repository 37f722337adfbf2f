"""uv is run apart from the host's interpreter, and what it says is made one line."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from rlbench.provision import torch as torch_module
from rlbench.provision import uv
from rlbench.provision.index import PipSettings
from rlbench.provision.interpreter import Interpreter
from rlbench.provision.torch import TorchIndex, torch_flags

PYTHON = Interpreter(Path("/bin/sh"), "3.11.7")


def script(folder: Path, text: str) -> str:
    path = folder / "uv"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_host_settings_do_not_reach_the_guest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uv, "uv_path", lambda: script(tmp_path, "env; pwd"))
    for name in uv.HOST_ONLY:
        monkeypatch.setenv(name, "/host")
    output = uv.run_uv([], variables={"UV_INDEX": "https://x.example"})
    assert "/host" not in output
    assert "UV_INDEX=https://x.example" in output
    assert str(Path.cwd()) not in output.splitlines()[-1]


def test_failure_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "printf 'warning: x\\nerror: Failed to fetch\\n  cause: dns error\\n' >&2; exit 2"
    monkeypatch.setattr(uv, "uv_path", lambda: script(tmp_path, text))
    with pytest.raises(uv.UvFailed, match=r"^Failed to fetch; dns error$") as raised:
        uv.run_uv([])
    assert raised.value.no_connection
    assert not raised.value.disk_full


def test_cancelled_run_ends_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = tmp_path / "mark"
    monkeypatch.setattr(uv, "uv_path", lambda: script(tmp_path, f"(sleep 1; touch {mark}) & wait"))
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(uv.Cancelled):
        uv.run_uv([], cancelled=cancelled)
    time.sleep(1.2)
    assert not mark.exists()


def test_unreachable_torch_index_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def refuse(arguments: list[str], stdin: str = "", **_: object) -> str:
        calls.append(stdin)
        raise uv.UvFailed("error: Failed to fetch\n  cause: dns error")

    monkeypatch.setattr(torch_module, "run_uv", refuse)
    monkeypatch.setattr(torch_module, "torch_index", TorchIndex())
    messages: list[str] = []
    for requirement in ("torch==2.13.0", "torch==2.12.0"):
        assert torch_flags(requirement, PYTHON, "cpu", PipSettings(), messages.append) == []
    assert calls == ["torch==2.13.0"]
    assert "torch==2.13.0 is taken from the configured index" in messages[0]


@pytest.mark.parametrize(("kind", "backend"), [("cpu", "cpu"), ("cuda", "auto")])
def test_reachable_torch_index_is_used(kind: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_module, "run_uv", lambda arguments, **_: "")
    monkeypatch.setattr(torch_module, "torch_index", TorchIndex())
    flags = torch_flags("torch==2.13.0", PYTHON, kind, PipSettings(), print)  # type: ignore[arg-type]
    assert flags == ["--torch-backend", backend]
    assert torch_flags(None, PYTHON, "cpu", PipSettings(), print) == []
    assert torch_flags("torch==2.13.0", PYTHON, "cpu", PipSettings(no_index=True), print) == []
