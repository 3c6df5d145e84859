"""The floor: what a careful user would write by hand. Shares no code with autoopt.

    python -m benchmarks.floor.script FOLDER CASE [--smart]

Computes all points of the case's DAG one after the other in one process: passes on common prefixes once, then for each
point the quality on all data, and 10 warm-ups and 20 timed inferences. With `--smart`, equal models are measured once.
Prints JSON: `points`, `models`, `best_ms`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnxruntime.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process

from benchmarks.floor.models import CASES, Case

WARM_UPS, REPEATS, BATCH = 10, 20, 32


class Reader(CalibrationDataReader):
    """The calibration data, item by item."""

    def __init__(self, path: Path) -> None:
        arrays = dict(np.load(path))
        arrays.pop("labels", None)
        count = len(next(iter(arrays.values())))
        self._feeds = iter([{name: value[i : i + 1] for name, value in arrays.items()} for i in range(count)])

    def get_next(self) -> dict[str, np.ndarray] | None:
        """The next item; None at the end."""
        return next(self._feeds, None)


def clean(case: Case, source: Path, target: Path) -> Path:
    """Run the pass before quantization."""
    if case.clean == "onnxslim":
        import onnxslim

        onnxslim.slim(str(source), str(target))
    else:
        from onnxruntime.transformers import optimizer

        fused = optimizer.optimize_model(str(source), "bert", num_heads=0, hidden_size=0, opt_level=0)
        fused.save_model_to_file(str(target))
    return target


def models(case: Case, folder: Path) -> Iterator[Path]:
    """Write the model of each point."""
    bases = [folder / "model.onnx"]
    if case.clean:
        bases.append(clean(case, folder / "model.onnx", folder / "clean.onnx"))
    op_types = list(case.op_types) or None
    for base in bases:
        untyped = onnx.load(base)
        del untyped.graph.value_info[:]  # quantize_dynamic transposes weights and then refuses their noted shapes
        for weight_type in map(QuantType.from_string, case.weight_types):
            for per_channel in (False, True):
                target = folder / f"{base.stem}-dynamic-{weight_type}-{per_channel}.onnx"
                quantize_dynamic(
                    untyped,
                    target,
                    op_types,
                    per_channel,
                    weight_type=weight_type,
                    extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT},
                )
                yield target
        if not case.methods:
            continue
        prepared = folder / f"{base.stem}-prepared.onnx"
        try:
            quant_pre_process(base, prepared, auto_merge=True)
        except Exception:  # symbolic shape inference raises bare exceptions
            quant_pre_process(base, prepared, skip_symbolic_shape=True)
        for method in case.methods:
            for per_channel in (False, True):
                target = folder / f"{base.stem}-static-{method}-{per_channel}.onnx"
                quantize_static(
                    prepared,
                    target,
                    Reader(folder / "calibration.npz"),
                    QuantFormat.QDQ,
                    op_types,
                    per_channel,
                    activation_type=QuantType.QUInt8,
                    weight_type=QuantType.QInt8,
                    calibrate_method=CalibrationMethod[method],
                    extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT},
                )
                yield target


def measure(model: Path, data: dict[str, np.ndarray], source: list[np.ndarray]) -> float:
    """Compute the quality and return the median latency in ms.

    Args:
        model: The model.
        data: Inputs, and `labels` if there are any.
        source: Outputs of the source model by batch; filled by the first call.
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    inputs = {name: value for name, value in data.items() if name != "labels"}
    outputs = []
    for first in range(0, len(next(iter(inputs.values()))), BATCH):
        feed = {name: value[first : first + BATCH] for name, value in inputs.items()}
        outputs.append(session.run(None, feed)[0])
    source.extend(outputs[len(source) :])
    if "labels" in data:
        float((np.concatenate(outputs).argmax(1) == data["labels"]).mean())
    else:
        float(np.linalg.norm(np.concatenate(outputs) - np.concatenate(source)) / np.linalg.norm(np.concatenate(source)))
    feed = {name: value[:1] for name, value in inputs.items()}
    times = []
    for _ in range(WARM_UPS + REPEATS):
        began = time.perf_counter()
        session.run(None, feed)
        times.append(time.perf_counter() - began)
    return 1000 * float(np.median(times[WARM_UPS:]))


def main() -> None:
    """Compute all points and print the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--smart", action="store_true")
    options = parser.parse_args()
    logging.disable()
    case = CASES[options.case]
    data = dict(np.load(options.folder / "evaluation.npz"))
    source: list[np.ndarray] = []
    measure(options.folder / "model.onnx", data, source)
    latencies: list[float] = []
    by_digest: dict[str, float] = {}
    for model in models(case, options.folder):
        digest = hashlib.sha256(model.read_bytes()).hexdigest()
        if not options.smart or digest not in by_digest:
            by_digest[digest] = measure(model, data, source)
        latencies.append(by_digest[digest])
    print(json.dumps({"points": len(latencies), "models": len(by_digest), "best_ms": min(latencies)}))


if __name__ == "__main__":
    main()
