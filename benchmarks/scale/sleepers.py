"""How well trials are scheduled: passes that only sleep, so that not the processor but the scheduling is measured.

    python -m benchmarks.scale.sleepers [--engine inline|prefect] [--trials 24] [--seconds 1.0]

Prints, for 1, 2 and 4 workers: wall time of the search, efficiency against one worker, overhead per trial.
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
from autoopt.engine.inputs.request import RunRequest

SCRIPT = '''\
import time

from autoopt import register


@register("sleeper")
def sleeper(model, seconds: float = 1.0, number: int = 0):
    """Sleeps and changes nothing."""
    time.sleep(seconds)
'''


def model(path: Path) -> Path:
    """The smallest model that does something."""
    weights = numpy_helper.from_array(np.ones((4, 4), np.float32), "w")
    shapes = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", shapes[:1], shapes[1:], [weights])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 8
    path.write_bytes(made.SerializeToString())
    return path


def dag(folder: Path, trials: int, seconds: float) -> dict[str, Any]:
    """Four chains of one sleeping pass each; the trials differ in a number that does nothing."""
    chains = 4
    searched = {"search": list(range(trials // chains))}
    return {
        "name": "sleepers",
        "user_script": str(folder / "sleepers_script.py"),
        "passes": {
            f"s{c}": {"pass": "sleeper", "params": {"seconds": seconds + c * 1e-6, "number": searched}}
            for c in range(chains)
        },
        "chains": [[f"s{c}"] for c in range(chains)],
        "constraints": [],
        "search": {"strategy": "per-chain", "sampler": "exhaustive", "trials": trials},
        "measurement": {"seconds": 0.2, "replicas": 2, "target_width": 1.0},
    }


def one(folder: Path, engine: str, workers: int, trials: int, seconds: float) -> dict[str, float]:
    """Seconds of one run: in all, and of its search alone."""
    home = folder / f"{engine}-{workers}"
    request = RunRequest(dag=dag(folder, trials, seconds), model=folder / "model.onnx", home=home, workers=workers)
    began = time.monotonic()
    result = execute(request, out=None, engine=engine)  # type: ignore[arg-type]
    assert result.trials["total"] == trials, result.trials
    return {"all": time.monotonic() - began, "search": result.seconds["search"]}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", default="inline")
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=1.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "sleepers_script.py").write_text(SCRIPT)
        model(folder / "model.onnx")
        alone = 0.0
        print(f"{asked.engine}: {asked.trials} trials of {asked.seconds} s")
        for workers in (1, 2, 4):
            took = one(folder, asked.engine, workers, asked.trials, asked.seconds)
            alone = alone or took["search"]
            ideal = asked.trials * asked.seconds / workers
            overhead = 1000 * (took["search"] - ideal) * workers / asked.trials
            print(
                f"{workers} workers: search {took['search']:.2f} s, "
                f"efficiency {ideal / took['search']:.3f} of the ideal, "
                f"{alone / took['search'] / workers:.3f} of one worker, overhead {overhead:.0f} ms a trial, "
                f"whole run {took['all']:.1f} s"
            )


if __name__ == "__main__":
    main()
