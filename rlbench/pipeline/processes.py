"""Processes of a run: how they start, how a dead one is told, how they end."""

import contextlib
import ctypes
import multiprocessing
import signal
import traceback
from multiprocessing import connection

import torch

_PR_SET_PDEATHSIG = 1
_END_S = 5.0


class PipelineError(RuntimeError):
    """A run cannot go on; the message names the process and what became of it."""


class Crew:
    """The processes of a run, by name: "actor 0", ..., "learner 0", ...; ``board`` tells their last words."""

    def __init__(self, board, start_method):
        self._context = multiprocessing.get_context(start_method)
        self._board = board
        self._processes = {}
        self._dead = set()

    def start(self, name, target, *arguments):
        """Start ``target(*arguments)`` as process ``name``; names are numbered in the order of the board's rows."""
        row = len(self._processes)
        process = self._context.Process(
            target=_run, args=(self._board, row, torch.get_num_threads(), target, arguments), name=name, daemon=True
        )
        process.start()
        self._processes[name] = process

    def pid(self, name):
        """Process id of process ``name``."""
        return self._processes[name].pid

    def running(self, kind):
        """Names of the processes of a ``kind`` ("actor", "learner") that run."""
        return [n for n, p in self._processes.items() if n.startswith(kind + " ") and p.exitcode is None]

    def wait(self, timeout):
        """Wait until a process ends, at most ``timeout`` seconds; return ``[(name, sentence)]`` of the newly dead.

        Dead is what ended with another exit code than 0. At once when nothing runs.
        """
        sentinels = [p.sentinel for p in self._processes.values() if p.exitcode is None]
        if sentinels:
            connection.wait(sentinels, timeout)
        dead = [n for n, p in self._processes.items() if p.exitcode not in (None, 0) and n not in self._dead]
        self._dead.update(dead)
        return [(name, self._obituary(name)) for name in dead]

    def end(self):
        """Wait a little for all to end by themselves, then end them by force."""
        for process in self._processes.values():
            process.join(_END_S)
        for process in self._processes.values():
            if process.exitcode is None:
                process.kill()
                process.join()

    def kill(self):
        """End all by force."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.join()

    def _obituary(self, name):
        process = self._processes[name]
        code = process.exitcode
        row = list(self._processes).index(name)
        if code < 0:
            how = "was killed by %s" % signal.Signals(-code).name
        else:
            how = "failed: %s" % (self._board.complaint(row) or "exit code %d" % code)
        return "%s (process %d) %s" % (name, process.pid, how)


def _run(board, row, threads, target, arguments):
    """The beginning and the end of every process of a run."""
    # A trainer that is killed outright cannot end its children; the kernel does it.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # Ctrl-C goes to the whole group: the trainer ends its children in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(threads)
    try:
        target(*arguments)
    except Exception as error:
        board.complain(row, "%s: %s" % (type(error).__name__, error))
        with contextlib.suppress(BrokenPipeError):
            traceback.print_exc()
        raise SystemExit(1) from None
