"""A large zoo in the store, and how long the questions take that pages and commands ask.

    python -m benchmarks.scale.zoo [--models 1000] [--chains 20] [--trials 2] [--url postgresql://...]

Rows are made up; what is measured is the store. Prints rows, bytes, seconds to write, and seconds of each question.
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
from autoopt.store import ChainRecord, ModelRecord, RunRecord, Store, TrialRecord, open_store
from autoopt.store.maintenance.stats import stats
from autoopt.store.records import SweepRecord


def fill(store: Store, folder: Path, models: int, chains: int, trials: int) -> str:
    """One sweep over `models` models; returns its id."""
    sweep = store.sweeps.create(SweepRecord(id="", name="big")).id
    for m in range(models):
        made = folder / str(m)
        made.mkdir()
        (made / "model.onnx").write_bytes(f"model {m}".encode())
        digest = store.artifacts.put(made)
        store.models.add(ModelRecord(artifact=digest, name=f"model-{m}"))
        ids = [f"{m:08d}{c:08d}" for c in range(chains)]
        run = store.runs.create(
            RunRecord(id="", name=f"model-{m}", identity=f"{m:064d}", model=digest, plan={"m": m}, sweep=sweep),
            [ChainRecord(id=i, name=f"a -> b{c}") for c, i in enumerate(ids)],
        ).id
        ratio = {"latency_p50": Estimate(0.5, 0.49, 0.51), "size": Estimate.exact(0.25)}
        rows = [
            TrialRecord(
                run=run,
                number=n,
                chain=ids[n % chains],
                point={"b": {"x": n}},
                status="done",
                outcome=Outcome.OK,
                candidate=Candidate(digest),
                ratios=ratio,
                metrics=ratio,
            )
            for n in range(chains * trials)
        ]
        store.trials.finish_all(rows)
        best = {"artifact": digest, "chain": "a -> b0", "metrics": {"latency_p50": 0.5}, "ratios": {}}
        store.runs.finish(run, "finished", {"run": run, "status": "finished", "best": best})
    entry = {"name": "m", "status": "ok", "compared": {"verdict": "same", "changes": []}, "best": best}
    store.sweeps.finish(sweep, "finished", {"models": [{**entry, "name": f"model-{m}"} for m in range(models)]})
    return sweep


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in (("models", 1000), ("chains", 20), ("trials", 2)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--url")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, open_store(asked.url, Path(name, "home")) as store:
        began = time.monotonic()
        sweep = fill(store, Path(name), asked.models, asked.chains, asked.trials)
        wrote = time.monotonic() - began
        counted = stats(store)
        print(f"{counted.rows}, {counted.database_bytes / 1e6:.1f} MB, written in {wrote:.1f} s")
        run = store.runs.get("latest").id
        questions: dict[str, Callable[[], Any]] = {
            "all runs": store.runs,
            "the runs of the sweep": lambda: store.runs.all(sweep=sweep),
            "a run that answers": lambda: store.runs.latest_finished(f"{asked.models // 2:064d}"),
            "the latest run": lambda: store.runs.get("latest"),
            "a run's chains": lambda: store.runs.chains(run),
            "a run's trials": lambda: store.trials.all(run),
            "the sweeps with their models": lambda: list(store.sweeps.all("big")),
            "all models": store.models,
            "the statistics": lambda: stats(store),
        }
        for text, ask in questions.items():
            began = time.monotonic()
            ask()
            print(f"{time.monotonic() - began:8.3f} s  {text}")


if __name__ == "__main__":
    main()
