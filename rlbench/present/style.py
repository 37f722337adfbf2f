"""How charts look: one colour per library everywhere, sizes that read at 900 pixels wide."""

from __future__ import annotations

from typing import Any, NamedTuple

# Okabe and Ito's colour-blind-safe palette (jfly.uni-koeln.de/color), its yellow darkened to show on white,
# its black left out because text is black.
PALETTE = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d1f", "#6a51a3"]
DASHES = ["-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2))]
POINTS = ["o", "s", "^", "D"]

# A library keeps its place, and so its colour, whatever else is in the run. One that is not listed here
# gets the first place after these.
PLACES = [
    "sb3", "cleanrl", "tianshou", "sample_factory", "rllib", "torchrl", "skrl", "pufferlib",
    "acme", "dopamine", "tf_agents", "garage", "mushroom_rl", "spinup", "tensorforce", "trl",
    "chainerrl", "coach", "rlgraph",
]  # fmt: skip

# The report replaces these by its own light and dark ones, so nothing else may be drawn in them.
INK, MUTED, GRID, PAPER = "#1f2933", "#616e7c", "#e1e5ea", "#fffffe"

RC: dict[str, Any] = {
    "font.family": "DejaVu Sans", "font.size": 10, "axes.titlesize": 10.5, "axes.titleweight": "bold",
    "axes.titlelocation": "left", "axes.labelsize": 10, "axes.labelcolor": INK, "axes.titlecolor": INK,
    "text.color": INK, "xtick.color": MUTED, "ytick.color": MUTED, "xtick.labelsize": 9, "ytick.labelsize": 9,
    "axes.edgecolor": MUTED, "axes.linewidth": 0.8, "axes.spines.top": False, "axes.spines.right": False,
    "axes.grid": True, "axes.axisbelow": True, "grid.color": GRID, "grid.linewidth": 0.8,
    "figure.facecolor": PAPER, "axes.facecolor": PAPER, "savefig.facecolor": PAPER, "legend.frameon": False,
    "legend.fontsize": 9, "lines.linewidth": 1.8, "svg.fonttype": "none", "figure.dpi": 100,
}  # fmt: skip

WIDTH = 9.0  # inches: 900 pixels at 100 dpi


class Look(NamedTuple):
    """Colour, line and point of one series."""

    colour: str
    dash: Any
    point: str


def looks(libraries: list[str]) -> list[Look]:
    """Return the look of each series; ``libraries`` names the library of each, again for each topology.

    The colour follows the library, also of a ``library:variant``; dash and point tell its variants and its
    topologies apart.
    """
    names = [name.split(":")[0] for name in libraries]
    unlisted = sorted(set(names) - set(PLACES))
    places = {name: place for place, name in enumerate([*PLACES, *unlisted])}
    found = []
    for index, name in enumerate(names):
        nth = names[:index].count(name)
        found.append(Look(_colour(places[name]), DASHES[nth % len(DASHES)], POINTS[nth % len(POINTS)]))
    return found


def _colour(place: int) -> str:
    """The palette, then the same hues darker, then lighter: lightness is seen whatever the colour vision."""
    base = PALETTE[place % len(PALETTE)]
    towards, weight = [(0, 0.0), (0, 0.45), (255, 0.5)][place // len(PALETTE) % 3]
    parts = (int(base[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(part + (towards - part) * weight):02x}" for part in parts)
