"""Runs a few functions at the same time, each in a forked process."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable, Sequence
from typing import Any


def together(functions: Sequence[Callable[[], Any]]) -> list[Any]:
    """Return what each function returns (it has to pickle).

    Raises RuntimeError with the traceback of one that failed.
    """
    context = multiprocessing.get_context("fork")
    started = []
    for function in functions:
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_call, args=(function, sender))
        process.start()
        sender.close()
        started.append((process, receiver))
    results = []
    for process, receiver in started:
        try:
            fault, value = receiver.recv()
        except EOFError:
            process.join()
            fault, value = f"a process ended with exit code {process.exitcode}", None
        process.join()
        if fault:
            for other, _ in started:
                other.terminate()
            raise RuntimeError(fault)
        results.append(value)
    return results


def _call(function: Callable[[], Any], sender: Any) -> None:
    try:
        sender.send((None, function()))
    except BaseException:
        sender.send((traceback.format_exc(), None))
        raise
