"""Time the packages of table.py again, each in fresh processes: does the gain that a run said lie in its interval?

    python benchmarks/zoo/again.py OUT [MODEL ...] [--processes 10] [--seconds 6]

OUT is table.py's, which has measured the models. Each process is the package's own `run.py`: source and model in turns,
with the threads of the run. The processes of a model are spread over the whole time. Prints a Markdown table:
the factor by which the model is faster as said and as timed again, and whether the latter lies in the interval said.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from autoopt.results import ModelResult, RunResult

METRIC = "latency_p50"
FACTOR = re.compile(r"^Here ([\d.]+)x (faster|slower)", re.MULTILINE)


def chosen(out: Path, names: Sequence[str]) -> dict[str, ModelResult]:
    """The models that the runs chose in place of their source."""
    found = {}
    for path in sorted((out / "runs").glob("*.json")):
        best = RunResult.from_json(json.loads(path.read_text())).best
        if best is not None and not best.is_source and METRIC in best.ratios and (not names or path.stem in names):
            found[path.stem] = best
    return found


def factor_in_fresh_process(package: Path, seconds: float) -> float:
    """The factor by which the model is faster than its source."""
    command = [sys.executable, str(package / "run.py"), "--seconds", str(seconds)]
    text = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout
    found = FACTOR.search(text)
    if found is None:
        raise SystemExit(f"{package}: run.py says no factor: {text}")
    factor = float(found[1])
    return factor if found[2] == "faster" else 1 / factor


def row(name: str, best: ModelResult, factors: Sequence[float]) -> str:
    """A line of the table."""
    said = best.ratios[METRIC]
    logs = np.log(factors)
    error = float(np.std(logs, ddof=1)) / len(logs) ** 0.5
    again = float(np.exp(np.mean(logs)))
    inside = 1 / said.high <= again <= 1 / said.low
    cells = [name, f"{1 / said.value:.3f} ({1 / said.high:.3f} to {1 / said.low:.3f})"]
    cells += [f"{again:.3f} (standard error {100 * error:.1f} %)", "yes" if inside else "no"]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Time the packages in turns and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--processes", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=6)
    options = parser.parse_args()
    models = chosen(options.out, options.models)
    factors: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(options.processes):
        for name, found in factors.items():
            found.append(factor_in_fresh_process(options.out / "packages" / name, options.seconds))
    print("| model | times faster as said | again | inside |\n|---|---|---|---|")
    for name, best in models.items():
        print(row(name, best, factors[name]))


if __name__ == "__main__":
    main()
