"""Calibrate the default quality limit for data without labels.

    python benchmarks/quality/calibrate.py ZOO [--models a,b] [--results FILE]
    python benchmarks/quality/calibrate.py --table [--results FILE]

ZOO is a folder of folders with `model.onnx`, `evaluation.npz` with `labels`, and optionally `calibration.npz`. For
every model with labels, candidates of different strengths of quantization are made:

1. all float weights rounded to 12, 10, 9, 8, 6, 5, 4, 3 and 2 bits per tensor, which works on any model with weights;
2. the quantization passes with several settings, as far as they take the model.

Each candidate is measured as a run measures it: fidelity on up to 1024 items without their labels, and the task metric
on all items. A limit on a fidelity metric is good if it accepts candidates that keep the task metric within its own
default limit, and rejects the others. Results of other models in FILE stay. `--table` prints the tables of README.md.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from autoopt.engine.tools.apply import PassFailed, PassSettings, apply_pass
from autoopt.json_codec import JsonValue, from_json
from autoopt.measure import worker
from autoopt.measure.request import MeasureReply
from autoopt.metrics import get_metric
from autoopt.problem.goal import DEFAULT_QUALITY
from autoopt.target import Accelerator

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "results.json"
BITS = (12, 10, 9, 8, 6, 5, 4, 3, 2)
PASSES: tuple[tuple[str, dict[str, JsonValue]], ...] = (
    ("float16", {}),
    ("dynamic_quantization", {"per_channel": False}),
    ("dynamic_quantization", {"per_channel": True}),
    ("static_quantization", {"calibrate_method": "MinMax", "per_channel": False}),
    ("static_quantization", {"calibrate_method": "MinMax", "per_channel": True}),
    ("static_quantization", {"calibrate_method": "Entropy", "per_channel": True}),
    ("static_quantization", {"calibrate_method": "Percentile", "per_channel": False}),
    ("static_w4", {"per_channel": True}),
    ("weight_only_quantization", {"bits": 4}),
    ("weight_only_quantization", {"bits": 2}),
)
FIDELITY = ("agreement", "top1_agreement", "cosine", "relative_l2", "kl")
TASK = {"superres_espcn_x3": "psnr", "tab_diabetes_rf": "r2"}
"""Task metric by model; accuracy for the others."""
LIMITS: dict[str, tuple[float, ...]] = {
    "agreement": (0.9, 0.95, 0.96, 0.97, 0.98, 0.99, 0.995),
    "top1_agreement": (0.95, 0.98, 0.99),
    "cosine": (0.99, 0.995, 0.998, 0.999, 0.9999),
    "relative_l2": (0.1, 0.05, 0.02, 0.01),
}


@dataclass(frozen=True)
class Row:
    """One candidate of one model."""

    model: str
    candidate: str
    metric: str
    source: float
    """The task metric of the source model."""
    drop: float
    """The amount by which the candidate's task metric is worse."""
    fidelity: dict[str, float]

    @property
    def keeps_the_task(self) -> bool:
        """True if the drop is within the default limit for data with labels."""
        limit = DEFAULT_QUALITY[self.metric].max_drop
        assert limit is not None
        return self.drop <= limit


def main() -> None:
    args = _arguments()
    rows = _read(args.results)
    if args.table:
        print("\n".join([*limit_table(rows), "", *row_table(rows)]))
        return
    zoo = Path(args.zoo)
    names = args.models.split(",") if args.models else sorted(path.parent.name for path in zoo.glob("*/model.onnx"))
    for name in names:
        with np.load(zoo / name / "evaluation.npz") as data:
            has_labels = "labels" in data.files
        if has_labels:
            rows = [row for row in rows if row.model != name] + list(measure_model(zoo / name))
            args.results.parent.mkdir(parents=True, exist_ok=True)
            args.results.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("zoo", nargs="?")
    parser.add_argument("--models", help="names, with commas between them")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true", help="only print the tables")
    return parser.parse_args()


def _read(path: Path) -> list[Row]:
    if not path.exists():
        return []
    return from_json(list[Row], json.loads(path.read_text()))


def measure_model(folder: Path) -> Iterator[Row]:
    """Make the candidates of one model and measure each."""
    with tempfile.TemporaryDirectory(prefix="quality-") as work:
        for name, path in candidates(folder, Path(work)):
            row = measure_candidate(folder, name, path)
            if row is not None:
                print(f"{row.model}, {name}: {row.metric} drops by {row.drop:.4f}, {row.fidelity}", flush=True)
                yield row


def candidates(folder: Path, work: Path) -> Iterator[tuple[str, Path]]:
    """Yield the candidates of a model that could be made, with their names."""
    calibration = folder / "calibration.npz"
    if not calibration.exists():
        calibration = folder / "evaluation.npz"
    options = PassSettings(str(calibration), None, Accelerator())
    base = _apply("lift_constants", {}, folder / "model.onnx", work / "base", options) or folder / "model.onnx"
    for bits in BITS:
        rounded = rounded_weights(onnx.load(str(base)), bits)
        if rounded is not None:
            path = work / f"{bits}.onnx"
            onnx.save(rounded, str(path))
            yield f"weights of {bits} bits", path
    for number, (name, params) in enumerate(PASSES):
        changed = _apply(name, params, base, work / str(number), options)
        if changed is not None:
            settings = ", ".join(f"{key}={value}" for key, value in params.items())
            yield f"{name}({settings})", changed


def _apply(name: str, params: dict[str, JsonValue], model: Path, work: Path, options: PassSettings) -> Path | None:
    """Apply a pass; None if it changes nothing or does not take the model."""
    try:
        applied = apply_pass(name, model, work, params, options)
    except PassFailed as error:
        print(f"{name}: {str(error)[:150]}", flush=True)
        return None
    if applied.step.path is None:
        return None
    return next(applied.model.glob("model.o*"))


def rounded_weights(model: onnx.ModelProto, bits: int) -> onnx.ModelProto | None:
    """Round every float weight of at least two axes to `bits` bits, symmetric per tensor; None if there are none."""
    count = 0
    for tensor in model.graph.initializer:
        values = numpy_helper.to_array(tensor)
        if values.dtype != np.float32 or values.ndim < 2 or not np.any(values):
            continue
        step = np.max(np.abs(values)) / (2 ** (bits - 1) - 1)
        tensor.CopyFrom(numpy_helper.from_array((np.round(values / step) * step).astype(np.float32), tensor.name))
        count += 1
    if count == 0:
        return None
    return model


def measure_candidate(folder: Path, name: str, path: Path) -> Row | None:
    """Measure fidelity and task metric of one candidate; None if the runtime refuses it."""
    metric = TASK.get(folder.name, "accuracy")
    payload: dict[str, JsonValue] = {
        "candidate": {"path": str(path)},
        "source": {"path": str(folder / "model.onnx")},
        "data": {"path": str(folder / "evaluation.npz")},
    }
    try:
        fidelity = MeasureReply.from_json(worker.fidelity({**payload, "metrics": list(FIDELITY)}))
        task = MeasureReply.from_json(worker.task({**payload, "metrics": [metric]}))
    except Exception as error:  # onnxruntime has no common class of errors.
        print(f"{folder.name}, {name}: {str(error)[:150]}", flush=True)
        return None
    values = {each: estimate.value for each, estimate in fidelity.metrics.items()}
    return Row(folder.name, name, metric, task.source_metrics[metric].value, task.drops[metric].value, values)


def limit_table(rows: Sequence[Row]) -> list[str]:
    """Draw what each limit accepts and rejects."""
    good = [row for row in rows if row.keeps_the_task]
    bad = [row for row in rows if not row.keeps_the_task]
    lines = [
        f"{len(rows)} candidates of {len({row.model for row in rows})} models; {len(good)} keep the task metric.",
        "",
        "| limit | accepts of those that keep the task | accepts of those that do not | worst accepted loss |",
        "|---|---|---|---|",
    ]
    for metric, limits in LIMITS.items():
        sign = "<=" if get_metric(metric).direction == "minimize" else ">="
        for limit in limits:
            accepted = [row for row in rows if _accepts(row, metric, limit)]
            right = sum(row.keeps_the_task for row in accepted)
            worst = max(accepted, key=lambda row: row.drop / (DEFAULT_QUALITY[row.metric].max_drop or 1), default=None)
            text = "-" if worst is None else f"{worst.drop:.3f} {worst.metric} ({worst.model})"
            wrong = len(accepted) - right
            lines.append(f"| {metric} {sign} {limit} | {right} of {len(good)} | {wrong} of {len(bad)} | {text} |")
    return lines


def _accepts(row: Row, metric: str, limit: float) -> bool:
    value = row.fidelity.get(metric)
    if value is None:
        return False
    if get_metric(metric).direction == "minimize":
        return value <= limit
    return value >= limit


def row_table(rows: Sequence[Row]) -> list[str]:
    """Draw every candidate."""
    lines = ["| model | candidate | loss | agreement | cosine | relative L2 |", "|---|---|---|---|---|---|"]
    for row in rows:
        figures = [
            f"{row.fidelity[name]:.4f}" for name in ("agreement", "cosine", "relative_l2") if name in row.fidelity
        ]
        loss = f"{row.drop:.4f} {row.metric}"
        lines.append(f"| {row.model} | {row.candidate} | {loss} | {' | '.join(figures)} |")
    return lines


if __name__ == "__main__":
    main()
