"""Finds an environment of the user's own and says whether libraries can be compared on it."""

import importlib.metadata

import gymnasium
import numpy as np

from rlbench.probe.env import make_plain, stamped_space


class Unfit(ValueError):
    """The environment is there, but not of a kind that the harness can run; one sentence."""


def find_environment(env_id, kwargs, distribution=None):
    """Return ``(id, actions)``: the id under which the environment can be made, and ``"discrete"`` or ``"box"``.

    An id that is not registered is looked for in the top-level modules of ``distribution``, which may register it when
    they are imported; the id returned then names the module. Raises ValueError when it cannot be made, and Unfit.
    """
    try:
        env = make_plain(env_id, kwargs)
    except ValueError as error:
        if distribution is None or ":" in env_id or not isinstance(error.__cause__, gymnasium.error.UnregisteredEnv):
            raise
        env_id, env = _made_by(distribution, env_id, kwargs, error)
    try:
        return env_id, _kind(env_id, env)
    finally:
        env.close()


def _made_by(distribution, env_id, kwargs, error):
    """Return ``module:id`` and the environment, with the first module of the distribution that registers the id."""
    modules = top_level_modules(distribution)
    for module in modules:
        named = "%s:%s" % (module, env_id)
        try:
            return named, make_plain(named, kwargs)
        except ValueError as trouble:
            if not isinstance(trouble.__cause__, gymnasium.error.UnregisteredEnv):
                raise
    where = "module %s" % " and ".join(modules) if modules else "it (it has no modules)"
    raise ValueError(
        "%s; package %s does not register it when %s is imported; an id may name its module, as in module:%s"
        % (str(error).rstrip("."), distribution, where, env_id)
    ) from error


def top_level_modules(distribution):
    """Return the names of the modules and packages that an installed distribution has at top level, sorted."""
    found = set()
    for file in importlib.metadata.distribution(distribution).files or []:
        first = file.parts[0]
        name = first[:-3] if len(file.parts) == 1 and first.endswith(".py") else first
        if file.suffix == ".py" and name.isidentifier() and not name.startswith("_"):
            found.add(name)
    return sorted(found)


def _kind(env_id, env):
    try:
        layout = stamped_space(env.observation_space)[0]
    except ValueError as error:
        raise Unfit("environment '%s': %s" % (env_id, error)) from error
    if layout == "pixel":
        raise Unfit("environment '%s' observes images; environments of your own need float vectors" % env_id)
    space = env.action_space
    if isinstance(space, gymnasium.spaces.Discrete):
        if getattr(space, "start", 0) != 0:
            raise Unfit("environment '%s': actions %s must be numbered from 0" % (env_id, space))
        return "discrete"
    if isinstance(space, gymnasium.spaces.Box) and len(space.shape) == 1 and np.dtype(space.dtype).kind == "f":
        return "box"
    raise Unfit("environment '%s': action space %s is neither Discrete nor a float vector Box" % (env_id, space))
