"""Draws the tables of README.md beside it from the results.

python benchmarks/measurement/table.py [results/results.json]
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
MARK = "<!-- results: drawn by table.py -->"
LOADS = ("as it is", "one core loaded")


def main() -> None:
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "results/results.json"
    found: dict[str, dict[str, Any]] = json.loads(file.read_text())
    page = HERE / "README.md"
    kept = page.read_text().split(MARK)[0].rstrip()
    page.write_text(f"{kept}\n\n{MARK}\n\n{_summary(found)}\n\n{_table(found)}\n")


def _summary(found: dict[str, dict[str, Any]]) -> str:
    models = list(found.values())
    lines = ["| what | found |", "|---|---|"]
    for load in LOADS:
        inside, of = (sum(m["again"][load][k] for m in models) for k in ("inside", "of"))
        good = sum(m["again"][load]["inside"] >= 0.9 * m["again"][load]["of"] for m in models)
        lines.append(
            f"| ratio of the chosen one inside its reported interval, {load} | {inside} of {of} processes; at least 9 "
            f"of 10 in {good} of {len(models)} models |"
        )
    lines.append(f"| order of the top three kept | {sum(m['ranking']['kept'] for m in models)} of {len(models)} |")
    share = sum(m["repeats"]["staged"] for m in models) / sum(m["repeats"]["fixed"] for m in models)
    same = sum(m["best"] == m["best_fixed"] for m in models)
    near = sum(_as_good(m) for m in models)
    lines.append(
        f"| staged protocol | {100 * share:.0f} % of the repeats of the fixed one; same choice in {same} of "
        f"{len(models)} models, or one whose interval touches that of the fixed choice in {near} |"
    )
    deviations = [m["same"]["deviation"] for m in models]
    covered, of = (sum(m["same"][k] for m in models) for k in ("covered", "of"))
    lines.append(
        f"| a model against its copy | off by {100 * statistics.median(deviations):.2f} % (median; worst model "
        f"{100 * max(deviations):.2f} %); interval covers 1 in {covered} of {of} |"
    )
    agreed = sum(m["loop"]["inside"] for m in models)
    lines.append(f"| plain loop inside the reported interval | {agreed} of {len(models)} |")
    return "\n".join(lines)


def _as_good(model: dict[str, Any]) -> bool:
    fixed = {n: c["fixed"] for n, c in model["candidates"].items()}
    ours, theirs = fixed[model["best"]], fixed[model["best_fixed"]]
    return bool(ours["low"] <= theirs["high"])


def _table(found: dict[str, dict[str, Any]]) -> str:
    head = (
        "model",
        "chosen",
        "reported ratio",
        "inside",
        "loaded",
        "order",
        "staged / fixed repeats",
        "copy off by",
        "covers 1",
        "plain loop",
    )
    rows = [_row(name, model) for name, model in found.items()]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *rows))


def _row(name: str, model: dict[str, Any]) -> list[str]:
    reported, again, same = model["reported"][model["best"]], model["again"], model["same"]
    return [
        name,
        model["best"],
        f"{reported['value']:.3f} ({reported['low']:.3f}..{reported['high']:.3f})",
        *(f"{again[load]['inside']}/{again[load]['of']}" for load in LOADS),
        "kept" if model["ranking"]["kept"] else "changed",
        f"{model['repeats']['staged']} / {model['repeats']['fixed']}",
        f"{100 * same['deviation']:.2f} %",
        f"{same['covered']}/{same['of']}",
        f"{model['loop']['ratio']:.3f} {'inside' if model['loop']['inside'] else 'outside'}",
    ]


if __name__ == "__main__":
    main()
