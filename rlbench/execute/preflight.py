"""Cheap checks before a run, so that a mistake costs seconds and not a half-run comparison."""

from __future__ import annotations

import hashlib
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlbench.catalog.library import Library
from rlbench.catalog.scenario import Scenario
from rlbench.execute.guest import guest_variables
from rlbench.provision.layer import Layer

_ENVIRONMENT = """
import json, sys
sys.path.insert(0, sys.argv[2])
from rlbench.probe.env import make_plain, stamped_space
request = json.loads(sys.argv[1])
try:
    env = make_plain(request["id"], request["kwargs"])
    stamped_space(env.observation_space)
    kind = type(env.action_space).__name__.lower()
    answer = {"actions": kind}
except Exception as error:
    answer = {"error": str(error)}
print("\\nrlbench:" + json.dumps(answer))
"""
_FIND = """
import json, sys
sys.path.insert(0, sys.argv[2])
from rlbench.probe.find import Unfit, find_environment
request = json.loads(sys.argv[1])
try:
    env_id, actions = find_environment(request["id"], request["kwargs"], request["distribution"])
    answer = {"id": env_id, "actions": actions}
except ValueError as error:
    answer = {"error": str(error), "unfit": isinstance(error, Unfit)}
except Exception as error:
    answer = {"error": "environment '%s': %s: %s" % (request["id"], type(error).__name__, error)}
print("\\nrlbench:" + json.dumps(answer))
"""
_ADAPTER = """
import json, sys
sys.path.insert(0, sys.argv[2])
from rlbench.probe.main import load_adapter
try:
    load_adapter(sys.argv[1])
    answer = {}
except Exception as error:
    answer = {"error": str(error)}
print("\\nrlbench:" + json.dumps(answer))
"""
_TIMEOUT_S = 300


@dataclass(frozen=True)
class Fault:
    """Why a library does not run a scenario, and the ``status`` that its trials get."""

    status: str
    reason: str


def environment_fault(
    python: Path, code: Path, scenario: Scenario, library: Library, layer: Layer | None = None
) -> Fault | None:
    """Return why the scenario's environment cannot be used by the library, or None."""
    request = scenario.environment.model_dump(mode="json")
    answer = _ask(python, code, _ENVIRONMENT, json.dumps(request), library, layer)
    if "error" in answer:
        return Fault("failed", answer["error"])
    if answer["actions"] not in library.capabilities.action_spaces:
        able = ", ".join(library.capabilities.action_spaces)
        has = f"{scenario.environment.id} has {answer['actions']} actions"
        return Fault("skipped", f"{library.title} takes {able} actions, {has}")
    return None


def found_environment(
    python: Path, code: Path, env_id: str, kwargs: dict[str, Any], library: Library, layer: Layer | None
) -> dict[str, Any]:
    """Return the ``id`` by which the guest can make the environment and its ``actions``.

    Or ``error``, a sentence; then ``unfit`` says whether the environment is there and of a kind that cannot be run.
    """
    request = {"id": env_id, "kwargs": kwargs, "distribution": layer.distribution if layer else None}
    answer = _ask(python, code, _FIND, json.dumps(request), library, layer)
    if "error" in answer:
        answer["error"] = " ".join(answer["error"].split())
    return answer


def adapter_fault(python: Path, code: Path, library: Library) -> Fault | None:
    """Return why the library's adapter does not import in its environment, or None.

    A success is remembered beside the environment, until the adapter changes.
    """
    digest = hashlib.sha256(library.adapter.read_bytes()).hexdigest()[:16]
    remembered = python.parent.parent / f".adapter-{digest}"
    if remembered.exists():
        return None
    answer = _ask(python, code, _ADAPTER, str(library.adapter.resolve()), library)
    if "error" not in answer:
        remembered.touch()
        return None
    return Fault("failed", answer["error"])


def _ask(
    python: Path, code: Path, program: str, argument: str, library: Library, layer: Layer | None = None
) -> dict[str, Any]:
    """Run ``program`` in a guest and return what it printed last."""
    try:
        done = subprocess.run(
            [str(python), "-c", program, argument, str(library.folder.resolve())],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            env=guest_variables(code, 1, "preflight", layer=layer.folder if layer else None),
            cwd=code,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"no answer within {_TIMEOUT_S} s"}
    for line in reversed(done.stdout.splitlines()):
        if line.startswith("rlbench:"):
            answer: dict[str, Any] = json.loads(line.removeprefix("rlbench:"))
            return answer
    last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return {"error": last}
