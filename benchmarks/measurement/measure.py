"""Is the answer right, also on a machine that is not quiet? Whole runs, beside other programs, against a plain loop.

    python benchmarks/measurement/measure.py [--zoo ZOO] [--levels quiet,one,two,four,eight] [--repeat 1]
        [--cases a,b] [--threads 1] [--results FILE] [--work FOLDER]

Cases are made-up models of known ratios (`known_ratios.py`) in four sizes, and with `--zoo` a folder of folders with
`model.onnx` and `evaluation.npz`, whose candidates are session options, graph optimisations and int8 models.
For every case:
1. on the quiet machine a run makes all candidates, and `interleaved_loop.py`, which shares no code with autoopt,
   measures the ratio of each: the truth;
2. at every level, other processes burn CPU, stream memory or come in bursts, and runs with a seed of their own measure
   everything anew. They count if the choice is the true one or within 3 % of it, if `source` is answered although a
   gain of 10 % is there, if a slower model is chosen, if the interval holds the truth, how wide it is, and the time.

FILE is written after each run. `--table FILE` draws the table of README.md from it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import known_ratios

from autoopt.api import execute
from autoopt.engine.inputs.request import RunRequest
from autoopt.results import RunResult
from autoopt.store import open_store

HERE = Path(__file__).parent
MARK = "<!-- results: drawn by measure.py --table -->"
LEVELS: dict[str, tuple[str, ...]] = {
    "quiet": (),
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
    parser.add_argument("--levels", default=",".join(LEVELS))
    parser.add_argument("--cases", default="", help="parts of the names of cases")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each case at each level")
    parser.add_argument("--loop", type=float, default=10.0, help="seconds of the plain loop")
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
    entry = known.setdefault(name, {"threads": args.threads, "runs": []})
    if "truth" not in entry:
        _run(case, work, {"seconds": 0.1, "rounds": 0})
        entry["truth"] = _truth(case, work, args.loop)
    for level in args.levels.split(","):
        for _ in range(args.repeat):
            number = sum(run["level"] == level for run in entry["runs"])
            seed = 1000 * (1 + list(LEVELS).index(level)) + 100 * number
            with _load(level):
                began = time.monotonic()
                result = _run(case, work, {"seed": seed})
                seconds = time.monotonic() - began
            entry["runs"].append(_judged(result, entry["truth"], level, seconds))
            print(name, json.dumps(entry["runs"][-1]), flush=True)
            results.parent.mkdir(parents=True, exist_ok=True)
            results.write_text(json.dumps(known, indent=1) + "\n")


def _run(case: Case, work: Path, measurement: dict[str, Any]) -> RunResult:
    """All candidates in one run; the passes come from the store after the first one."""
    request = RunRequest(
        dag={"name": "measurement", **case.dag},
        model=case.model,
        data=case.data,
        home=work,
        search={"strategy": "per-chain", "sampler": "exhaustive"},
        measurement=measurement,
        workers=1,
        fresh=True,
    )
    return execute(request)


def _truth(case: Case, work: Path, seconds: float) -> dict[str, float]:
    """The ratio of each candidate by chain, from the plain loop."""
    with open_store(home=work) as store:
        (run, *_) = store.runs.all(status="finished")
        names = {chain.id: chain.name for chain in store.runs.chains(run.id)}
        chains, models = [], []
        for trial in store.trials.all(run.id):
            if trial.candidate is not None:
                path = store.artifacts.path(trial.candidate.artifact)
                chains.append(names[trial.chain])
                models.append({"path": str(path), "options": dict(trial.candidate.session_options)})
    models.append({"path": str(case.model), "options": {}})
    job = work / "job.json"
    data = None if case.data is None else str(case.data)
    threads = case.dag["target"]["threads"]
    job.write_text(json.dumps({"models": models, "data": data, "seconds": seconds, "seed": 0, "threads": threads}))
    command = [sys.executable, str(HERE / "interleaved_loop.py"), str(job)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return dict(zip(chains, json.loads(output)["ratios"], strict=False))


def _judged(result: RunResult, truth: dict[str, float], level: str, seconds: float) -> dict[str, Any]:
    assert result.best is not None
    best_truth = min(1.0, *truth.values())
    chosen = 1.0 if result.best.is_source else truth[result.best.chain]
    ratio = result.best.ratios["latency_p50"]
    return {
        "level": level,
        "chosen": result.best.chain,
        "true_ratio": round(chosen, 4),
        "best_ratio": round(best_truth, 4),
        "right": chosen <= 1.03 * best_truth,
        "missed": result.best.is_source and best_truth <= 0.9,
        "slower": chosen > 1.01,
        "interval": [round(ratio.value, 4), round(ratio.low, 4), round(ratio.high, 4)],
        "inside": result.best.is_source or ratio.low <= chosen <= ratio.high,
        "half_width": round((ratio.high - ratio.low) / (2 * ratio.value), 4),
        "undecided": result.undecided,
        "seconds": round(seconds, 2),
        "phases": dict(result.seconds),
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
        "half-width",
        "undecided",
        "time",
    ]
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    for title, several in (("one", False), ("the runtime's default", True)):
        cases = {name: entry for name, entry in known.items() if (entry["threads"] != 1) == several}
        lines += [f"| {title} | {row}" for row in _rows(cases)]
    page = HERE / "README.md"
    page.write_text(f"{page.read_text().split(MARK)[0].rstrip()}\n\n{MARK}\n\n" + "\n".join(lines) + "\n")


def _rows(known: dict[str, Any]) -> Iterator[str]:
    """Rows of the table for some cases, without the first column."""
    quiet = _median_by_case(known, "quiet")
    for level in LEVELS:
        rows = [run for entry in known.values() for run in entry["runs"] if run["level"] == level]
        if not rows:
            continue
        chosen = [row for row in rows if row["chosen"] != "source"]
        widths = [row["half_width"] for row in chosen]
        times = [seconds / quiet[name] for name, seconds in _median_by_case(known, level).items() if name in quiet]
        yield (
            f"{level} | {len(rows)} | {_count(rows, 'right')} | {_count(rows, 'missed')} | "
            f"{_count(rows, 'slower')} | "
            f"{_count(chosen, 'inside')} of {len(chosen)} | {_percent(widths)} | "
            f"{sum(bool(row['undecided']) for row in rows)} | {_times(times)} |"
        )


def _median_by_case(known: dict[str, Any], level: str) -> dict[str, float]:
    seconds = {
        name: [run["seconds"] for run in entry["runs"] if run["level"] == level] for name, entry in known.items()
    }
    return {name: statistics.median(values) for name, values in seconds.items() if values}


def _count(rows: Sequence[dict[str, Any]], name: str) -> int:
    return sum(bool(row[name]) for row in rows)


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
