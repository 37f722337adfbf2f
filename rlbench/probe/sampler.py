"""Where the guest's main thread spends its time, by owner: adapter, probe, environment or library.

A thread looks at the main thread's stack at random moments, ten times a second: it needs no code in what it watches,
and costs it well under a part in a hundred.
"""

import os
import random
import sys
import threading
import time

INTERVAL_S = 0.1


_library_code = set()


def library_code(function):
    """Count the time in ``function`` as the library's: for the layers of a network that an adapter brings along."""
    _library_code.add(function.__code__)
    return function


@library_code
def library_call(function, *arguments, **named):
    """Call a compiled function of the library from an adapter: it has no frame, and its time is the library's."""
    return function(*arguments, **named)


class OwnerSampler:
    """Counts stack samples by owner between ``start`` and ``stop``.

    ``adapter`` is the adapter's file. An innermost frame in its folder or in the probe is theirs, so is what they call
    outside the library (numpy, say); what the env tap calls is the environment's; all else is the library's.
    """

    def __init__(self, adapter, import_name):
        self._adapter = os.path.dirname(os.path.abspath(adapter)) + os.sep
        self._probe = os.path.dirname(os.path.abspath(__file__)) + os.sep
        self._library = os.sep + import_name + os.sep
        # Our own contestant is not in its environment but beside this package.
        self._pipeline = os.path.join(os.path.dirname(os.path.dirname(self._probe)), "pipeline") + os.sep
        self.counts = {"adapter": 0, "probe": 0, "env": 0, "library": 0}
        self._stopping = threading.Event()
        self._main = threading.main_thread().ident
        self._thread = threading.Thread(target=self._run, daemon=True, name="rlbench-sampler")

    def start(self):
        """Begin sampling."""
        self._thread.start()

    def stop(self):
        """End sampling and return the counts by owner."""
        self._stopping.set()
        self._thread.join()
        return self.counts

    def owner(self, frame):
        """Return the owner of a stack whose innermost frame is ``frame``."""
        innermost = frame
        while frame is not None:
            path = frame.f_code.co_filename
            if frame.f_code in _library_code:
                return "library"
            if path.startswith(self._probe):
                # What the env tap calls is the environment; the tap itself is at work only when innermost.
                stepping = path.endswith(os.sep + "env.py") and frame.f_code.co_name in ("step", "reset")
                return "env" if stepping and frame is not innermost else "probe"
            if path.startswith(self._adapter):
                return "adapter"
            if self._library in path or path.startswith(("<", self._pipeline)):
                return "library"
            frame = frame.f_back
        return "library"

    def _run(self):
        while not self._stopping.is_set():
            time.sleep(random.expovariate(1 / INTERVAL_S))
            frame = sys._current_frames().get(self._main)
            if frame is not None:
                self.counts[self.owner(frame)] += 1
