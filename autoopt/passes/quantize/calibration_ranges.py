"""The range of every activation over the calibration data, computed once for each model and settings."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from autoopt.passes.base import PassContext
from autoopt.passes.onnx_tools.graphs import is_large
from autoopt.passes.quantize.calibration_reader import CalibrationReader

if TYPE_CHECKING:
    from onnx import ModelProto

_cache: OrderedDict[str, str] = OrderedDict()
"""Ranges (JSON text) by content of model, data and settings. Search points that differ only in types and formats share
them."""
CACHE_SIZE: Final = 16


def calibrate(
    model: ModelProto,
    context: PassContext,
    method: str,
    op_types: list[str],
    settings: Mapping[str, object],
    limit: int = 0,
) -> Path:
    """Write a file with activation ranges, which `quantize_static` reads in place of calibrating itself.

    Args:
        model: the float model.
        context: the context of the running pass.
        method: onnxruntime's calibration method: MinMax, Entropy, Percentile or Distribution.
        op_types: operator types to quantize.
        settings: those of onnxruntime's `create_calibrator`.
        limit: maximum number of calibration items; 0 for all.

    Raises:
        Refused: there is no calibration data.
    """
    reader = CalibrationReader(context, limit)
    key = _cache_key(model, reader, [method, op_types, settings])
    path = context.work / "ranges.json"
    if key not in _cache:
        reader.rewind()
        _compute(model, reader, method, op_types, settings, path)
        _cache[key] = path.read_text()
        while len(_cache) > CACHE_SIZE:
            _cache.popitem(last=False)
    _cache.move_to_end(key)
    path.write_text(_cache[key])
    return path


def tensors_in(path: Path) -> set[str]:
    """Read the names of the tensors in a file of ranges."""
    return set(json.loads(path.read_text())["data"])


def _compute(
    model: ModelProto,
    reader: CalibrationReader,
    method: str,
    op_types: list[str],
    settings: Mapping[str, object],
    path: Path,
) -> None:
    from onnxruntime.quantization import CalibrationMethod
    from onnxruntime.quantization.calibrate import create_calibrator, save_tensors_data

    from autoopt.model import io

    folder = path.parent / "calibrate"
    calibrator = create_calibrator(
        io.save(model, folder),
        op_types,
        augmented_model_path=str(folder / "augmented.onnx"),
        calibrate_method=CalibrationMethod[method],
        use_external_data_format=is_large(model),
        extra_options=settings,
    )
    calibrator.collect_data(reader)
    save_tensors_data(calibrator.compute_data(), path)


def _cache_key(model: ModelProto, reader: CalibrationReader, settings: object) -> str:
    digest = hashlib.sha256(model.SerializeToString(deterministic=True))
    for feed in reader:
        for name in sorted(feed):
            array = feed[name]
            digest.update(f"{name} {array.dtype} {array.shape}".encode())
            digest.update(array.tobytes())
    digest.update(json.dumps(settings, sort_keys=True).encode())
    return digest.hexdigest()
