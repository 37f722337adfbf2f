"""What a run compares, as kept in its ``run.json``."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from rlbench import __version__
from rlbench.catalog.scenario import Scenario
from rlbench.errors import UserError
from rlbench.provision.package import Package
from rlbench.store.schema import SCHEMA_VERSION


@dataclass(frozen=True)
class RunSpec:
    """What a run compares; stored in its ``run.json`` so that it can be resumed anywhere the files are."""

    run_id: str
    libraries: list[str]
    scenarios: list[Scenario]
    seeds: list[int]
    adapters: list[str]
    package: Package | None = None  # the user's, that goes on top of every library's environment

    def save(self, run: Path) -> None:
        """Write ``run.json`` atomically; raises UserError when ``run`` cannot be written."""
        content = {
            "run_id": self.run_id,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "rlbench_version": __version__,
            "schema": SCHEMA_VERSION,
            "libraries": self.libraries,
            "scenarios": [scenario.model_dump(mode="json") for scenario in self.scenarios],
            "seeds": self.seeds,
            "adapters": self.adapters,
            "env_package": asdict(self.package) if self.package else None,
        }
        temporary = run / ".run.json.tmp"
        try:
            run.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps(content, indent=1))
            os.replace(temporary, run / "run.json")
        except OSError as error:
            raise UserError(
                f"{run}: cannot be written ({error.strerror}); name another folder with --results"
            ) from None

    @staticmethod
    def load(run: Path) -> RunSpec:
        """Read ``run.json``; raises UserError when it is damaged."""
        try:
            content = json.loads((run / "run.json").read_text())
            return RunSpec(
                content["run_id"],
                content["libraries"],
                [Scenario.model_validate(each) for each in content["scenarios"]],
                content["seeds"],
                content["adapters"],
                Package(**content["env_package"]) if content.get("env_package") else None,
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{run / 'run.json'}: cannot be read back ({error}); start a new run") from None
