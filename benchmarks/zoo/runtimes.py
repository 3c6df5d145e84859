"""The runtimes of a machine over a zoo: what `autoopt run` makes of each model on each, with integers and without.

    python benchmarks/zoo/runtimes.py FOLDER OUT --runtime PYTHON [--minutes 0.5] [MODEL ...]

FOLDER/NAME has model.onnx, evaluation.npz and, where there is one, calibration.npz. Each model is run twice for these
minutes, with --precision fp32 and without it, on an empty store. Needs a quiet machine. OUT gets the document of each
run, and runtimes.csv with rows as in docs/results.csv; a table goes to standard output. Models with documents there are
not run again.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from autoopt.report.words.steps import chain_text
from autoopt.results import ModelResult, RunResult

MEASURE = "latency_p50"
PRECISIONS = {"floats": ["--precision", "fp32"], "integers too": []}
"""What a run may use, and the options of the command."""
FIELDS = ("table", "model", "variant", "measure", "value", "low", "high", "keeps_quality", "note")


def run(options: argparse.Namespace, model: str, precision: str) -> RunResult | None:
    """Run a model unless its document is there; None if that failed."""
    document: Path = options.out / f"{model}, {precision}.json"
    if not document.exists():
        folder = options.folder / model
        command = [sys.executable, "-m", "autoopt", "run", str(folder / "model.onnx"), "--quiet", "--json"]
        command += ["--data", str(folder / "evaluation.npz"), "--minutes", str(options.minutes)]
        command += ["--runtime", str(options.runtime), *PRECISIONS[precision]]
        if (folder / "calibration.npz").exists():
            command += ["--calibration", str(folder / "calibration.npz")]
        with tempfile.TemporaryDirectory() as home:
            command += ["--out", str(Path(home) / "out")]
            environment = {**os.environ, "AUTOOPT_HOME": home}
            done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if done.returncode not in (0, 1):
            print(f"{model}: {done.stderr.strip()}", file=sys.stderr)
            return None
        document.write_text(done.stdout)
    return RunResult.from_json(json.loads(document.read_text()))


def timed_models(result: RunResult) -> Iterator[tuple[str, ModelResult | None]]:
    """The best model of each target as it was timed beside the default session; None if it is what runs there now.

    A target whose models break the limits, or that was not timed in time, is left out.
    """
    assert result.choice is not None, "a run over several targets"
    first, *_ = result.targets
    if first.result.best is not None and first.result.best.is_source:
        yield first.name, None
    for target in result.targets:
        if target.name in result.choice.models:
            yield target.name, result.choice.models[target.name]


def rows_of(name: str, precision: str, result: RunResult) -> Iterator[dict[str, object]]:
    """The rows of one run."""
    common = {"table": "runtimes", "model": name}
    yield {**common, "variant": "default", "measure": "ms", "value": f"{result.baseline.metrics[MEASURE]:.4g}"}
    for target, model in timed_models(result):
        row: dict[str, object] = {**common, "variant": f"{target}, {precision}", "measure": "time ratio"}
        if model is None:
            yield {**row, "value": "1.000", "note": "source"}
            continue
        ratio = model.ratios[MEASURE]
        ends = {"low": f"{ratio.low:.3f}", "high": f"{ratio.high:.3f}"}
        note = "source" if model.is_source else chain_text(model)
        yield {**row, "value": f"{ratio.value:.3f}", **ends, "keeps_quality": "yes", "note": note}


def show(rows: list[dict[str, object]]) -> None:
    """Print the time ratios as a table, a model in each row."""
    ratios = [row for row in rows if row["measure"] == "time ratio"]
    variants = list(dict.fromkeys(row["variant"] for row in ratios))
    print(f"| model | {' | '.join(map(str, variants))} |\n|{'---|' * (len(variants) + 1)}")
    for model in dict.fromkeys(row["model"] for row in ratios):
        found = {row["variant"]: row["value"] for row in ratios if row["model"] == model}
        print(f"| {model} | {' | '.join(str(found.get(variant, '-')) for variant in variants)} |")


def main() -> None:
    """Run the models and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--runtime", type=Path, required=True, metavar="PYTHON")
    parser.add_argument("--minutes", type=float, default=0.5)
    options = parser.parse_intermixed_args()
    options.out.mkdir(parents=True, exist_ok=True)
    models = options.models or sorted(path.parent.name for path in options.folder.glob("*/model.onnx"))
    rows: list[dict[str, object]] = []
    for model in models:
        for precision in PRECISIONS:
            result = run(options, model, precision)
            if result is not None:
                rows += rows_of(model, precision, result)
        print(model, file=sys.stderr, flush=True)
    with (options.out / "runtimes.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, restval="")
        writer.writeheader()
        writer.writerows(rows)
    show(rows)


if __name__ == "__main__":
    main()
