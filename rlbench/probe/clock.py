"""The one clock of the instrument: CLOCK_MONOTONIC, nanoseconds, shared by all processes of a machine."""

import time

now_ns = time.monotonic_ns
