"""The lab's page: one HTML file with every verdict, chart and table, nothing loaded from elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from rlbench.lab.catalog import Experiment
from rlbench.lab.rows import Row
from rlbench.lab.statistics import Estimate, mean
from rlbench.lab.store import LAB_SCHEMA_VERSION, Entry, read
from rlbench.present.charts import write_atomically
from rlbench.present.report import THEMED

TABLE_ROWS = 60


class Table(NamedTuple):
    """A table of text: ``heads`` and ``rows``; ``omitted`` rows more are in the Parquet file only."""

    heads: list[str]
    rows: list[list[str]]
    omitted: int


def table(rows: list[Row], x: str) -> Table:
    """Return means with 95 % intervals over repeats: a row per condition and place, a column per metric."""
    metrics = list(dict.fromkeys(row["metric"] for row in rows))
    units = {row["metric"]: row["unit"] for row in rows}
    order = list(dict.fromkeys(row["condition"] for row in rows))
    cells = sorted(
        {(row["condition"], row["at"]) for row in rows},
        key=lambda cell: (order.index(cell[0]), float("-inf") if cell[1] is None else cell[1]),
    )
    swept = any(at is not None for _, at in cells)
    by_cell: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        by_cell.setdefault((row["condition"], row["at"], row["metric"]), []).append(row)
    body = []
    for condition, at in cells[:TABLE_ROWS]:
        place = ["" if at is None else f"{at:,.10g}"] if swept else []
        body.append([condition, *place, *(_cell(by_cell.get((condition, at, metric), [])) for metric in metrics)])
    heads = ["condition", *([x] if swept else []), *(_head(metric, units[metric]) for metric in metrics)]
    return Table(heads, body, max(0, len(cells) - TABLE_ROWS))


def conditions(verdict: Entry, machine: dict[str, Any]) -> str:
    """Return under which conditions a verdict was reached, in one line."""
    sizes = ", ".join(
        f"{name.replace('_', ' ')} {_size(value)}" for name, value in json.loads(verdict["sizes"]).items()
    )
    devices = ", ".join(machine["gpus"]) or "no GPU"
    kind = "quick sizes" if verdict["quick"] else "full sizes"
    return f"{machine['cores_usable']} cores ({machine['cpu']}), {devices}; {kind}: {sizes}"


def headline(verdict: Entry) -> str:
    """Return the verdict as it is shown: a quick one says that it is, a failed experiment why it failed."""
    if verdict["status"] != "ok":
        return "failed"
    return verdict["verdict"] + (" (quick sizes)" if verdict["quick"] else "")


def write_page(folder: Path, experiments: dict[str, Experiment]) -> Path:
    """Write ``folder/lab.html`` from what is stored there and return its path."""
    facts = json.loads((folder / "lab.json").read_text())
    measured: dict[str, list[Row]] = {}
    for row in read(folder, "measurements"):
        measured.setdefault(row["experiment"], []).append(row)
    entries = []
    for verdict in read(folder, "verdicts"):
        name = verdict["experiment"]
        experiment, rows = experiments[name], measured.get(name, [])
        drawing = folder / "charts" / f"{name}.svg"
        entries.append(
            {
                "verdict": verdict,
                "headline": headline(verdict),
                "title": experiment.title,
                "text": " ".join(experiment.text.splitlines()[1:]).strip(),
                "conditions": conditions(verdict, facts["machine"]),
                "versions": ", ".join(f"{key} {value}" for key, value in json.loads(verdict["versions"]).items()),
                "table": table(rows, experiment.chart["x"]) if rows else None,
                "svg": _inline(drawing, experiment.title) if drawing.is_file() else None,
            }
        )
    environment = Environment(
        loader=PackageLoader("rlbench", "lab"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    page = environment.get_template("page.html.j2").render(
        lab=facts, entries=entries, schema_version=LAB_SCHEMA_VERSION
    )
    path = folder / "lab.html"
    write_atomically(path, page.encode())
    return path


def _inline(path: Path, title: str) -> Markup:
    root, body = path.read_text()[path.read_text().index("<svg") :].split(">", 1)
    view = root[root.index('viewBox="') :].split('"')[1]
    for colour, variable in THEMED.items():
        body = body.replace(colour, variable)
    opening = Markup(
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        'viewBox="{}" role="img" aria-label="{}">'
    )
    # matplotlib escapes the texts that it puts into an SVG, so its body is markup as it stands.
    return opening.format(view, title) + Markup(body)


def _cell(rows: list[Row]) -> str:
    values = [row["value"] for row in rows if row["value"] is not None]
    found: Estimate | None = mean(values)
    if found is None:
        return rows[0]["reason"] if rows else "–"
    if found.n > 1 and found.low != found.high:
        return found.text()
    # Counts are exact.
    return f"{found.value:,.0f}" if found.value == round(found.value) else found.text().split(" ")[0]


def _head(metric: str, unit: str) -> str:
    name = metric.replace("_", " ").removesuffix(f" {unit}")
    return f"{name}, {unit}" if unit and unit != name else name


def _size(value: Any) -> str:
    return " / ".join(f"{each:,}" if isinstance(each, int) else str(each) for each in value) if isinstance(
        value, list) else f"{value:,}" if isinstance(value, int) else str(value)  # fmt: skip
