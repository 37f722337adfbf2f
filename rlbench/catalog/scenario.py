"""Scenarios: ``scenarios/*.toml`` as a validated model. Names are the field's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator

from rlbench.catalog.paths import shipped
from rlbench.catalog.toml import read_toml, validated
from rlbench.errors import UserError, nearest

Share = Annotated[float, Field(ge=0, le=1)]
NonNegative = Annotated[float, Field(ge=0)]

# A stamp has 8 bits for the environment's index in observations of fewer than six elements.
MAX_ENVS = 255


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Environment(_Table):
    """Which Gymnasium environment; ``module:Name-v0`` imports the module first."""

    id: str = Field(min_length=1)
    kwargs: dict[str, Any] = Field(default_factory=dict)


class PPO(_Table):
    """Proximal policy optimisation (Schulman et al. 2017, arXiv:1707.06347)."""

    name: Literal["ppo"]
    learning_rate: PositiveFloat = 3e-4
    gamma: Share = 0.99
    gae_lambda: Share = 0.95
    clip_range: PositiveFloat = 0.2
    n_steps: PositiveInt = Field(128, description="rollout length per environment")
    batch_size: PositiveInt = Field(128, description="minibatch size")
    n_epochs: PositiveInt = 4
    ent_coef: NonNegative = 0.0
    vf_coef: NonNegative = 0.5
    max_grad_norm: PositiveFloat = 0.5
    normalize_advantage: bool = True


class A2C(_Table):
    """Synchronous advantage actor-critic (Mnih et al. 2016, arXiv:1602.01783)."""

    name: Literal["a2c"]
    learning_rate: PositiveFloat = 7e-4
    gamma: Share = 0.99
    gae_lambda: Share = 1.0
    n_steps: PositiveInt = 5
    ent_coef: NonNegative = 0.0
    vf_coef: NonNegative = 0.5
    max_grad_norm: PositiveFloat = 0.5


class DQN(_Table):
    """Deep Q-network (Mnih et al. 2015, doi:10.1038/nature14236)."""

    name: Literal["dqn"]
    learning_rate: PositiveFloat = 1e-3
    gamma: Share = 0.99
    buffer_size: PositiveInt = 10_000
    batch_size: PositiveInt = 64
    learning_starts: PositiveInt = 1000
    train_freq: PositiveInt = Field(4, description="env steps between updates")
    gradient_steps: PositiveInt = 1
    target_update_interval: PositiveInt = Field(500, description="env steps between target network copies")
    exploration_fraction: Share = 0.5
    exploration_final_eps: Share = 0.05


class SAC(_Table):
    """Soft actor-critic (Haarnoja et al. 2018, arXiv:1801.01290)."""

    name: Literal["sac"]
    learning_rate: PositiveFloat = 1e-3
    gamma: Share = 0.99
    buffer_size: PositiveInt = 50_000
    batch_size: PositiveInt = 256
    learning_starts: PositiveInt = 1000
    train_freq: PositiveInt = 1
    gradient_steps: PositiveInt = 1
    tau: Share = 0.005


class Network(_Table):
    """Hidden layers of the policy; the critic has the same, with weights of its own."""

    net_arch: list[PositiveInt] = Field(default=[64, 64], min_length=1)
    activation: Literal["tanh", "relu"] = "tanh"


class Topology(_Table):
    """Where environments step and what computes."""

    mode: Literal["sync", "workers", "async"] = "sync"
    n_envs: Annotated[int, Field(ge=1, le=MAX_ENVS)] = 4
    workers: Annotated[int, Field(ge=0, le=MAX_ENVS)] = 0
    threads: PositiveInt = Field(1, description="threads per process")
    device: Literal["cpu", "cuda"] = "cpu"

    @model_validator(mode="after")
    def _mode_fits_workers(self) -> Topology:
        if self.mode == "sync" and self.workers:
            raise ValueError("mode 'sync' steps in-process: workers must be 0 (or use mode 'workers' or 'async')")
        if self.mode != "sync" and not self.workers:
            raise ValueError(f"mode '{self.mode}' needs workers >= 1")
        return self


class Budget(_Table):
    """When training ends: after ``env_steps`` environment steps, or earlier after ``seconds`` of training."""

    env_steps: PositiveInt
    seconds: PositiveFloat | None = None


class Learning(_Table):
    """When a library counts as having learned."""

    return_threshold: float | None = None
    window: PositiveInt = Field(20, description="episodes that the running mean is taken over")


class Staleness(_Table):
    """Lag above this many policy versions counts as stale."""

    threshold: Annotated[int, Field(ge=0)] = 8


class Limits(_Table):
    """When the harness ends a guest by force."""

    wall_s: PositiveFloat = 1800.0
    stall_s: PositiveFloat = Field(120.0, description="no environment step and no update for this long")
    memory_mb: PositiveFloat | None = None


class Scenario(_Table):
    """What is run, identically for every library."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")]
    description: str = ""
    libraries: list[str] = Field(default_factory=list, description="compared when none is named on the command line")
    seeds: PositiveInt = Field(3, description="seeds when none is given on the command line")
    environment: Environment
    algorithm: Annotated[PPO | A2C | DQN | SAC, Field(discriminator="name")]
    network: Network = Network()
    topology: Topology = Topology()
    budget: Budget
    learning: Learning = Learning()
    staleness: Staleness = Staleness()
    limits: Limits = Limits()

    @model_validator(mode="after")
    def _parts_fit(self) -> Scenario:
        a, n_envs = self.algorithm, self.topology.n_envs
        if isinstance(a, PPO):
            rollout = a.n_steps * n_envs
            if rollout % a.batch_size:
                raise ValueError(
                    f"algorithm.batch_size {a.batch_size} does not divide the rollout of "
                    f"n_steps x n_envs = {a.n_steps} x {n_envs} = {rollout} samples"
                )
        if isinstance(a, PPO | A2C) and self.budget.env_steps < a.n_steps * n_envs:
            raise ValueError(
                f"budget.env_steps {self.budget.env_steps} is less than one rollout of "
                f"n_steps x n_envs = {a.n_steps * n_envs}"
            )
        if isinstance(a, DQN | SAC) and self.budget.env_steps <= a.learning_starts:
            raise ValueError(
                f"budget.env_steps {self.budget.env_steps} must exceed algorithm.learning_starts {a.learning_starts}"
            )
        return self


def load_scenario(name: str) -> Scenario:
    """Return the shipped scenario ``name``, or the one in the file ``name`` when it ends in ``.toml``."""
    if name.endswith(".toml"):
        path = Path(name)
    else:
        path = shipped("scenarios") / f"{name}.toml"
        known = scenario_names()
        if name not in known:
            raise UserError(
                f"unknown scenario '{name}'{nearest(name, known)} (known: {', '.join(known)}; "
                "a file of your own must end in .toml)"
            )
    return validated(Scenario, read_toml(path), str(path))


def scenario_names() -> list[str]:
    """Names of the shipped scenarios."""
    return sorted(path.stem for path in shipped("scenarios").glob("*.toml"))


def overridden(scenario: Scenario, changes: dict[str, Any], origin: str) -> Scenario:
    """Return the scenario with dotted keys replaced, validated again.

    ``changes`` maps e.g. ``"budget.env_steps"`` to a value; unknown keys and wrong values raise UserError.
    """
    data = scenario.model_dump()
    for dotted, value in changes.items():
        table = data
        *parents, last = dotted.split(".")
        for part in parents:
            inner = table.get(part)
            if not isinstance(inner, dict):
                raise UserError(f"{origin}: unknown key '{dotted}'{nearest(part, table)}")
            table = inner
        table[last] = value
    return validated(Scenario, data, origin)
