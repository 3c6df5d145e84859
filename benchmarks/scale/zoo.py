"""Query times of a store that holds a large zoo.

    python -m benchmarks.scale.zoo [--models 1000] [--chains 20] [--trials 2] [--url postgresql://...]

Fills the store with generated rows, then runs the queries of pages and commands. Prints the number of rows, the size,
the seconds to write them, and the seconds of each query.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from autoopt.metrics import Estimate
from autoopt.model.candidate import Candidate
from autoopt.outcome import Outcome
from autoopt.results import Trial
from autoopt.store import ChainRecord, ModelRecord, RunRecord, Store, open_store
from autoopt.store.maintenance.stats import stats
from autoopt.store.records import SweepRecord


def fill(store: Store, folder: Path, models: int, chains: int, trials: int) -> str:
    """Add one sweep over `models` models; return its id."""
    sweep = store.sweeps.create(SweepRecord(id="", name="big")).id
    for m in range(models):
        model_folder = folder / str(m)
        model_folder.mkdir()
        (model_folder / "model.onnx").write_bytes(f"model {m}".encode())
        digest = store.artifacts.put(model_folder)
        store.models.add(ModelRecord(artifact=digest, name=f"model-{m}"))
        ids = [f"{m:08d}{c:08d}" for c in range(chains)]
        run = store.runs.create(
            RunRecord(id="", name=f"model-{m}", identity=f"{m:064d}", model=digest, plan={"m": m}, sweep=sweep),
            [ChainRecord(id=i, name=f"a -> b{c}") for c, i in enumerate(ids)],
        ).id
        ratio = {"latency_p50": Estimate(0.5, 0.49, 0.51), "size": Estimate.exact(0.25)}
        rows = [
            Trial(
                run=run,
                number=n,
                chain_id=ids[n % chains],
                point={"b": {"x": n}},
                status="done",
                outcome=Outcome.OK,
                candidate=Candidate(digest),
                ratios=ratio,
                metrics=ratio,
            )
            for n in range(chains * trials)
        ]
        for row in rows:
            store.trials.finish(row)
        best = {"artifact": digest, "chain": "a -> b0", "metrics": {"latency_p50": 0.5}, "ratios": {}}
        store.runs.finish(run, "finished", {"run": run, "status": "finished", "best": best})
    entry = {"name": "m", "status": "ok", "compared": {"verdict": "same", "changes": []}, "best": best}
    store.sweeps.finish(sweep, "finished", {"models": [{**entry, "name": f"model-{m}"} for m in range(models)]})
    return sweep


def main() -> None:
    """Fill a store and print one line per query."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in (("models", 1000), ("chains", 20), ("trials", 2)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--url")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, open_store(options.url, Path(name, "home")) as store:
        began = time.monotonic()
        sweep = fill(store, Path(name), options.models, options.chains, options.trials)
        wrote = time.monotonic() - began
        statistics = stats(store)
        print(f"{statistics.rows}, {statistics.database_bytes / 1e6:.1f} MB, written in {wrote:.1f} s")
        run = store.runs.get("latest").id
        queries: dict[str, Callable[[], Any]] = {
            "all runs": store.runs.all,
            "the newest 20 runs": lambda: store.runs.newest(20),
            "the lineage of a model": lambda: store.lineage.trace(Candidate(store.runs.get("latest").model)),
            "the runs of the sweep": lambda: store.runs.all(sweep=sweep),
            "the latest finished run of a request": lambda: store.runs.latest_finished(f"{options.models // 2:064d}"),
            "the latest run": lambda: store.runs.get("latest"),
            "a run's chains": lambda: store.runs.chains(run),
            "a run's trials": lambda: store.trials.all(run),
            "the sweeps with their models": lambda: list(store.sweeps.all("big")),
            "all models": store.models.all,
            "the statistics": lambda: stats(store),
        }
        for text, query in queries.items():
            began = time.monotonic()
            query()
            print(f"{time.monotonic() - began:8.3f} s  {text}")


if __name__ == "__main__":
    main()
