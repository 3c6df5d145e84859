"""Optimise models of a zoo, each with a pass graph that suits it, and print the table of the README.

    python benchmarks/zoo/run.py FOLDER [MODEL[=DAG] ...] [--trials N] [--minutes M] [--json FILE]

FOLDER holds a folder for each model: `model.onnx`, `evaluation.npz` (one array per input, `labels` where there are),
optionally `calibration.npz`. A model without a DAG takes the one of `SUITED`, else dags/cpu_cnn.yaml. Everything goes
through the same command that a user would type, and that command stands below the table.
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

from autoopt.report.figures import is_quality, metrics_of
from autoopt.report.formatting import metric_text, ratio_text
from autoopt.report.run import chain_text
from autoopt.results import ModelResult, RunResult

DAGS = Path(os.path.relpath(Path(__file__).parents[2] / "dags"))
SUITED = {
    "cifar10_resnet8": "cpu_cnn",
    "magika_v3_3": "cpu_cnn",
    "sms_transformer": "cpu_transformer",
    "dtln_stage1": "cpu_transformer",
}
COLUMNS = ("model", "source", "best chain and its parameters", "latency ratio", "size ratio", "quality: source, best")


def command(folder: Path, model: str, dag: Path, options: Sequence[str]) -> list[str]:
    """What a user types for one model."""
    here = folder / model
    words = ["autoopt", "run", str(dag), "--model", str(here / "model.onnx"), "--data", str(here / "evaluation.npz")]
    if (here / "calibration.npz").exists():
        words += ["--calibration", str(here / "calibration.npz")]
    return [*words, "--out", f"out/{model}", *options]


def run(words: Sequence[str]) -> dict[str, Any]:
    """Run the command; its result document. Progress goes to standard error."""
    done = subprocess.run([sys.executable, "-m", *words, "--json"], stdout=subprocess.PIPE, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{shlex.join(words)} ended with {done.returncode}")
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def row(model: str, document: Mapping[str, Any]) -> str:
    """One line of the table."""
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
    """The quality metrics of the source and of the best model: `accuracy 0.9950, 0.9940`."""
    texts = []
    for name in metrics_of(result):
        if is_quality(name):
            values = [metrics[name] for metrics in (result.baseline.metrics, best.metrics) if name in metrics]
            texts.append(f"{name} {', '.join(metric_text(name, value) for value in values)}")
    return "; ".join(texts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", nargs="*", default=list(SUITED), metavar="MODEL[=DAG]")
    parser.add_argument("--trials", type=int)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--engine", default="inline")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all result documents there")
    asked = parser.parse_args()
    options = ["--engine", asked.engine]
    for name in ("trials", "minutes"):
        if getattr(asked, name) is not None:
            options += [f"--{name}", str(getattr(asked, name))]
    lines, commands, documents = [], [], {}
    for item in asked.models:
        model, _, dag = item.partition("=")
        words = command(
            asked.folder, model, Path(dag) if dag else DAGS / f"{SUITED.get(model, 'cpu_cnn')}.yaml", options
        )
        documents[model] = run(words)
        lines.append(row(model, documents[model]))
        commands.append(shlex.join(words))
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    print("\n".join([*lines, "", *(f"    {text}" for text in commands)]))
    if asked.json:
        asked.json.write_text(json.dumps(documents, indent=2))


if __name__ == "__main__":
    main()
