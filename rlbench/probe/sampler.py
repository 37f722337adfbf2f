"""Where the guest's main thread spends its processor time, by owner: adapter, probe, environment or library.

A timer of processor time interrupts the main thread at random moments, ten times a second, and its stack is looked at.
It needs no code in what it watches, and no thread: the C library and PyTorch do without locks and atomic counters as
long as a process has only one, and a second would cost the library several percent.
"""

import os
import random
import signal
import time

INTERVAL_S = 0.1
# Environments that lie beside the probe and are no part of it.
_ENVIRONMENTS = (os.sep + "costly.py", os.sep + "tokens.py")

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
    """Books the main thread's processor time to owners between ``start`` and ``stop``, both called by it.

    ``adapter`` is the adapter's file. An innermost frame in its folder or in the probe is theirs, so is what they call
    outside the library (numpy, say); what the env tap calls is the environment's; all else is the library's. What was
    used since the last look is booked at each look, so that a long compiled call, which can be looked at only when it
    returns, has its whole time.
    """

    def __init__(self, adapter, import_name):
        self._adapter = os.path.dirname(os.path.abspath(adapter)) + os.sep
        self._probe = os.path.dirname(os.path.abspath(__file__)) + os.sep
        self._library = os.sep + import_name + os.sep
        # Our own contestant is not in its environment but beside this package.
        self._pipeline = os.path.join(os.path.dirname(os.path.dirname(self._probe)), "pipeline") + os.sep
        self.seconds = {"adapter": 0.0, "probe": 0.0, "env": 0.0, "library": 0.0}
        self.looks = 0
        self._stopped = False

    def start(self):
        """Begin sampling."""
        signal.signal(signal.SIGPROF, self._look)
        # System calls that the signal interrupts go on by themselves.
        signal.siginterrupt(signal.SIGPROF, False)
        self._booked = time.thread_time()
        self._arm()

    def stop(self):
        """End sampling and return ``{"seconds": seconds by owner, "looks": how often the stack was looked at}``."""
        # The handler stays: without one, a signal that is still on its way to some thread would end the process.
        self._stopped = True
        signal.setitimer(signal.ITIMER_PROF, 0)
        return {"seconds": self.seconds, "looks": self.looks}

    def owner(self, frame):
        """Return the owner of a stack whose innermost frame is ``frame``."""
        innermost = frame
        while frame is not None:
            path = frame.f_code.co_filename
            if frame.f_code in _library_code:
                return "library"
            if path.startswith(self._probe) and not path.endswith(_ENVIRONMENTS):
                # What the env tap calls is the environment; the tap itself is at work only when innermost.
                stepping = path.endswith(os.sep + "env.py") and frame.f_code.co_name in ("step", "reset")
                return "env" if stepping and frame is not innermost else "probe"
            if path.startswith(self._adapter):
                return "adapter"
            if self._library in path or path.startswith(("<", self._pipeline)):
                return "library"
            frame = frame.f_back
        return "library"

    def _look(self, number, frame):
        if self._stopped:
            return
        now = time.thread_time()
        self.seconds[self.owner(frame)] += now - self._booked
        self._booked = now
        self.looks += 1
        self._arm()

    def _arm(self):
        # Zero would switch the timer off.
        signal.setitimer(signal.ITIMER_PROF, max(1e-4, random.expovariate(1 / INTERVAL_S)))
