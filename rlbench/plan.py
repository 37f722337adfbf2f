"""Libraries x scenarios x seeds become a list of trials, interleaved so that drift hits all libraries alike."""

from __future__ import annotations

from dataclasses import dataclass

from rlbench.catalog.library import Library
from rlbench.catalog.scenario import Scenario


@dataclass(frozen=True)
class Trial:
    """One library, one scenario with its topology, one seed; ``order`` is its position in the plan."""

    library: str
    scenario: Scenario
    seed: int
    order: int

    @property
    def id(self) -> str:
        """Unique within a run, and usable as a file name."""
        topology = self.scenario.topology
        where = "" if topology.mode == "sync" else f"-{topology.mode}{topology.workers}"
        return f"{self.scenario.name}{where}-{self.library.replace(':', '+')}-s{self.seed}"


def plan(libraries: list[Library], scenarios: list[Scenario], seeds: list[int]) -> list[Trial]:
    """Return the trials in the order in which they run: per seed and scenario, every library once (A B C A B C).

    The first library differs from seed to seed, so that none always runs first.
    """
    trials: list[Trial] = []
    for turn, seed in enumerate(seeds):
        shift = turn % len(libraries)
        for scenario in scenarios:
            for library in libraries[shift:] + libraries[:shift]:
                trials.append(Trial(library.label, scenario, seed, len(trials)))
    return trials


def cannot(library: Library, scenario: Scenario) -> str | None:
    """Return why the library's declared capabilities rule the scenario out, or None."""
    able, topology = library.capabilities, scenario.topology
    if scenario.algorithm.name not in able.algorithms:
        return f"{library.title} has no {scenario.algorithm.name.upper()} (it has {', '.join(able.algorithms)})"
    if topology.mode not in able.modes:
        return f"{library.title} has no mode '{topology.mode}' (it has {', '.join(able.modes)})"
    if topology.device not in able.devices:
        return f"{library.title} does not run on '{topology.device}' (it runs on {', '.join(able.devices)})"
    if able.max_envs is not None and topology.n_envs > able.max_envs:
        return f"{library.title} steps at most {able.max_envs} environment(s), the scenario asks {topology.n_envs}"
    return None
