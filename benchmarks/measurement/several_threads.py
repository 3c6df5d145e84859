"""Ratios on one and on several threads, for many models and candidates, from a plain loop.

    python benchmarks/measurement/several_threads.py prepare --zoo ZOO --work FOLDER     # on any machine
    python benchmarks/measurement/several_threads.py measure --work FOLDER --results results.json [--minutes 10]

`prepare` makes the candidates of every model (session options, graph optimizations, int8), and lists them in FOLDER.
`measure` wants a quiet machine, or root and `--real-time`. For each model it opens sessions of all candidates and the
source, on one thread and on `--threads`, and runs blocks of 10 ms of all of them in random order; `--minutes` are those
of all blocks. For each candidate it writes, in microseconds:
- `one`, `several`: the median of all blocks;
- `nodes`: the median time of each node on one thread, by the runtime's profiler.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import measure
import onnxruntime as ort
from perf_loop import item, session_options

from autoopt.model.session import kernel_times
from autoopt.store import open_store

SESSIONS = 2
BLOCK, LEAD = 0.01, 0.002
"""Seconds of a block, and of the inferences before it that are not timed."""
PROFILE_SECONDS = 0.5
CHAINS = {
    **measure.ZOO_DAG["passes"],
    "extended": {"pass": "session_tuning", "params": {"graph_optimization_level": "extended"}},
    "static_conv": {"pass": "static_quantization", "params": {"activation_type": "QUInt8", "op_types": ["Conv"]}},
}


@dataclass
class Subject:
    """A session on some threads and its blocks."""

    call: Callable[[], Any]
    count: int
    lead: int
    blocks: list[float] = field(default_factory=list)
    """Medians in microseconds."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["prepare", "measure"])
    parser.add_argument("--work", required=True, help="folder of the candidates")
    parser.add_argument("--zoo", default="", help="folder of folders with model.onnx and evaluation.npz")
    parser.add_argument("--results", default="several_threads.json")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--models", default="", help="parts of the names of models")
    parser.add_argument("--real-time", action="store_true", help="blocks have precedence over other programs (root)")
    args = parser.parse_args()
    if args.step == "prepare":
        _prepare(Path(args.zoo), Path(args.work))
    else:
        _measure(args)


def _prepare(zoo: Path, work: Path) -> None:
    """List the models of each model, by candidate, in `candidates.json`."""
    listed = work / "candidates.json"
    models: dict[str, dict[str, Any]] = json.loads(listed.read_text()) if listed.exists() else {}
    for path in sorted(zoo.glob("*/model.onnx")):
        if path.parent.name in models:
            continue
        data = path.with_name("evaluation.npz")
        dag = {"passes": CHAINS, "chains": [[node] for node in CHAINS], "constraints": [], "target": {"threads": 1}}
        dag["objectives"] = [{"metric": "size"}]
        case = measure.Case(path.parent.name, dag, path, data)
        home = work / case.name
        measure._run(case, home, {})
        with open_store(home=home) as store:
            (run, *_) = store.runs.all(status="finished")
            names = {chain.id: chain.name for chain in store.runs.chains(run.id)}
            candidates = {"source": {"path": str(path), "options": {}}}
            for trial in store.trials.all(run.id):
                if trial.candidate is not None:
                    file = str(store.artifacts.path(trial.candidate.artifact))
                    options = dict(trial.candidate.session_options)
                    candidates[names[trial.chain]] = {"path": file, "options": options}
        models[case.name] = {"data": str(data), "candidates": candidates}
        listed.write_text(json.dumps(models, indent=1) + "\n")
        print(case.name, ", ".join(candidates), flush=True)


def _measure(args: argparse.Namespace) -> None:
    models = json.loads((Path(args.work) / "candidates.json").read_text())
    parts = args.models.split(",")
    models = {name: model for name, model in models.items() if any(part in name for part in parts)}
    seconds = 60 * args.minutes / len(models)
    results = Path(args.results)
    known: dict[str, Any] = json.loads(results.read_text()) if results.exists() else {}
    for name, model in models.items():
        known[name] = _measure_model(model, args.threads, seconds, real_time=args.real_time)
        results.write_text(json.dumps(known, indent=1) + "\n")
        for candidate, figures in known[name]["candidates"].items():
            row = {key: value for key, value in figures.items() if key != "nodes"}
            print(name, candidate, json.dumps(row), flush=True)


def _measure_model(model: dict[str, Any], threads: int, seconds: float, *, real_time: bool) -> dict[str, Any]:
    load = os.getloadavg()[0]
    nodes = {name: _nodes(candidate, model["data"]) for name, candidate in model["candidates"].items()}
    subjects: dict[tuple[str, int, int], Subject] = {}
    for number in range(SESSIONS):
        for name, candidate in model["candidates"].items():
            for count in (1, threads):
                subjects[name, count, number] = _subject(candidate, model["data"], count)
    keys = list(subjects)
    rng = random.Random(0)
    if real_time:
        for task in os.listdir("/proc/self/task"):
            os.sched_setscheduler(int(task), os.SCHED_FIFO, os.sched_param(10))
    end = time.monotonic() + seconds  # of blocks; opening the sessions comes on top
    while time.monotonic() < end or not subjects[keys[0]].blocks:
        for key in rng.sample(keys, len(keys)):
            began = time.monotonic()
            _time_block(subjects[key])
            if real_time:  # other programs need the cores too
                time.sleep(2 * (time.monotonic() - began))
    if real_time:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    figures = {}
    for name in model["candidates"]:
        one = [block for number in range(SESSIONS) for block in subjects[name, 1, number].blocks]
        several = [block for number in range(SESSIONS) for block in subjects[name, threads, number].blocks]
        figures[name] = {
            "one": round(statistics.median(one), 3),
            "several": round(statistics.median(several), 3),
            "blocks": len(several),
            "nodes": nodes[name],
        }
    return {"threads": threads, "load": [load, os.getloadavg()[0]], "candidates": figures}


def _nodes(candidate: dict[str, Any], data: str) -> list[list[Any]]:
    """Operator and median microseconds of every node on one thread."""
    with tempfile.TemporaryDirectory() as folder:
        options = session_options(candidate["options"], 1)
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder, "profile"))
        session = ort.InferenceSession(candidate["path"], options, providers=["CPUExecutionProvider"])
        feed = item(session, data, 0)
        end = time.monotonic() + PROFILE_SECONDS
        runs = 0
        while runs < 5 or (runs < 500 and time.monotonic() < end):
            session.run(None, feed)
            runs += 1
        events = json.loads(Path(session.end_profiling()).read_text())
    times = []
    for (_, operator), durations in kernel_times(events).items():
        per_run = len(durations) / runs
        times.append([operator, statistics.median(durations) * per_run])
    return times


def _subject(candidate: dict[str, Any], data: str, threads: int) -> Subject:
    options = session_options(candidate["options"], threads)
    session = ort.InferenceSession(candidate["path"], options, providers=["CPUExecutionProvider"])
    feed = item(session, data, 0)

    def call() -> None:
        session.run(None, feed)

    times = []
    for _ in range(5):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return Subject(call, max(1, int(BLOCK / min(times))), max(1, int(LEAD / min(times))))


def _time_block(subject: Subject) -> None:
    for _ in range(subject.lead):
        subject.call()
    times = []
    for _ in range(subject.count):
        began = time.perf_counter_ns()
        subject.call()
        times.append(time.perf_counter_ns() - began)
    subject.blocks.append(statistics.median(times) / 1e3)


if __name__ == "__main__":
    main()
