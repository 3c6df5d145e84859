"""The page of figures: `results/figures.md` and `results/ratios.svg`, from the JSON files that `--save` wrote.

python -m benchmarks.floor.page
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

RESULTS = Path(__file__).with_name("results")
SHOWN = {"wall": "time", "cpu": "CPU time", "peak": "peak memory"}
"""Figures of the plot, and their names."""
UNITS = {"wall": "s", "cpu": "s", "background": "s", "peak": "MB"}
Figures: TypeAlias = Mapping[str, float]
Repetition: TypeAlias = Mapping[str, Figures]
"""The figures of each way."""


def ratios(repetitions: Sequence[Repetition], way: str, figure: str) -> list[float]:
    """A way's figure relative to the floor of the same repetition, for each of them."""
    of_floor = "cpu" if figure == "background" else figure
    return [repetition[way][figure] / repetition["floor"][of_floor] for repetition in repetitions]


def table(case: str, state: str, repetitions: Sequence[Repetition]) -> list[str]:
    """The figures of a case as Markdown: the medians, and the ratios with the smallest and the largest one."""
    ways = list(repetitions[0])
    lines = [f"## {case}", "", f"{len(repetitions)} repetitions, {state}.", ""]
    lines += [f"| | {' | '.join(ways)} |", f"|---{'|---' * len(ways)}|"]
    for figure, unit in UNITS.items():
        cells = []
        for way in ways:
            median = statistics.median(repetition[way][figure] for repetition in repetitions)
            several = ratios(repetitions, way, figure)
            spread = f"{statistics.median(several):.2f} x ({min(several):.2f} to {max(several):.2f})"
            digits = 0 if unit == "MB" else 2
            cells.append(f"{median:.{digits}f} {unit}" if way == "floor" else f"{median:.{digits}f} {unit}, {spread}")
        lines.append(f"| {figure} | {' | '.join(cells)} |")
    return [*lines, ""]


def draw(cases: Mapping[str, Sequence[Repetition]], path: Path) -> None:
    """Draw the ratios of all ways to the floor: one panel for each figure, one row for each way and case."""
    import altair as alt

    panels = []
    for figure, name in SHOWN.items():
        rows = []
        for case, repetitions in cases.items():
            for way in repetitions[0]:
                several = ratios(repetitions, way, figure)
                spread = {"median": statistics.median(several), "low": min(several), "high": max(several)}
                rows.append({"case": case, "way": way, **spread})
        base = alt.Chart(alt.Data(values=rows)).encode(
            y=alt.Y("way:N", sort=None, title=None),
            yOffset=alt.YOffset("case:N", sort=None),
            color=alt.Color("case:N", sort=None, title="model"),
        )
        axis = alt.Axis(values=[0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5], format="~g")
        scale = alt.Scale(type="log")
        dots = base.mark_point(filled=True, size=40).encode(
            x=alt.X("median:Q", scale=scale, axis=axis, title="times the floor")
        )
        ranges = base.mark_rule().encode(x=alt.X("low:Q", scale=scale), x2="high:Q")
        panels.append(alt.layer(ranges, dots).properties(title=name, width=260, height=alt.Step(11)))
    alt.hconcat(*panels).save(path)


def main() -> None:
    """Write the page of all cases that were measured."""
    cases: dict[str, list[Repetition]] = {}
    lines = ["# Figures of autoopt against the floor", "", "![Ratios to the floor](ratios.svg)", ""]
    for path in sorted(RESULTS.glob("*.json"), key=lambda path: path.stat().st_mtime):
        document = json.loads(path.read_text())
        cases[path.stem] = document["repetitions"]
        lines += table(path.stem, document["state"], document["repetitions"])
        lines += [f"{note}\n" for note in document["notes"]]
    draw(cases, RESULTS / "ratios.svg")
    (RESULTS / "figures.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
