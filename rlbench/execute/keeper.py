"""Ends guests that outlive the harness, which cannot do so itself when it is killed outright.

``python -m rlbench.execute.keeper`` reads the marks of guests, one a line, until the harness at the other end of the
pipe is gone; then it ends every process that carries one of them, and removes the shared memory that they had mapped
and that was not there before the guest. After an orderly end there is none.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys

from rlbench.execute.processes import Usage, end_family

_keeper: subprocess.Popen[bytes] | None = None


def keep(mark: str) -> None:
    """Have the processes that will carry ``mark`` ended with this one, however it ends."""
    global _keeper
    if _keeper is None or _keeper.poll() is not None:
        _keeper = subprocess.Popen(
            # -P: what is in the user's folder must not stand in for a module.
            [sys.executable, "-P", "-m", "rlbench.execute.keeper"],
            stdin=subprocess.PIPE,
            # Whoever reads the harness's output must not wait for the keeper.
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # Ctrl-C and a closed terminal are for the harness.
            process_group=0,
            cwd="/",
        )
    assert _keeper.stdin is not None
    assert _keeper.stdout is not None
    _keeper.stdin.write(f"{mark}\n".encode())
    _keeper.stdin.flush()
    # It has noted by now what shared memory was there before the guest.
    _keeper.stdout.readline()


def main() -> None:
    """Wait for the harness's end, then end what is left of its guests."""
    guests = []
    for line in sys.stdin:
        guests.append(Usage(None, line.strip()))
        with contextlib.suppress(BrokenPipeError):
            print(flush=True)
    for guest in guests:
        guest.take()
        end_family(None, guest.mark)
        guest.remove_segments()


if __name__ == "__main__":
    main()
