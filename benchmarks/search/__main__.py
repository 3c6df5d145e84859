"""The commands of the search benchmark; see README.md beside this file."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.search.report import Figures

os.environ.setdefault("OMP_NUM_THREADS", "1")

HERE = Path(__file__).parent


def main() -> None:
    """Parse, one call."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="measure a whole space once, into a table")
    recording.add_argument("name")
    recording.add_argument("--dag", type=Path, required=True)
    recording.add_argument("--model", type=Path)
    recording.add_argument("--data", type=Path)
    recording.add_argument("--calibration", type=Path)
    recording.add_argument("--home", type=Path, default=Path(".autoopt-bench"))
    recording.add_argument("--recordings", type=int, default=3)
    recording.add_argument("--seconds", type=float, help="time for one latency; the default is that of a run")
    recording.add_argument("--out", type=Path, default=HERE / "tables", help="folder of the table")
    reporting = commands.add_parser("report", help="replay every strategy on every table")
    reporting.add_argument("--seeds", type=int, default=100)
    reporting.add_argument("--tables", choices=("recorded", "synthetic", "all"), default="all")
    reporting.add_argument("--only", nargs="*", default=(), help="strategies, by name")
    reporting.add_argument("--add", action="store_true", help="replay only what the results do not hold yet")
    reporting.add_argument("--no-control", dest="control", action="store_false", help="without shuffled tables")
    reporting.add_argument("--out", type=Path, default=HERE / "results")
    stopping = commands.add_parser("stop", help="replay searches that end by themselves")
    stopping.add_argument("--seeds", type=int, default=50)
    stopping.add_argument("--only", nargs="*", default=(), help="tables, by name")
    stopping.add_argument("--families", nargs="*", default=("S", "M"), help="synthetic families")
    stopping.add_argument("--seconds", type=float, default=0.0, help="time of a trial; 0 if it is not known")
    stopping.add_argument("--noise", type=float, default=0.0, help="relative deviation that other programs add")
    stopping.add_argument("--first", type=int, default=0, help="first seed")
    stopping.add_argument("--add", action="store_true", help="replay only what the results do not hold yet")
    stopping.add_argument("--out", type=Path, default=HERE / "results")
    leaving_out = commands.add_parser("left-out", help="replay searches on synthetic tables that nothing was tuned on")
    leaving_out.add_argument("--seeds", type=int, default=100)
    leaving_out.add_argument("--first", type=int, help="first seed; the default is that of the published figures")
    leaving_out.add_argument("--only", nargs="*", default=(), help="kinds of tables, by name")
    leaving_out.add_argument("--no-random", dest="random", action="store_false", help="without random points")
    leaving_out.add_argument("--add", action="store_true", help="replay only what the results do not hold yet")
    leaving_out.add_argument("--out", type=Path, default=HERE / "results")
    varying = commands.add_parser("vary", help="replay with another value of a number of autoopt/tuning.py")
    varying.add_argument("numbers", nargs="+", metavar="RECORD.FIELD=VALUE", help="such as search.good=5")
    varying.add_argument("--seeds", type=int, default=40)
    commands.add_parser("cost", help="CPU time of one suggestion on 4,000 points")
    options = parser.parse_args()
    functions = {
        "record": record,
        "report": report,
        "stop": stop,
        "left-out": left_out,
        "vary": vary,
        "cost": cost,
    }
    functions[options.command](options)


def record(options: argparse.Namespace) -> None:
    from benchmarks.search import record as recorder
    from benchmarks.search.table import save

    request = recorder.request_for(options.dag, options.model, options.data, options.calibration, options.home)
    table = recorder.record(options.name, request, recordings=options.recordings, seconds=options.seconds)
    options.out.mkdir(exist_ok=True)
    save(table, options.out / f"{options.name}.json.gz")
    print(f"{options.name}: {table.points} points, best {table.best:.3f}, noise {table.noise:.1%}, {table.good} good")


def report(options: argparse.Namespace) -> None:
    from benchmarks.search import report as replays
    from benchmarks.search.proposed import proposed
    from benchmarks.search.simulate import STRATEGIES

    sets = {
        **(proposed() if options.tables != "synthetic" else {}),
        **(replays.families(options.seeds) if options.tables != "recorded" else {}),
    }
    kept = options.out / "figures.json"
    known = replays.from_json(json.loads(kept.read_text())) if options.add and kept.is_file() else []
    done = {(f.table, f.strategy): f for f in known}
    names = [n for n in STRATEGIES if not options.only or n in options.only]
    work = [(name, strategy, replays.measure) for name in sets for strategy in names]
    work += [(name, s, replays.control) for name in sets for s in replays.CONTROLS if s in names and options.control]
    options.out.mkdir(exist_ok=True)
    for name, strategy, how in work:
        key = (name + replays.SHUFFLED if how is replays.control else name, strategy)
        if key not in done:
            made = done[key] = how(name, sets[name], strategy, options.seeds)
            print(f"{made.table}, {strategy}: p50 {made.p50:g}, p90 {made.p90:g}", flush=True)
            write(options.out, list(done.values()))
    write(options.out, list(done.values()))


def write(out: Path, figures: list[Figures]) -> None:
    """Everything that is made of the figures."""
    from benchmarks.search.report import as_json
    from benchmarks.search.simulate import STRATEGIES
    from benchmarks.search.summary import markdown

    order = {name: place for place, name in enumerate(STRATEGIES)}
    figures.sort(key=lambda f: (f.shuffled, f.table.startswith("synthetic"), f.points, f.table, order[f.strategy]))
    (out / "figures.json").write_text(json.dumps(as_json(figures), indent=None, separators=(",", ":")) + "\n")
    (out / "figures.md").write_text(markdown(figures))


def stop(options: argparse.Namespace) -> None:
    from benchmarks.search.proposed import proposed
    from benchmarks.search.stopping import read, replay, write
    from benchmarks.search.synthetic import FAMILIES, make

    sets = proposed()
    for family in FAMILIES:
        if family.name in options.families:
            sets[f"synthetic {family.name}"] = [make(family, options.first + seed) for seed in range(options.seeds)]
    if options.only:
        sets = {name: sets[name] for name in options.only}
    options.out.mkdir(exist_ok=True)
    kept = options.out / "stopping.json"
    results = read(kept) if options.add else {}
    for name, tables in sets.items():
        if name in results:
            continue
        results[name] = [
            replay(tables[seed % len(tables)], options.first + seed, options.seconds, options.noise)
            for seed in range(options.seeds)
        ]
        write(kept, results)
        print(name, flush=True)


def left_out(options: argparse.Namespace) -> None:
    from benchmarks.search import left_out as replays
    from benchmarks.search.summary import rows_in

    begin = replays.FIRST if options.first is None else options.first
    options.out.mkdir(exist_ok=True)
    kept = options.out / "left_out.md"
    lines = rows_in(kept) if options.add else {}
    for name in options.only or replays.KINDS:
        if (name,) in lines:
            continue
        found: list[replays.Found] = []
        by_chance: list[replays.Found] = []
        for seed in range(begin, begin + options.seeds):
            table = replays.KINDS[name](seed)
            found.append(replays.unified(table, seed))
            if options.random:
                by_chance.append(replays.random(table, seed))
        lines[name,] = replays.line(name, found, by_chance)
        print(lines[name,], flush=True)
        kept.write_text(replays.markdown(lines.values()))


def vary(options: argparse.Namespace) -> None:
    from benchmarks.search import vary as varied

    numbers = varied.read(options.numbers)
    present = varied.replays(options.seeds)
    varied.change(numbers)
    print("\n".join(varied.lines(present, varied.replays(options.seeds))))


def cost(options: argparse.Namespace) -> None:
    from benchmarks.search.report import BOTH
    from benchmarks.search.simulate import STRATEGIES, replay
    from benchmarks.search.synthetic import FAMILIES, make

    table = min((make(FAMILIES[2], seed) for seed in range(6)), key=lambda t: abs(t.points - 4000))
    for objectives in (BOTH[:1], BOTH):
        replay(table, STRATEGIES["unified"], 0, 12, objectives)
        for trials in (40, 100):
            spent = 1000 * replay(table, STRATEGIES["unified"], 1, trials, objectives).seconds
            about = f"{table.points} points, {trials} trials, objectives: {len(objectives)}"
            print(f"{about}: {spent:.1f} ms of CPU for each suggestion", flush=True)


if __name__ == "__main__":
    main()
