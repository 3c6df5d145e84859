"""Models optimised by hand beside onnxruntime's own tools: what `autoopt run` has to reach.

    python benchmarks/zoo/by_hand.py FOLDER MODEL... [--extra DIR] [--repeats N] [--json FILE]

FOLDER is that of run.py. For each model the script makes `quantize_dynamic` and `quantize_static` (QDQ, with
onnxruntime's defaults), the recipes of `BY_HAND`, and the result of Olive where `olive` is installed. It times all of
them in turns, with onnxruntime's default session options, and prints a Markdown table: median latency, its ratio to the
source model, size and quality. Quality is accuracy where there are labels, else cosine similarity to the source.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

Feed = dict[str, np.ndarray]
WARM_UP = 3
CALIBRATION_ITEMS = 100
CHECKED_ITEMS = 500


@dataclass(frozen=True)
class Row:
    """One model of the table. Times in ms, sizes in bytes."""

    model: str
    variant: str
    latency: float
    ratio: float
    size: int
    quality: float


class Items(CalibrationDataReader):
    """Calibration items, one at a time."""

    def __init__(self, feeds: Sequence[Feed]) -> None:
        self._feeds = iter(feeds)

    def get_next(self) -> Feed | None:
        return next(self._feeds, None)


@dataclass(frozen=True)
class Task:
    """A model of the zoo with its data."""

    path: Path
    evaluation: list[Feed]
    calibration: list[Feed]
    labels: np.ndarray | None


Recipe = Callable[[Task, Path], None]
"""Writes an optimised model to a path."""


def dynamic(task: Task, path: Path) -> None:
    """Quantize dynamically with onnxruntime's defaults."""
    quantize_dynamic(task.path, path)


def static(task: Task, path: Path) -> None:
    """Quantize statically with onnxruntime's defaults, after its own preparation."""
    prepared = path.with_name("prepared.onnx")
    quant_pre_process(task.path, prepared, skip_symbolic_shape=True)
    quantize_static(prepared, path, Items(task.calibration))


def static_for_x86(task: Task, path: Path) -> None:
    """Unsigned activations and signed weights per channel, which the integer products of x86 CPUs take."""
    prepared = path.with_name("prepared.onnx")
    quant_pre_process(task.path, prepared, skip_symbolic_shape=True)
    options = {"quant_format": QuantFormat.QDQ, "activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
    quantize_static(prepared, path, Items(task.calibration), per_channel=True, **options)


def static_products(task: Task, path: Path) -> None:
    """As `static_for_x86`, for convolutions and matrix products only."""
    prepared = path.with_name("prepared.onnx")
    quant_pre_process(task.path, prepared, skip_symbolic_shape=True)
    options = {"quant_format": QuantFormat.QDQ, "activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
    ops = ["Conv", "Gemm", "MatMul"]
    quantize_static(prepared, path, Items(task.calibration), per_channel=True, op_types_to_quantize=ops, **options)


def dynamic_products(task: Task, path: Path) -> None:
    """Dynamic quantization per channel of matrix products and LSTMs, after shape inference."""
    prepared = path.with_name("prepared.onnx")
    quant_pre_process(task.path, prepared, skip_symbolic_shape=True)
    quantize_dynamic(prepared, path, per_channel=True, op_types_to_quantize=["MatMul", "Attention", "LSTM"])


BY_HAND: dict[str, Recipe] = {
    "quantize_dynamic": dynamic,
    "quantize_static": static,
    "by hand: static, x86 types, per channel": static_for_x86,
    "by hand: static, Conv and products only": static_products,
    "by hand: dynamic, products, per channel": dynamic_products,
}


def olive(task: Task, path: Path) -> None:
    """Let Olive's command line optimise the model for the CPU."""
    folder = path.parent / "olive"
    words = ["olive", "auto-opt", "-m", str(task.path), "-o", str(folder), "--device", "cpu", "--precision", "int8"]
    subprocess.run(words, check=True, capture_output=True)
    shutil.copyfile(next(folder.rglob("*.onnx")), path)


def read_task(folder: Path) -> Task:
    """Read a model's folder."""
    path = folder / "model.onnx"
    session = onnxruntime.InferenceSession(path)
    names = [value.name for value in session.get_inputs()]
    evaluation, labels = _feeds(folder / "evaluation.npz", names)
    calibration_file = folder / "calibration.npz"
    calibration = evaluation
    if calibration_file.exists():
        calibration, _ = _feeds(calibration_file, names)
    return Task(path, evaluation[:CHECKED_ITEMS], calibration[:CALIBRATION_ITEMS], labels)


def _feeds(file: Path, names: Sequence[str]) -> tuple[list[Feed], np.ndarray | None]:
    arrays = np.load(file)
    count = len(arrays[names[0]])
    feeds = [{name: arrays[name][index : index + 1] for name in names} for index in range(count)]
    labels = arrays["labels"] if "labels" in arrays.files and arrays["labels"].ndim == 1 else None
    return feeds, labels


def open_session(path: Path) -> onnxruntime.InferenceSession:
    """Open a model with onnxruntime's default options."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options)


def quality(session: onnxruntime.InferenceSession, task: Task, expected: list[np.ndarray]) -> float:
    """Accuracy on the labels; without labels, the lowest cosine similarity of an item to the source's outputs."""
    outputs = run_all(session, task)
    if task.labels is not None:
        right = [int(np.argmax(output)) == label for output, label in zip(outputs, task.labels, strict=False)]
        return float(np.mean(right))
    similarities = []
    for output, source in zip(outputs, expected, strict=True):
        norm = float(np.linalg.norm(output) * np.linalg.norm(source))
        similarities.append(float(output @ source) / norm if norm else 1.0)
    return min(similarities)


def run_all(session: onnxruntime.InferenceSession, task: Task) -> list[np.ndarray]:
    """All float outputs of each item, as one flat array; the largest one where there are labels."""
    flat = []
    for feed in task.evaluation:
        arrays = [np.asarray(array, np.float32).ravel() for array in session.run(None, feed) if _is_float(array)]
        flat.append(max(arrays, key=len) if task.labels is not None else np.concatenate(arrays))
    return flat


def _is_float(array: object) -> bool:
    return isinstance(array, np.ndarray) and np.issubdtype(array.dtype, np.floating)


def time_in_turns(sessions: dict[str, onnxruntime.InferenceSession], feed: Feed, repeats: int) -> dict[str, float]:
    """Median time of an inference of each session, in ms."""
    times: dict[str, list[float]] = {name: [] for name in sessions}
    for turn in range(repeats + WARM_UP):
        for name, session in sessions.items():
            session.run(None, feed)  # warms the caches that the other sessions have evicted
            began = time.perf_counter()
            session.run(None, feed)
            if turn >= WARM_UP:
                times[name].append(1000 * (time.perf_counter() - began))
    return {name: float(np.median(values)) for name, values in times.items()}


def rows_of(folder: Path, extra: dict[str, Path], repeats: int) -> list[Row]:
    """Make, check and time all variants of a model; `extra` are finished ones by name."""
    task = read_task(folder)
    recipes = dict(BY_HAND)
    if shutil.which("olive"):
        recipes["Olive auto-opt"] = olive
    with tempfile.TemporaryDirectory() as work:
        paths = {"source": task.path}
        for number, (name, recipe) in enumerate(recipes.items()):
            path = Path(work, str(number), "model.onnx")
            path.parent.mkdir()
            try:
                recipe(task, path)
                open_session(path).run(None, task.evaluation[0])
            except Exception as error:  # tools fail in many ways; the others go on
                print(f"{folder.name}, {name}: {type(error).__name__}: {error}"[:300], file=sys.stderr)
                continue
            paths[name] = path
        paths |= extra
        sessions = {name: open_session(path) for name, path in paths.items()}
        expected = run_all(sessions["source"], task)
        times = time_in_turns(sessions, task.evaluation[0], repeats)
        rows = []
        for name, session in sessions.items():
            ratio = times[name] / times["source"]
            score = quality(session, task, expected)
            rows.append(Row(folder.name, name, times[name], ratio, onnx.load(paths[name]).ByteSize(), score))
        return rows


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument(
        "--extra", type=Path, metavar="DIR", help="also DIR/MODEL/model.onnx, as `autoopt`, where it exists"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    options = parser.parse_args()
    rows = []
    print("| model | variant | latency, ms | ratio | size ratio | quality |\n|---|---|---|---|---|---|")
    for model in options.models:
        extra = {}
        if options.extra and (options.extra / model / "model.onnx").exists():
            extra["autoopt"] = options.extra / model / "model.onnx"
        for row in rows_of(options.folder / model, extra, options.repeats):
            size = row.size / (options.folder / model / "model.onnx").stat().st_size
            print(
                f"| {row.model} | {row.variant} | {row.latency:.3f} | {row.ratio:.3f}x | {size:.3f}x "
                f"| {row.quality:.4f} |"
            )
            rows.append(row)
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=2))


if __name__ == "__main__":
    main()
