"""Environments that packages register by an entry point of the group ``gymnasium.envs``.

Gymnasium before 1.0 calls them when it is imported and later versions do not; so that an id means the same with both,
they are called when an id is not registered.
"""

import importlib.metadata
import sys
import traceback

from gymnasium.envs import registration

GROUP = "gymnasium.envs"
_called = []


def register():
    """Call the entry points and return True; False when that was done before or there are none.

    One that fails is printed and left out, as Gymnasium did.
    """
    if _called:
        return False
    points = importlib.metadata.entry_points(group=GROUP)
    _called.append(True)
    for point in points:
        try:
            with registration.namespace(None if point.name == "__root__" else point.name):
                target = point.load()
                if callable(target):
                    target()
        except Exception:
            print("environment plugin %s failed:" % (point.value,), file=sys.stderr)
            traceback.print_exc()
    return bool(points)
