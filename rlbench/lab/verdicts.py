"""The three verdicts, and how an interval decides between them."""

from __future__ import annotations

from rlbench.lab.statistics import Estimate

HOLDS = "holds here"
FAILS = "does not hold here"
UNTESTED = "cannot be tested here"

Verdict = tuple[str, str]


def at_least(found: Estimate | None, bound: float) -> str:
    """Return the verdict on "the figure is at least ``bound``".

    The whole interval has to lie on one side; otherwise this machine and these repeats cannot tell.
    """
    if found is None:
        return UNTESTED
    return HOLDS if found.low >= bound else FAILS if found.high < bound else UNTESTED


def all_hold(parts: list[str]) -> str:
    """Return the verdict on a claim made of parts: one that fails fails it, one that is undecided leaves it so."""
    return FAILS if FAILS in parts else UNTESTED if UNTESTED in parts else HOLDS
