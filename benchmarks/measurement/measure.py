"""Is the answer right, also on a machine that is not quiet? Whole runs, beside other programs, against a plain loop.

    python benchmarks/measurement/measure.py [--zoo ZOO] [--levels quiet,one,two,four,eight] [--repeat 1]
        [--cases a,b] [--threads 1] [--results FILE] [--work FOLDER]

Cases are made-up models of known ratios (`known_ratios.py`) in four sizes, and with `--zoo` a folder of folders with
`model.onnx` and `evaluation.npz`, whose candidates are session options, graph optimizations and int8 models.
For every case:
1. on the quiet machine a run makes all candidates without measuring them, and `interleaved_loop.py`, which shares no
   code with autoopt, measures the ratio of each several times in new processes: their median is the truth. With
   `--truth each` it does so before and after every run, for models on several threads, whose ratios change with the
   state of the host;
2. at every level, other processes burn CPU, stream memory or come in bursts, and runs with a seed of their own measure
   everything anew.

FILE is written after each run. `--table FILE` draws the table of README.md from it. Runs count as right if the choice
is the true one or within 3 % of it. The table counts answers of `source` although a gain of 10 % is there, choices of a
slower model, and intervals that hold the truth; `where steady` are those of runs before, during and after
which the host was the same: the source's time within 20 %, the ratio before and after within 3 %.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import known_ratios

from autoopt.api import execute
from autoopt.problem.run_request import RunRequest
from autoopt.results import RunResult
from autoopt.store import open_store

HERE = Path(__file__).parent
MARK = "<!-- results: drawn by measure.py --table -->"
OTHERS = "others"
"""Beside whatever runs on this machine."""
LEVELS: dict[str, tuple[str, ...]] = {
    "quiet": (),
    OTHERS: (),
    "one": ("cpu",),
    "two": ("cpu", "memory"),
    "four": ("cpu", "cpu", "memory", "burst"),
    "eight": ("cpu", "cpu", "cpu", "cpu", "memory", "memory", "burst", "burst"),
}
LOADS = {
    "cpu": "while True: pass",
    "memory": "import numpy as np; a = np.ones(1 << 25, np.float32); b = a.copy()\nwhile True: b[:] = a",
    "burst": (
        "import random, time\nwhile True:\n"
        "    end = time.monotonic() + random.expovariate(5)\n"
        "    while time.monotonic() < end: pass\n"
        "    time.sleep(random.expovariate(5))"
    ),
}
THREADS = {
    "one": "",
    "the runtime's default": ", several threads",
    "the same without precedence": ", several threads, no precedence",
}
"""Ends of the names of cases by their row of the table."""
ZOO_DAG: dict[str, Any] = {
    "passes": {
        "basic": {"pass": "session_tuning", "params": {"graph_optimization_level": "basic"}},
        "arena": {"pass": "session_tuning", "params": {"enable_cpu_mem_arena": False}},
        "graph": "ort_graph_optimization",
        "dynamic": "dynamic_quantization",
        "static": {"pass": "static_quantization", "params": {"activation_type": "QUInt8"}},
    },
    "chains": [["basic"], ["arena"], ["graph"], ["dynamic"], ["static"]],
}


@dataclass(frozen=True)
class Case:
    """A model with candidates."""

    name: str
    dag: dict[str, Any]
    model: Path
    data: Path | None


def main() -> None:
    args = _arguments()
    if args.table:
        _draw(json.loads(Path(args.table).read_text()))
        return
    with tempfile.TemporaryDirectory(prefix="measure-") as temporary:
        work = Path(args.work or temporary)
        results = Path(args.results) if args.results else work / "results.json"
        for case in _cases(args, work):
            _measure(case, work / case.name.replace(" ", "_").replace(":", ""), args, results)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zoo", help="folder of models")
    parser.add_argument("--levels", default="quiet,one,two,four,eight", help="or others: beside whatever runs")
    parser.add_argument("--cases", default="", help="parts of the names of cases")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each case at each level")
    parser.add_argument("--truth", choices=["once", "each"], default="once", help="for each case, or around each run")
    parser.add_argument("--real-time", action="store_true", help="the loop goes before other programs (needs root)")
    parser.add_argument("--no-precedence", action="store_true", help="runs do not go before other programs")
    parser.add_argument("--processes", type=int, default=5, help="processes of the plain loop")
    parser.add_argument("--loop", type=float, default=5.0, help="seconds of the plain loop in each process")
    parser.add_argument("--results", default="", help="results of earlier calls in it are kept")
    parser.add_argument("--threads", type=int, default=1, help="intra-op threads; 0: the runtime's default")
    parser.add_argument("--work", default="", help="folder for models and stores")
    parser.add_argument("--table", default="")
    return parser.parse_args()


def _cases(args: argparse.Namespace, work: Path) -> Iterator[Case]:
    parts = [part for part in args.cases.split(",") if part]
    for size in known_ratios.SIZES:
        for title, shares in known_ratios.CASES.items():
            name = f"{size}: {title}"
            if not parts or any(part in name for part in parts):
                passes = {f"share{share}": {"pass": "shorten", "params": {"share": share}} for share in shares}
                dag = {
                    "user_script": str(HERE / "known_ratios.py"),
                    "passes": passes,
                    "chains": [[node] for node in passes],
                    "objectives": [{"metric": "latency_p50"}],
                    "constraints": [],
                    "target": {"threads": args.threads},
                }
                yield Case(name, dag, known_ratios.write(size, work / size), None)
    for model in sorted(Path(args.zoo).glob("*/model.onnx")) if args.zoo else ():
        name = model.parent.name
        if not parts or any(part in name for part in parts):
            dag = {**ZOO_DAG, "objectives": [{"metric": "latency_p50"}], "constraints": []}
            dag["target"] = {"threads": args.threads}
            yield Case(name, dag, model, model.with_name("evaluation.npz"))


def _measure(case: Case, work: Path, args: argparse.Namespace, results: Path) -> None:
    known = json.loads(results.read_text()) if results.exists() else {}
    name = case.name if args.threads == 1 else f"{case.name}, several threads"
    name += ", no precedence" if args.no_precedence else ""
    entry = known.setdefault(name, {"threads": args.threads, "runs": []})
    if "truth" not in entry or not work.exists():
        prepared = {**case.dag, "objectives": [{"metric": "size"}]}
        _run(replace(case, dag=prepared), work, {})
        entry["truth"] = _truth(case, work, args)
        _write(results, known)
    before = _truth(case, work, args) if args.truth == "each" else entry["truth"]
    for level in args.levels.split(","):
        for _ in range(args.repeat):
            number = sum(run["level"] == level for run in entry["runs"])
            seed = 100_000 * (1 + list(LEVELS).index(level)) + 100 * number
            home = work.with_name(f"{work.name}-run")
            shutil.rmtree(home, ignore_errors=True)
            shutil.copytree(work, home)  # with the candidates, but without the measurements of earlier runs
            with _load(level):
                began = time.monotonic()
                result = _run(case, home, {"seed": seed, "precedence": not args.no_precedence})
                seconds = time.monotonic() - began
            # Without precedence, the source's time says more about other programs than about the host.
            source_ms = [] if args.no_precedence else _source_times(home)
            run = {**_answer(result, level, seconds), "source_ms": source_ms}
            if args.truth == "each":
                after = _truth(case, work, args)
                run |= {"truth": _middle(before, after), "steady": _is_steady(before, after, run)}
                before = after
            entry["runs"].append(run)
            print(name, json.dumps(entry["runs"][-1]), flush=True)
            _write(results, known)


def _write(results: Path, known: dict[str, Any]) -> None:
    results.parent.mkdir(parents=True, exist_ok=True)
    results.write_text(json.dumps(known, indent=1) + "\n")


def _run(case: Case, work: Path, measurement: dict[str, Any]) -> RunResult:
    """All candidates in one run; the passes come from the store if it has them."""
    request = RunRequest(
        dag={"name": "measurement", **case.dag},
        model=case.model,
        data=case.data,
        home=work,
        search={"strategy": "per-chain", "sampler": "exhaustive"},
        measurement=measurement,
        workers=1,
        again="all",
    )
    return execute(request)


def _truth(case: Case, work: Path, args: argparse.Namespace) -> dict[str, float]:
    """The ratio of each candidate by chain from the plain loop, and the source's time in ms as `source_ms`."""
    with open_store(home=work) as store:
        (run, *_) = store.runs.all(status="finished")
        chains, models = [], []
        for trial in store.trials.all(run.id):
            if trial.candidate is not None:
                path = store.artifacts.path(trial.candidate.artifact)
                chains.append(trial.chain)
                models.append({"path": str(path), "options": dict(trial.candidate.session_options)})
    models.append({"path": str(case.model), "options": {}})
    job = {"models": models, "data": None if case.data is None else str(case.data)}
    job.update(seconds=args.loop, threads=args.threads, real_time=args.real_time)
    path = work / "job.json"
    results = []
    for seed in range(args.processes):
        path.write_text(json.dumps({**job, "seed": seed}))
        command = [sys.executable, str(HERE / "interleaved_loop.py"), str(path)]
        output = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        results.append([*output["ratios"], output["source_ms"]])
    medians = [statistics.median(values) for values in zip(*results, strict=True)]
    return dict(zip([*chains, "source_ms"], medians, strict=True))


def _source_times(work: Path) -> list[float]:
    """The latency of the source in ms, from each measurement of the newest run."""
    with open_store(home=work) as store:
        (run, *_) = store.runs.all(status="finished")
        candidates = [trial.candidate for trial in store.trials.all(run.id) if trial.candidate is not None]
        records = {record.key: record for one in candidates for record in store.results.evaluations_of(one)}
    times = [record.details.get("source_ms") for record in records.values() if record.run == run.id]
    return sorted(round(ms, 4) for ms in times if ms)


def _middle(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """The truth of a run between two loops."""
    return {name: math.sqrt(before[name] * after[name]) for name in before}


def _is_steady(before: dict[str, float], after: dict[str, float], run: dict[str, Any]) -> bool:
    """Tell if the host was the same before, during and after a run."""
    chosen = run["chosen"]
    same_ratio = chosen == "source" or abs(math.log(after[chosen] / before[chosen])) <= 0.03
    times = [before["source_ms"], after["source_ms"], *run["source_ms"]]
    return same_ratio and max(times) <= 1.2 * min(times)


def _answer(result: RunResult, level: str, seconds: float) -> dict[str, Any]:
    """The answer of a run, for `_judge`."""
    assert result.best is not None
    ratio = result.best.ratios["latency_p50"]
    return {
        "level": level,
        "chosen": result.best.chain,
        "interval": [round(ratio.value, 4), round(ratio.low, 4), round(ratio.high, 4)],
        "undecided": result.undecided,
        "seconds": round(seconds, 2),
        "phases": dict(result.seconds),
    }


def _judge(run: dict[str, Any], truth: dict[str, float]) -> dict[str, Any]:
    """A run with the verdicts that the table counts."""
    is_source = run["chosen"] == "source"
    best_truth = min(1.0, *(value for chain, value in truth.items() if chain != "source_ms"))
    chosen = 1.0 if is_source else truth[run["chosen"]]
    value, low, high = run["interval"]
    return {
        **run,
        "right": chosen <= 1.03 * best_truth,
        "missed": is_source and best_truth <= 0.9,
        "slower": chosen > 1.01,
        "inside": is_source or low <= chosen <= high,
        "half_width": (high - low) / (2 * value),
    }


@contextmanager
def _load(level: str) -> Iterator[None]:
    """Run the other processes of a level meanwhile."""
    processes = [subprocess.Popen([sys.executable, "-c", LOADS[kind]]) for kind in LEVELS[level]]
    time.sleep(0.5 if processes else 0.0)  # until the processes have started
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _draw(known: dict[str, Any]) -> None:
    columns = [
        "threads",
        "level",
        "runs",
        "right",
        "`source` in spite of 10 %",
        "slower",
        "truth inside",
        "where steady",
        "half-width",
        "undecided",
        "time",
    ]
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    for title, suffix in THREADS.items():
        names = [name for name in known if name.endswith(suffix) and (suffix or ", several threads" not in name)]
        cases = {name: known[name] for name in names}
        lines += [f"| {title} | {row}" for row in _rows(cases)]
    page = HERE / "README.md"
    page.write_text(f"{page.read_text().split(MARK)[0].rstrip()}\n\n{MARK}\n\n" + "\n".join(lines) + "\n")


def _rows(known: dict[str, Any]) -> Iterator[str]:
    """Rows of the table for some cases, without the first column."""
    quiet = _median_by_case(known, "quiet")
    for level in LEVELS:
        rows = []
        for entry in known.values():
            rows += [_judge(run, run.get("truth") or entry["truth"]) for run in entry["runs"] if run["level"] == level]
        if not rows:
            continue
        chosen = [row for row in rows if row["chosen"] != "source"]
        steady = [row for row in chosen if row.get("steady")]
        widths = [row["half_width"] for row in chosen]
        times: list[float] = []
        if level != OTHERS:  # the load is not the same from run to run
            times = [seconds / quiet[name] for name, seconds in _median_by_case(known, level).items() if name in quiet]
        yield (
            f"{level} | {len(rows)} | {_count(rows, 'right')} | {_count(rows, 'missed')} | "
            f"{_count(rows, 'slower')} | "
            f"{_inside(chosen)} | {_inside(steady)} | "
            f"{_percent(widths)} | "
            f"{sum(bool(row['undecided']) for row in rows)} | {_times(times)} |"
        )


def _median_by_case(known: dict[str, Any], level: str) -> dict[str, float]:
    seconds = {
        name: [run["seconds"] for run in entry["runs"] if run["level"] == level] for name, entry in known.items()
    }
    return {name: statistics.median(values) for name, values in seconds.items() if values}


def _count(rows: Sequence[dict[str, Any]], name: str) -> int:
    return sum(bool(row[name]) for row in rows)


def _inside(rows: Sequence[dict[str, Any]]) -> str:
    return f"{_count(rows, 'inside')} of {len(rows)}" if rows else "-"


def _percent(widths: Sequence[float]) -> str:
    if not widths:
        return "-"
    return f"{100 * statistics.median(widths):.1f} % (at most {100 * max(widths):.1f} %)"


def _times(ratios: Sequence[float]) -> str:
    if not ratios:
        return "-"
    return f"{statistics.median(ratios):.2f}x"


if __name__ == "__main__":
    main()
