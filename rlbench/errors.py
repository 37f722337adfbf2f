"""Errors that a user can cause and mend: one clear sentence, exit code 2, no traceback."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """What went wrong, which thing it concerns and the way out, in one sentence."""


class Unavailable(Exception):
    """A library cannot run on this machine (no interpreter, no package); the run goes on without it."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the known word closest to ``word``, or an empty string."""
    match = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean '{match[0]}'?" if match else ""
