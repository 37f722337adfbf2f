"""Scenarios for environments of the user's own: the template of their action space, filled in."""

from __future__ import annotations

import re
from typing import Any

from rlbench.catalog.paths import shipped
from rlbench.catalog.scenario import Scenario, overridden
from rlbench.catalog.toml import read_toml, validated
from rlbench.errors import UserError

DEFAULT_ALGORITHM = "ppo"
_KWARGS = "environment.kwargs"


def scenario_from_template(
    env_id: str, actions: str, algorithm: str | None = None, changes: dict[str, Any] | None = None
) -> Scenario:
    """Return the scenario for an environment with ``actions`` (``"discrete"`` or ``"box"``).

    ``changes`` are dotted keys as for ``overridden``. Raises UserError when the algorithm does not take such actions
    or a change is wrong.
    """
    path = shipped("scenarios") / "templates" / f"{actions}.toml"
    data = read_toml(path)
    instead = data.pop("instead")
    chosen = algorithm or DEFAULT_ALGORITHM
    if chosen not in (DEFAULT_ALGORITHM, *instead):
        able = ", ".join([DEFAULT_ALGORITHM, *instead])
        raise UserError(f"--algorithm {chosen}: {env_id} has {actions} actions, which are for {able}")
    data |= instead.get(chosen, {})
    data["name"] = f"{scenario_slug(env_id)}-{chosen}"
    data["description"] = f"{chosen.upper()} on {env_id}"
    data["environment"] = {"id": env_id}
    scenario = validated(Scenario, data, str(path))
    return overridden(scenario, changes, f"--set on {env_id}") if changes else scenario


def scenario_slug(env_id: str) -> str:
    """Return the id without its module, in lower case with hyphens: ``"ale-pong-v5"`` for ``"ale_py:ALE/Pong-v5"``."""
    name = env_id.rpartition(":")[2]
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "environment"


def environment_kwargs(changes: dict[str, Any]) -> dict[str, Any]:
    """Return the environment's keyword arguments that ``changes`` set; raises UserError when they change its id."""
    if "environment.id" in changes:
        raise UserError("--set environment.id: the environment is named by --env, leave this setting out")
    kwargs: dict[str, Any] = {}
    for key, value in changes.items():
        if key == _KWARGS:
            if not isinstance(value, dict):
                raise UserError(f"--set {key}: must be a table, e.g. --set {_KWARGS}.size=5")
            kwargs |= value
        elif key.startswith(f"{_KWARGS}."):
            kwargs[key.removeprefix(f"{_KWARGS}.")] = value
    return kwargs
