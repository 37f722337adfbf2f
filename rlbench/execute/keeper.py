"""Ends guests that outlive the harness, which cannot do so itself when it is killed outright.

``python -m rlbench.execute.keeper`` reads the marks of guests, one a line, until the harness at the other end of the
pipe is gone; then it ends every process that carries one of them. After an orderly end there is none.
"""

from __future__ import annotations

import subprocess
import sys

from rlbench.execute.processes import end_family

_keeper: subprocess.Popen[bytes] | None = None


def keep(mark: str) -> None:
    """Have the processes that carry ``mark`` ended with this one, however it ends."""
    global _keeper
    if _keeper is None or _keeper.poll() is not None:
        _keeper = subprocess.Popen(
            # -P: what is in the user's folder must not stand in for a module.
            [sys.executable, "-P", "-m", "rlbench.execute.keeper"],
            stdin=subprocess.PIPE,
            # Whoever reads the harness's output must not wait for the keeper.
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # Ctrl-C and a closed terminal are for the harness.
            process_group=0,
            cwd="/",
        )
    assert _keeper.stdin is not None
    _keeper.stdin.write(f"{mark}\n".encode())
    _keeper.stdin.flush()


def main() -> None:
    """Wait for the harness's end, then end what is left of its guests."""
    for mark in sys.stdin.read().split():
        end_family(None, mark)


if __name__ == "__main__":
    main()
