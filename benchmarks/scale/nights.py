"""The work of nights over a large zoo before and after its models: planning, order, comparison, pages, clean-up.

    python -m benchmarks.scale.nights [--models 1000] [--nights 30] [--url postgresql://...]

Writes a zoo of small model files and generated nights, each of which had time for half of the models, then times what a
sweep, the site and `store gc` do with them.
"""

from __future__ import annotations

import argparse
import random
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from autoopt.metrics import Estimate, Objective
from autoopt.problem.environment import environment
from autoopt.results import Baseline, EntryComparison, ModelResult, RunResult, SweepEntry, SweepResult
from autoopt.store import RunRecord, Store, open_store
from autoopt.store.maintenance.gc import collect
from autoopt.store.records import SweepRecord
from autoopt.zoo.earlier_sweeps import SweepHistory
from autoopt.zoo.night_history import history_of
from autoopt.zoo.nights_page import nights_html
from autoopt.zoo.stored_nights import stored_nights
from autoopt.zoo.sweep_page import sweep_html
from autoopt.zoo.zoo_models import ZooItem, check_zoo, dag_of, items

T = TypeVar("T")
DAG = "name: d\npasses: [simplify]\nchains: [[simplify]]\n"
LINES = "name: big\ndag: dag.yaml\nnight: {minutes: 480}\nmodels: [models]\n"


def fill(store: Store, models: Sequence[ZooItem], nights: int) -> None:
    """Add nights that alternate between the two halves of the models, with a run and an artifact for each model."""
    draw = random.Random(1)
    runs = []
    for number, item in enumerate(models):
        digest = store.artifacts.put(Path(item.path).parent)
        run = RunRecord(id="", name=item.name, identity=f"{number:064d}", model=digest)
        runs.append(store.runs.create(run).id)
        store.runs.finish(runs[-1], "finished", {"run": runs[-1], "status": "finished"})
    for night in range(nights):
        sweep = store.sweeps.create(SweepRecord(id="", name="big", settings={"only": None})).id
        halves = [number for number in range(len(models)) if number % 2 == night % 2]
        entries = tuple(_entry(models[number], runs[number], draw) for number in halves)
        left_out = tuple(item.name for number, item in enumerate(models) if number % 2 != night % 2)
        result = SweepResult(sweep, "big", models=entries, not_run=left_out)
        store.sweeps.finish(sweep, "finished", result.to_json())


def _entry(item: ZooItem, run: str, draw: random.Random) -> SweepEntry:
    ratio = draw.gauss(0.5, 0.01)
    metrics = {"latency_p50": 2.0 * ratio, "size": 1000.0, "accuracy": 0.9}
    intervals = {name: Estimate(value, 0.98 * value, 1.02 * value) for name, value in metrics.items()}
    ratios = {"latency_p50": Estimate(ratio, 0.98 * ratio, 1.02 * ratio), "size": Estimate.exact(0.25)}
    best = ModelResult(artifact="b" * 64, chain="simplify", metrics=metrics, intervals=intervals, ratios=ratios)
    baseline = Baseline("a" * 64, metrics={**metrics, "latency_p50": draw.gauss(2.0, 0.02)}, intervals=intervals)
    objectives = (Objective("latency_p50", "minimize"),)
    return SweepEntry(
        item.name,
        "ok",
        path=item.path,
        listed=item.listed,
        called=item.called,
        result=RunResult(run, "finished", best=best, baseline=baseline, objectives=objectives),
        environment=environment(),
        inputs={"model": "a" * 8, "DAG": "b" * 8},
        seconds=draw.uniform(5.0, 60.0),
        compared=EntryComparison("same"),
    )


def timed(text: str, work: Callable[[], T]) -> T:
    """Do work and print the seconds that it took by the clock and by the CPU."""
    began, began_cpu = time.monotonic(), time.process_time()
    result = work()
    print(f"{time.monotonic() - began:8.3f} s  {time.process_time() - began_cpu:8.3f} s of CPU  {text}", flush=True)
    return result


def write_zoo(folder: Path, models: int) -> Path:
    """Write a zoo over a folder of model files, which are only read as bytes here."""
    for number in range(models):
        path = folder / "models" / f"model-{number:05d}" / "model.onnx"
        path.parent.mkdir(parents=True)
        path.write_bytes(f"model {number}".encode())
    (folder / "dag.yaml").write_text(DAG)
    (folder / "zoo.yaml").write_text(LINES)
    return folder / "zoo.yaml"


def main() -> None:
    """Fill a store and print a line for each piece of work."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=1000)
    parser.add_argument("--nights", type=int, default=30)
    parser.add_argument("--url")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, open_store(options.url, Path(name, "home")) as store:
        file = write_zoo(Path(name), options.models)
        zoo = timed("check the zoo file", lambda: check_zoo(file))
        models = timed("list the models", lambda: items(zoo, store.home))
        timed("read each model's DAG", lambda: [dag_of(zoo, item, None) for item in models])
        timed("(write the generated nights)", lambda: fill(store, models, options.nights))
        history = SweepHistory(zoo, store)
        timed("the entries to compare with", lambda: history.references("", models))
        timed("the last entries", lambda: history.last_entries(""))
        timed("models that vanished", lambda: history.missing_models("", None, models))
        timed("nights that left models out", lambda: history.nights_left_out("", None))
        nights = timed("read all nights", lambda: stored_nights(store, "big", options.nights))
        past = timed("the history of each model", lambda: history_of("big", nights))
        page = timed("the page of the zoo", lambda: nights_html(past))
        sweep = timed("the page of a night", lambda: sweep_html(nights[-1].result))
        timed("store gc", lambda: collect(store, dry_run=True))
        megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        print(f"page {len(page) / 1e6:.1f} MB, night {len(sweep) / 1e6:.1f} MB, peak of the process {megabytes:.0f} MB")


if __name__ == "__main__":
    main()
