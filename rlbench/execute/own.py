"""Environments of the user's own: a guest is asked for the action space, which decides the scenario's template."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlbench.catalog.library import Library
from rlbench.catalog.scenario import Scenario
from rlbench.catalog.template import environment_kwargs, scenario_from_template
from rlbench.errors import Unavailable, UserError
from rlbench.execute.guest import guest_code
from rlbench.execute.preflight import found_environment
from rlbench.provision.build import environments
from rlbench.provision.layer import with_layers
from rlbench.provision.package import Package


def own_scenario(
    env_id: str,
    package: Package | None,
    algorithm: str | None,
    changes: dict[str, Any],
    libraries: list[Library],
    jobs: int,
    say: Callable[[str], None],
) -> Scenario:
    """Return the scenario that runs ``env_id`` of ``package``, with ``changes`` (dotted keys) over its template.

    Builds the libraries' environments and layers that are not cached. The first library that knows the environment
    answers; raises UserError when none does, when it is of a kind that cannot be run, or when a change is wrong.
    """
    kwargs = environment_kwargs(changes)
    # Before anything is built: a mistake in the settings shows with any template.
    scenario_from_template(env_id, "box" if algorithm == "sac" else "discrete", algorithm, changes)
    named = {library.name: library for library in libraries}
    built, layers = with_layers(environments(named.values(), jobs=jobs, report=say), package, say)
    reasons: list[str] = []
    with tempfile.TemporaryDirectory(prefix="rlbench-env-") as temporary:
        code = guest_code(Path(temporary) / "guest")
        for name, guest in built.items():
            if isinstance(guest, Unavailable):
                reasons.append(str(guest))
                continue
            answer = found_environment(guest.python, code, env_id, kwargs, named[name], layers.get(name))
            if "error" not in answer:
                return scenario_from_template(answer["id"], answer["actions"], algorithm, changes)
            if answer.get("unfit"):
                raise UserError(answer["error"])
            reasons.insert(0, answer["error"])
    raise UserError(reasons[0])
