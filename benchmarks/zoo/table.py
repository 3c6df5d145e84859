"""One table of a zoo: by hand, Olive and onnxruntime's defaults beside what `autoopt run` chooses.

    python benchmarks/zoo/table.py prepare FOLDER OUT [MODEL ...] [--olive DIR]
    python benchmarks/zoo/table.py measure FOLDER OUT [MODEL ...] [--olive DIR] [--minutes 2] [--one-thread]
    python benchmarks/zoo/table.py show OUT
    python benchmarks/zoo/table.py again OUT [MODEL ...] [--processes 10] [--seconds 6]

FOLDER is by_hand.py's, DIR olive_chains.py's. `prepare` makes and judges all recipes of by_hand.py and keeps
the fastest; other programs may run meanwhile. `measure` does so for models that are not prepared, runs the command
`autoopt` on an empty store, and times its model, those recipes and the other tools' models in turns. It needs a quiet
machine (or --one-thread: CPU times), and torch for fusion by hand. Both leave out models that they have finished, so
they can be interrupted. `show` prints the table. `again` times each package with its own `run.py`
in fresh processes, those of a model spread over the whole time: does the gain lie in the interval that the run said?
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autoopt.report.words.steps import chain_text
from autoopt.results import RunResult

BY_HAND = Path(__file__).with_name("by_hand.py")
BEST = 5
"""Recipes that `prepare` keeps."""
COLUMNS = ("model", "dynamic", "static", "Olive", "best by hand", "autoopt", "seconds", "autoopt / best", "quality")
FACTOR = re.compile(r"^Here ([\d.]+)x (faster|slower)", re.MULTILINE)
SHORT = {"quantize_dynamic": "dynamic", "quantize_static": "static"}


def models_of(options: argparse.Namespace) -> list[str]:
    """The models that were named, or all of the folder."""
    if options.models:
        return list(options.models)
    return sorted(path.parent.name for path in options.folder.glob("*/model.onnx"))


def by_hand(options: argparse.Namespace, model: str, target: Path, words: Sequence[str]) -> None:
    """Run by_hand.py on a model; `target` gets its rows once it has ended well."""
    command = [sys.executable, str(BY_HAND), str(options.folder), model, "--work", str(options.out / "work"), *words]
    if options.olive is not None:
        command += ["--olive", str(options.olive)]
    unfinished = target.with_suffix(".part")
    log = target.with_suffix(".log")
    with log.open("w") as output:
        process = subprocess.run([*command, "--json", str(unfinished)], stdout=output, stderr=output, check=False)
    if process.returncode:
        print(f"{model}: by_hand.py ended with {process.returncode}; see {log}", file=sys.stderr)
        return
    unfinished.rename(target)


def run_autoopt(options: argparse.Namespace, model: str, target: Path) -> None:
    """Run autoopt on an empty store; `target` gets its result document."""
    folder = options.folder / model
    command = ["autoopt", "run", str(folder / "model.onnx"), "--quiet", "--json"]
    command += ["--data", str(folder / "evaluation.npz"), "--minutes", str(options.minutes)]
    command += ["--out", str(options.out / "packages" / model)]
    if (folder / "calibration.npz").exists():
        command += ["--calibration", str(folder / "calibration.npz")]
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "AUTOOPT_HOME": home}
        process = subprocess.run(command, stdout=subprocess.PIPE, env=environment, check=False)
    if process.returncode not in (0, 1):
        print(f"{model}: autoopt ended with {process.returncode}", file=sys.stderr)
        return
    target.write_bytes(process.stdout)


def prepare(options: argparse.Namespace) -> None:
    """Make and judge the recipes of all models, and keep the fastest."""
    for model in models_of(options):
        prepare_model(options, model)
        print(model, flush=True)


def prepare_model(options: argparse.Namespace, model: str) -> Path:
    """Make and judge the recipes of a model, unless that is done; return the file with the rows of the fastest."""
    target: Path = options.out / "prepared" / f"{model}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        by_hand(options, model, target, ["--one-thread", "--best", str(BEST), "--blocks", "8"])
    return target


def measure(options: argparse.Namespace) -> None:
    """Run autoopt on all models and time its answers."""
    for name in ("runs", "rows", "packages"):
        (options.out / name).mkdir(parents=True, exist_ok=True)
    for model in models_of(options):
        run, rows = options.out / "runs" / f"{model}.json", options.out / "rows" / f"{model}.json"
        if not run.exists():
            run_autoopt(options, model, run)
        known = prepare_model(options, model)
        if run.exists() and known.exists() and not rows.exists():
            words = ["--autoopt", str(options.out / "packages"), "--blocks", str(options.blocks), "--best", "1"]
            words += ["--known", str(known)]
            by_hand(options, model, rows, [*words, "--one-thread"] if options.one_thread else words)
        print(model, flush=True)
    show(options)


def show(options: argparse.Namespace) -> None:
    """Print the table of all models that are measured."""
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    for path in sorted((options.out / "rows").glob("*.json")):
        result = RunResult.from_json(json.loads((options.out / "runs" / path.name).read_text()))
        print(_line(json.loads(path.read_text()), result))


def again(options: argparse.Namespace) -> None:
    """Time the packages in fresh processes and compare the gains with those that the runs said."""
    said = {}
    for path in sorted((options.out / "runs").glob("*.json")):
        best = RunResult.from_json(json.loads(path.read_text())).best
        chosen = not options.models or path.stem in options.models
        if chosen and best is not None and not best.is_source:
            said[path.stem] = best.ratios["latency_p50"]
    logs: dict[str, list[float]] = {model: [] for model in said}
    for _ in range(options.processes):
        for model, found in logs.items():
            found.append(_log_of_gain(options.out / "packages" / model, options.seconds))
    print("| model | times faster as said | again | standard error | inside |\n|---|---|---|---|---|")
    for model, ratio in said.items():
        gain, error = np.exp(np.mean(logs[model])), np.std(logs[model], ddof=1) / len(logs[model]) ** 0.5
        inside = "yes" if 1 / ratio.high <= gain <= 1 / ratio.low else "no"
        interval = f"{1 / ratio.value:.3f} ({1 / ratio.high:.3f} to {1 / ratio.low:.3f})"
        print(f"| {model} | {interval} | {gain:.3f} | {100 * error:.1f} % | {inside} |")


def _log_of_gain(package: Path, seconds: float) -> float:
    """The logarithm of the factor by which the model is faster than its source, in a fresh process; nan without one."""
    command = [sys.executable, str(package / "run.py"), "--seconds", str(seconds)]
    text = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout
    found = FACTOR.search(text)
    if found is None:
        print(f"{package}: run.py says no factor: {text}", file=sys.stderr)
        return float("nan")
    factor = np.log(float(found[1]))
    return float(factor if found[2] == "faster" else -factor)


def _line(rows: Sequence[dict[str, Any]], result: RunResult) -> str:
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        name = SHORT.get(row["variant"], row["variant"].split(", ")[0] if "olive" in row["variant"] else "hand")
        if row["variant"] in ("source", "autoopt"):
            name = row["variant"]
        found.setdefault(name, row)
    best = min((found[name] for name in ("hand", "olive", "source") if name in found), key=lambda row: row["ratio"])
    autoopt = found["autoopt"]
    chain = "source"
    if result.best is not None and not result.best.is_source:
        chain = chain_text(result.best).partition(" [")[0].removesuffix(" *")
    cells = [rows[0]["model"], *(_ratio(found.get(name)) for name in ("dynamic", "static", "olive"))]
    cells += [f"{_ratio(found.get('hand'))}: {found['hand']['variant']}" if "hand" in found else "none"]
    cells += [
        f"{_ratio(autoopt)}: {chain}",
        f"{result.seconds['total']:.0f}",
        f"{autoopt['ratio'] / best['ratio']:.2f}",
    ]
    cells += [f"{best['quality']:.3f}, {autoopt['quality']:.3f}"]
    return f"| {' | '.join(cells)} |"


def _ratio(row: dict[str, Any] | None) -> str:
    if row is None:
        return "-"
    return f"{row['ratio']:.3f}x" if row["accepted"] else f"{row['ratio']:.3f}x, too low"


def main() -> None:
    """Carry out a command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for command in (prepare, measure):
        words = commands.add_parser(command.__name__, help=command.__doc__)
        words.set_defaults(command=command)
        words.add_argument("folder", type=Path)
        words.add_argument("out", type=Path)
        words.add_argument("models", nargs="*")
        words.add_argument("--olive", type=Path, metavar="DIR")
        words.add_argument("--minutes", type=float, default=2)
        words.add_argument("--blocks", type=int, default=30)
        words.add_argument("--one-thread", action="store_true")
    words = commands.add_parser("show", help=show.__doc__)
    words.set_defaults(command=show)
    words.add_argument("out", type=Path)
    words = commands.add_parser("again", help=again.__doc__)
    words.set_defaults(command=again)
    words.add_argument("out", type=Path)
    words.add_argument("models", nargs="*")
    words.add_argument("--processes", type=int, default=10)
    words.add_argument("--seconds", type=float, default=6)
    options = parser.parse_args()
    options.command(options)


if __name__ == "__main__":
    main()
