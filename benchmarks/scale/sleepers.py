"""Scheduling overhead of a run in one process: passes only sleep, so the processor is not the limit.

    python -m benchmarks.scale.sleepers [--engine inline|prefect] [--trials 24] [--seconds 1.0]

Prints for each number of workers (--workers 1 2 4): wall time of the search, its efficiency beside the ideal and beside
the first number, overhead per trial.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from autoopt.api import execute
from autoopt.problem.run_request import RunRequest

CHAINS = 4
SCRIPT = '''\
import time

from autoopt import register


@register("sleeper")
def sleeper(model, seconds: float = 1.0, number: int = 0):
    """Sleep and change nothing."""
    time.sleep(seconds)
'''


def model(path: Path) -> Path:
    """Write a model of one MatMul; return its path."""
    weights = numpy_helper.from_array(np.ones((4, 4), np.float32), "w")
    shapes = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", shapes[:1], shapes[1:], [weights])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    proto.ir_version = 8
    path.write_bytes(proto.SerializeToString())
    return path


def dag(folder: Path, trials: int, seconds: float) -> dict[str, Any]:
    """Return a DAG of four chains with one sleeping pass each; trials differ in a parameter without effect."""
    numbers = {"search": list(range(trials // CHAINS))}
    return {
        "name": "sleepers",
        "user_script": str(folder / "sleepers_script.py"),
        "passes": {
            f"s{c}": {"pass": "sleeper", "params": {"seconds": seconds + c * 1e-6, "number": numbers}}
            for c in range(CHAINS)
        },
        "chains": [[f"s{c}"] for c in range(CHAINS)],
        "constraints": [],
        "search": {"strategy": "per-chain", "sampler": "exhaustive", "trials": trials},
        "measurement": {"seconds": 0.2, "replicas": 2, "target_width": 1.0},
    }


def measure_run(folder: Path, engine: str, workers: int, trials: int, seconds: float) -> dict[str, float]:
    """Run once; return the seconds of the whole run (`all`) and of its search (`search`)."""
    home = folder / f"{engine}-{workers}"
    request = RunRequest(dag=dag(folder, trials, seconds), model=folder / "model.onnx", home=home, workers=workers)
    began = time.monotonic()
    result = execute(request, engine)  # type: ignore[arg-type]
    assert result.trial_counts["total"] == trials, result.trial_counts
    return {"all": time.monotonic() - began, "search": result.seconds["search"]}


def main() -> None:
    """Measure and print one line per number of workers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", default="inline")
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    options = parser.parse_args()
    if options.trials % CHAINS:
        parser.error(f"--trials must be a multiple of {CHAINS}, the number of chains")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "sleepers_script.py").write_text(SCRIPT)
        model(folder / "model.onnx")
        first = 0.0
        print(f"{options.engine}: {options.trials} trials of {options.seconds} s")
        for workers in options.workers:
            took = measure_run(folder, options.engine, workers, options.trials, options.seconds)
            first = first or took["search"] * workers
            ideal = options.trials * options.seconds / workers
            overhead = 1000 * (took["search"] - ideal) * workers / options.trials
            print(
                f"{workers} workers: search {took['search']:.2f} s, "
                f"efficiency {ideal / took['search']:.3f} of the ideal, "
                f"{first / took['search'] / workers:.3f} of the first, overhead {overhead:.0f} ms a trial, "
                f"whole run {took['all']:.1f} s"
            )


if __name__ == "__main__":
    main()
