"""Shows a run while it goes on: live bars on a terminal, plain lines elsewhere. Everything goes to stderr."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

_LINE_EVERY_S = 10.0


class RunProgress:
    """Progress of a run: trial i of n, library, steps so far, steps/s, time left. Use as a context manager."""

    def __init__(self, trials: int, done: int = 0) -> None:
        self.console = Console(stderr=True)
        self.live = self.console.is_terminal
        self._trials, self._done = trials, done
        self._started = time.monotonic()
        self._spent: list[float] = []
        self._bars = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[detail]}"),
            TimeElapsedColumn(),
            console=self.console,
            disable=not self.live,
            transient=True,
        )
        self._run: TaskID | None = None
        self._trial: TaskID | None = None
        self._budget, self._label, self._begun, self._last, self._last_line = 0, "", 0.0, (0.0, 0), 0.0

    def __enter__(self) -> RunProgress:
        self._bars.start()
        self._run = self._bars.add_task("run", total=self._trials, completed=self._done, detail="")
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._bars.stop()

    def say(self, message: str) -> None:
        """Print one line."""
        self.console.print(escape(message), highlight=False, soft_wrap=True)

    def begin(self, number: int, label: str, budget: int) -> None:
        """A trial begins: its number in the plan (from 1), what it is, its budget in environment steps."""
        self._budget, self._label = budget, label
        self._begun = self._last_line = time.monotonic()
        self._last = (self._begun, 0)
        if self._trial is not None:
            self._bars.remove_task(self._trial)
        self._trial = self._bars.add_task(label, total=budget, detail="starting")
        if not self.live:
            self.say(f"[{number}/{self._trials}] {label}: started")

    def steps(self, steps: int) -> None:
        """The current trial has made ``steps`` environment steps."""
        now = time.monotonic()
        since, before = self._last
        rate = (steps - before) / (now - since) if now > since else 0.0
        self._last = (now, steps)
        detail = f"{rate:,.0f} steps/s" if steps else "starting"
        if steps >= self._budget:
            detail = "finishing: last updates, greedy evaluation"
        if self._trial is not None:
            self._bars.update(self._trial, completed=min(steps, self._budget), detail=detail)
        if self._run is not None:
            self._bars.update(self._run, detail=self._left(steps))
        if not self.live and now - self._last_line >= _LINE_EVERY_S:
            self._last_line = now
            self.say(f"    {self._label}: {steps:,} of {self._budget:,} steps, {detail}{self._left(steps, ', ')}")

    def end(self, number: int, message: str) -> None:
        """The current trial ended."""
        self._spent.append(time.monotonic() - self._begun)
        if self._run is not None:
            self._bars.update(self._run, advance=1)
        self.say(f"[{number}/{self._trials}] {self._label}: {message}")

    def _left(self, steps: int, before: str = "") -> str:
        """Time left, from the mean duration of the trials so far; empty while none has ended."""
        if not self._spent:
            return ""
        mean = sum(self._spent) / len(self._spent)
        remaining = self._trials - self._done - len(self._spent)
        seconds = max(0.0, remaining * mean - (time.monotonic() - self._begun))
        return f"{before}about {int(seconds // 60)} min {seconds % 60:.0f} s left"
