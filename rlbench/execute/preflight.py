"""Cheap checks before a run, so that a mistake costs seconds and not a half-run comparison."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

from rlbench.catalog.library import Library
from rlbench.catalog.scenario import Scenario
from rlbench.execute.guest import guest_variables

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


def environment_fault(python: Path, code: Path, scenario: Scenario, library: Library) -> str | None:
    """Return why the scenario's environment cannot be used by the library, or None."""
    request = scenario.environment.model_dump(mode="json")
    answer = _ask(python, code, _ENVIRONMENT, json.dumps(request), library)
    if "error" in answer:
        return answer["error"]
    if answer["actions"] not in library.capabilities.action_spaces:
        able = ", ".join(library.capabilities.action_spaces)
        return f"{library.title} takes {able} actions, {scenario.environment.id} has {answer['actions']} actions"
    return None


def adapter_fault(python: Path, code: Path, library: Library) -> str | None:
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
    return answer.get("error")


def _ask(python: Path, code: Path, program: str, argument: str, library: Library) -> dict[str, str]:
    """Run ``program`` in a guest and return what it printed last."""
    try:
        done = subprocess.run(
            [str(python), "-c", program, argument, str(library.folder.resolve())],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            env=guest_variables(code, 1, "preflight"),
            cwd=code,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"no answer within {_TIMEOUT_S} s"}
    for line in reversed(done.stdout.splitlines()):
        if line.startswith("rlbench:"):
            answer: dict[str, str] = json.loads(line.removeprefix("rlbench:"))
            return answer
    last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return {"error": last}
