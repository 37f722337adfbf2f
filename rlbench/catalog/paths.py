"""Where the adapters and scenarios that ship with rlbench lie: inside the wheel, or in the checkout."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]


def shipped(kind: str) -> Path:
    """Return the folder of the shipped ``"adapters"`` or ``"scenarios"``."""
    packaged = PACKAGE / "_data" / kind
    return packaged if packaged.is_dir() else PACKAGE.parent / kind
