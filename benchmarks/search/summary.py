"""The figures as Markdown, and what they are held against."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path

from benchmarks.search.report import CAP, LEFT_OUT, MANY, SHOWN, SHUFFLED, Figures

FEWER, WORSE, BATCHES = 2.0, 1.3, 1.3
"""`unified` against per-chain TPE in sequence (at least), against random (at most), batches against it (at most)."""


def rows_in(path: Path, keys: int = 1) -> dict[tuple[str, ...], str]:
    """Read the rows of a table of Markdown by their first cells; none if there is no file."""
    if not path.is_file():
        return {}
    lines = [line for line in path.read_text().splitlines()[2:] if line.startswith("|")]
    return {tuple(cell.strip() for cell in line.split("|")[1 : 1 + keys]): line for line in lines}


def goals(points: int, chains: int) -> tuple[float, float]:
    """Goal of `unified`: median and 90th percentile of evaluations until a good point."""
    return max(10.0, chains / 2, 0.04 * points), max(30.0, float(chains), 0.08 * points)


def markdown(figures: Sequence[Figures]) -> str:
    """The figures as tables: held against the goals, over all tables, one for each table or family."""
    return "\n".join([_held(figures), _over_all(figures), *_each(figures)])


def _held(figures: Sequence[Figures]) -> str:
    by = {(f.table, f.strategy): f for f in figures}
    lines = [
        "### Held against the goals",
        "",
        "`unified`, evaluations until a good point. Batches: median and geometric mean of batches of 4 over those of "
        f"one at a time, at most {BATCHES}. Random: median of `unified` over that of random, at most {WORSE}; on "
        "shuffled tables the same of means.",
        "",
        f"| table | p50 (goal) | p80 | p90 (goal) | not within {MANY} | batches: p50, mean | over random "
        "| over random, shuffled | reached |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [_held_line(f, by) for f in figures if f.strategy == "unified" and not f.shuffled]
    return "\n".join(lines) + "\n"


def _held_line(f: Figures, by: dict[tuple[str, str], Figures]) -> str:
    p50, p90 = goals(f.points, f.chains)
    batches, random = by.get((f.table, "unified, batches of 4")), by.get((f.table, "random"))
    pair = by.get((f.table + SHUFFLED, "unified")), by.get((f.table + SHUFFLED, "random"))
    in_batches = (batches.p50 / f.p50, batches.mean / f.mean) if batches else (math.nan, math.nan)
    over = f.p50 / random.p50 if random else math.nan
    control = pair[0].mean / pair[1].mean if pair[0] and pair[1] else math.nan
    reached = {
        "p50": f.p50 <= p50,
        "p90": f.p90 <= p90,
        "batches": not in_batches[1] > BATCHES,
        "random": not over > WORSE,
        "shuffled": not control > WORSE,
    }
    missed = [name for name, good in reached.items() if not good]
    verdict = "not: " + ", ".join(missed) if missed else "yes"
    return (
        f"| {f.table} | {f.p50:g} ({p50:g}) | {f.p80:g} | {f.p90:g} ({p90:g}) | {f.not_within} of {f.replays} "
        f"| {_ratio(in_batches[0])}, {_ratio(in_batches[1])} | {_ratio(over)} | {_ratio(control)} "
        f"| {verdict} |"
    )


def _ratio(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.2f}"


def _over_all(figures: Sequence[Figures]) -> str:
    """Ratios to `unified` as geometric means over tables; what was given up counts as `CAP`."""
    by = {(f.table, f.strategy): f for f in figures if not f.shuffled}
    tables = [table for table, strategy in by if strategy == "unified"]
    left_out = [table for table in tables if table.startswith(LEFT_OUT)]
    synthetic = [table for table in tables if table.startswith("synthetic")]
    tuned = [table for table in tables if table not in left_out and table not in synthetic]
    lines = [
        "### Over all tables",
        "",
        "How many times fewer evaluations `unified` needs (geometric mean of medians over tables); of per-chain tpe, "
        f"sequential, {FEWER:g} are wanted.",
        "",
        "| compared with | recorded, tuned with | recorded, left out | synthetic | all |",
        "|---|---|---|---|---|",
    ]
    for strategy in dict.fromkeys(f.strategy for f in figures if f.strategy != "unified"):
        sets = (tuned, left_out, synthetic, tables)
        lines.append(f"| {strategy} | " + " | ".join(_fewer(by, names, strategy) for names in sets) + " |")
    return "\n".join(lines) + "\n"


def _fewer(by: dict[tuple[str, str], Figures], tables: Sequence[str], strategy: str) -> str:
    pairs = [(by[t, "unified"].p50, by[t, strategy].p50) for t in tables if (t, strategy) in by]
    if not pairs:
        return ""
    cap = math.inf if strategy in ("random", "unified, batches of 4") else CAP
    return f"{math.exp(statistics.fmean(math.log(min(b, cap) / min(a, cap)) for a, b in pairs)):.2f} x"


def _each(figures: Sequence[Figures]) -> list[str]:
    parts = []
    for name in dict.fromkeys(f.table for f in figures):
        mine = [f for f in figures if f.table == name]
        parts.append(
            f"### {name}: {mine[0].chains} chains, {mine[0].points} points, {mine[0].good} of them good\n\n"
            f"| strategy (replays) | p50 | p80 | p90 | not within {MANY} "
            f"| regret of the recommended after {SHOWN}, median | mean "
            "| hypervolume after 10, 20, 40 | CPU ms per suggestion |\n|---|---|---|---|---|---|---|---|---|"
        )
        parts.append("\n".join(_line(f) for f in mine) + "\n")
    return parts


def _line(f: Figures) -> str:
    regret = ["", ""] if f.shuffled else [f"{f.regret_p50:.1%}", f"{f.regret_mean:.1%}"]
    volume = ", ".join(f"{f.volume[n - 1]:.0%}" for n in (10, 20, SHOWN)) if f.volume else ""
    percentiles = map(_number, (f.p50, f.p80, f.p90))
    shown = [*percentiles, str(f.not_within), *regret, volume, f"{f.milliseconds:.1f}"]
    return f"| {f.strategy} ({f.replays}) | " + " | ".join(shown) + " |"


def _number(value: float) -> str:
    return f"> {CAP}" if math.isinf(value) else f"{value:g}"
