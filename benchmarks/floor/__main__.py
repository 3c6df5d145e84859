"""Run the floor and autoopt in turns on the same points, and compare.

    python -m benchmarks.floor [--case cnn|transformer|medium|large] [--repeats 3] [--ways floor,inline,...] [--save]

Each repetition runs all ways once, in turns, with empty stores. Prints a table of medians over the repetitions of
each way's ratio to the floor of the same repetition, with the smallest and largest ratio, and the seconds of autoopt's
phases. With `--save`, the figures go to `results/`, from which `benchmarks.floor.page` makes the page.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import statistics
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from benchmarks.floor.first_good import seconds_until_good
from benchmarks.floor.models import CASES, Case, write_case
from benchmarks.floor.page import RESULTS
from benchmarks.floor.usage import Usage, measure

ROOT = Path(__file__).parents[2]
WAYS = ("floor", "smart", "olive", "default", "inline", "again", "fresh")
DEFAULT_HOME = "home-default"
FIGURES = ("wall", "cpu", "background", "peak")
SHOWN = ("points", "models", "seconds", "trials", "pass_runs")
"""Fields of the ways' output that explain the figures."""


def run_way(way: str, case: Case, folder: Path, olive: str | None) -> Usage:
    """Run one way.

    `again` and `fresh` need the store that `inline` left in the folder. `olive` is an interpreter. `default` has a
    store of its own.
    """
    environment = {"PYTHONPATH": str(ROOT), "AUTOOPT_HOME": str(folder / "home"), "CI": "true"}
    gate = folder / "gate"  # of its own, so that it waits for no other run of this machine
    gate.mkdir(exist_ok=True)
    environment["AUTOOPT_GATE"] = str(gate)
    if way in ("floor", "smart"):
        command = [sys.executable, "-m", "benchmarks.floor.script", str(folder / way), case.name]
        write_case(case, folder / way)
        if way == "smart":
            command.append("--smart")
        return measure(command, ROOT, environment)
    if way == "olive":
        write_case(case, folder / way)
        command = [str(olive), "-m", "benchmarks.floor.olive_search", str(folder / way), case.name]
        return measure(command, ROOT, environment)
    if not (folder / "files").exists():
        write_case(case, folder / "files")
    dag, out = "dag.json", "out"
    if way == "default":
        dag, out = "default.json", "out-default"
        environment["AUTOOPT_HOME"] = str(folder / DEFAULT_HOME)
    command = [sys.executable, "-m", "autoopt", "run", dag, "--json", "-q", "--out", str(folder / out)]
    if way == "fresh":
        command += ["--again", "all"]
    return measure(command, folder / "files", environment)


def row(way: str, repetitions: list[dict[str, Usage]]) -> str:
    """One line of the table: the figures, and their ratios to the floor of the same repetition."""
    cells = [f"{way:<14}"]
    for name in FIGURES:
        values = [getattr(usages[way], name) for usages in repetitions]
        of_floor = "cpu" if name == "background" else name
        ratios = [getattr(usages[way], name) / getattr(usages["floor"], of_floor) for usages in repetitions]
        spread = f"({min(ratios):.2f}-{max(ratios):.2f})"
        cell = f"{statistics.median(values):8.2f} {statistics.median(ratios):5.2f} {spread}"
        cells.append(f"{cell:<30}")
    return "".join(cells)


def default_row(first_good: list[float], repetitions: list[dict[str, Usage]]) -> str:
    """One line on the default run: until as good as the best of Olive's points, and all of it, relative to Olive."""
    text = f"default: as good as the best of Olive's points after {statistics.median(first_good):.2f} s"
    if "olive" not in repetitions[0]:
        return text
    first = [seconds / usages["olive"].wall for seconds, usages in zip(first_good, repetitions, strict=True)]
    all_of_it = [usages["default"].wall / usages["olive"].wall for usages in repetitions]
    return f"{text}, {statistics.median(first):.2f} x Olive's wall; all of it {statistics.median(all_of_it):.2f} x"


def save(case: Case, state: str, repetitions: list[dict[str, Usage]], notes: list[str]) -> None:
    """Store the figures of all repetitions."""
    kept = [{way: {name: asdict(usage)[name] for name in FIGURES} for way, usage in row.items()} for row in repetitions]
    RESULTS.mkdir(exist_ok=True)
    document = {"state": state, "repetitions": kept, "notes": notes}
    (RESULTS / f"{case.name}.json").write_text(json.dumps(document, indent=1) + "\n")


def last_document(output: str) -> dict[str, object]:
    """The JSON object that the output ends with; libraries may have printed before it."""
    start = output.rfind("\n{\n") + 1 or output.rfind("\n{") + 1
    document: dict[str, object] = json.loads(output[start:])
    return document


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=CASES, default="cnn")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--ways", default="floor,smart,inline,again,fresh")
    parser.add_argument("--olive", help="The interpreter that has olive-ai, for the way `olive`.")
    parser.add_argument("--save", action="store_true", help="Store the figures for the page.")
    options = parser.parse_args()
    ways = [way for way in WAYS if way in options.ways.split(",")]
    case = CASES[options.case]
    # As an installed package: with PYTHONDONTWRITEBYTECODE, each process would compile a checkout anew.
    compileall.compile_dir(ROOT / "autoopt", quiet=1)
    repetitions: list[dict[str, Usage]] = []
    first_good: list[float] = []
    for _ in range(options.repeats):
        with tempfile.TemporaryDirectory() as name:
            usages: dict[str, Usage] = {}
            for way in ways:
                usages[way] = run_way(way, case, Path(name), options.olive)
                print(f"{way}: {usages[way].wall:.2f} s", file=sys.stderr, flush=True)
                if way == "default":
                    first_good.append(seconds_until_good(Path(name, DEFAULT_HOME)))
        repetitions.append(usages)
    state = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    print(f"{case.name}, {options.repeats} repetitions, {state}")
    print(f"{'':<14}{'wall s, ratio':<30}{'CPU s, ratio':<30}{'background CPU s, ratio':<30}{'peak MB, ratio':<30}")
    for way in ways:
        print(row(way, repetitions))
    notes = [default_row(first_good, repetitions)] if first_good else []
    print(*notes, sep="\n")
    if options.save:
        save(case, state, repetitions, notes)
    for way in ways:
        output = last_document(repetitions[-1][way].output)
        print(way, {key: output[key] for key in SHOWN if key in output})


if __name__ == "__main__":
    main()
