"""Calibration: the range of every activation over the calibration data, computed once per model and settings."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoopt.passes.base import PassContext
from autoopt.passes.onnx_tools.graphs import is_large
from autoopt.passes.quantize.calibration_reader import Feeds

if TYPE_CHECKING:
    from onnx import ModelProto


_KEPT: OrderedDict[str, str] = OrderedDict()


_MOST = 16


def calibrate(
    model: ModelProto, context: PassContext, method: str, op_types: list[str], settings: dict[str, Any], limit: int = 0
) -> Path:
    """A file with the ranges that `quantize_static` reads instead of calibrating itself.

    Points of a search that differ only in types and formats share the ranges: they are kept by the content of model,
    data and settings while this process lives. `settings` are those of onnxruntime's `create_calibrator`.

    Raises:
        Refused: no calibration data.
    """
    feeds = Feeds(context, limit)
    key = _key(model, feeds, [method, op_types, settings])
    path = context.work / "ranges.json"
    if key not in _KEPT:
        feeds.rewind()
        _compute(model, feeds, method, op_types, settings, path)
        _KEPT[key] = path.read_text()
        while len(_KEPT) > _MOST:
            _KEPT.popitem(last=False)
    _KEPT.move_to_end(key)
    path.write_text(_KEPT[key])
    return path


def ranged(path: Path) -> set[str]:
    """Names of the tensors that a file of ranges holds."""
    return set(json.loads(path.read_text())["data"])


def _compute(
    model: ModelProto, feeds: Feeds, method: str, op_types: list[str], settings: dict[str, Any], path: Path
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
    calibrator.collect_data(feeds)
    save_tensors_data(calibrator.compute_data(), path)


def _key(model: ModelProto, feeds: Feeds, settings: Any) -> str:
    digest = hashlib.sha256(model.SerializeToString(deterministic=True))
    for feed in feeds:
        for name in sorted(feed):
            array = feed[name]
            digest.update(f"{name} {array.dtype} {array.shape}".encode())
            digest.update(array.tobytes())
    digest.update(json.dumps(settings, sort_keys=True).encode())
    return digest.hexdigest()
