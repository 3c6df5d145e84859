"""Optimize models of a zoo, each with a suitable DAG, and print the results as a Markdown table.

    python benchmarks/zoo/run.py FOLDER [MODEL[=DAG] ...] [--trials N] [--minutes M] [--json FILE]

FOLDER has one folder per model with `model.onnx`, `evaluation.npz` (one array per input, optionally `labels`) and,
optionally, `calibration.npz`. A model without a DAG uses the one in `DEFAULT_DAGS`, or dags/cpu_cnn.yaml. Each model is
optimized by the `autoopt run` command that is printed below the table.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autoopt.report.words.figures import chain_text, is_quality, metrics_of
from autoopt.report.words.formatting import metric_text, ratio_text
from autoopt.results import ModelResult, RunResult

DAGS = Path(os.path.relpath(Path(__file__).parents[2] / "dags"))
DEFAULT_DAGS = {
    "cifar10_resnet8": "cpu_cnn",
    "magika_v3_3": "cpu_cnn",
    "sms_transformer": "cpu_transformer",
    "dtln_stage1": "cpu_transformer",
}
COLUMNS = ("model", "source", "best chain and its parameters", "latency ratio", "size ratio", "quality: source, best")


def command(folder: Path, model: str, dag: Path, options: Sequence[str]) -> list[str]:
    """Return the `autoopt run` command of a model."""
    model_folder = folder / model
    words = ["autoopt", "run", str(dag), "--model", str(model_folder / "model.onnx")]
    words += ["--data", str(model_folder / "evaluation.npz")]
    if (model_folder / "calibration.npz").exists():
        words += ["--calibration", str(model_folder / "calibration.npz")]
    return [*words, "--out", f"out/{model}", *options]


def run(words: Sequence[str]) -> dict[str, Any]:
    """Run the command, with progress on standard error; return its result document."""
    process = subprocess.run([sys.executable, "-m", *words, "--json"], stdout=subprocess.PIPE, check=False)
    if process.returncode not in (0, 1):
        raise SystemExit(f"{shlex.join(words)} ended with {process.returncode}")
    document: dict[str, Any] = json.loads(process.stdout)
    return document


def row(model: str, document: Mapping[str, Any]) -> str:
    """Return a row of the table."""
    result = RunResult.from_json(document)
    latency, best = result.baseline.metrics.get("latency_p50"), result.best
    cells = [model, metric_text("latency_p50", latency) if latency else "-"]
    if best is None:
        cells += ["none meets the constraints", "-", "-", "-"]
    else:
        ratios = [ratio_text(best.ratios[name]) if name in best.ratios else "-" for name in ("latency_p50", "size")]
        cells += [chain_text(best).removesuffix(" *"), *ratios, quality(result, best)]
    return f"| {' | '.join(cells)} |"


def quality(result: RunResult, best: ModelResult) -> str:
    """Return the quality metrics of the source and of the best model, such as `accuracy 0.9950, 0.9940`."""
    texts = []
    for name in metrics_of(result):
        if is_quality(name):
            values = [metrics[name] for metrics in (result.baseline.metrics, best.metrics) if name in metrics]
            texts.append(f"{name} {', '.join(metric_text(name, value) for value in values)}")
    return "; ".join(texts)


def main() -> None:
    """Optimize the models and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", nargs="*", default=list(DEFAULT_DAGS), metavar="MODEL[=DAG]")
    parser.add_argument("--trials", type=int)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--engine", default="inline")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all result documents there")
    options = parser.parse_args()
    run_options = ["--engine", options.engine]
    for name in ("trials", "minutes"):
        if getattr(options, name) is not None:
            run_options += [f"--{name}", str(getattr(options, name))]
    lines, commands, documents = [], [], {}
    for item in options.models:
        model, _, dag = item.partition("=")
        dag_file = Path(dag) if dag else DAGS / f"{DEFAULT_DAGS.get(model, 'cpu_cnn')}.yaml"
        words = command(options.folder, model, dag_file, run_options)
        documents[model] = run(words)
        lines.append(row(model, documents[model]))
        commands.append(shlex.join(words))
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    print("\n".join([*lines, "", *(f"    {text}" for text in commands)]))
    if options.json:
        options.json.write_text(json.dumps(documents, indent=2))


if __name__ == "__main__":
    main()
