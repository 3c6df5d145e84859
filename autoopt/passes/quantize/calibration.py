"""Calibration data as quantizers read it, and the range of every activation over it."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from autoopt.passes.base import PassContext, Refused
from autoopt.passes.onnx_tools.graphs import is_large

if TYPE_CHECKING:
    import numpy as np
    from onnx import ModelProto


class CalibrationReader:
    """Iterates over the calibration data. Has the methods of onnxruntime's CalibrationDataReader.

    Args:
        context: the context of the running pass.
        limit: maximum number of feeds; 0 for all.

    Raises:
        Refused: the run has no calibration data, or the data has no items.
    """

    def __init__(self, context: PassContext, limit: int = 0) -> None:
        if context.calibration is None:
            raise Refused("needs calibration data, and the run has none (data: calibration)")
        self._open = context.calibration
        self._limit = limit
        self._feeds = self._start()
        if self.get_next() is None:
            raise Refused("the calibration data holds no items")
        self.rewind()

    def _start(self) -> Iterator[dict[str, np.ndarray]]:
        for number, feed in enumerate(self._open()):
            if self._limit and number >= self._limit:
                return
            yield feed

    def get_next(self) -> dict[str, np.ndarray] | None:
        """Return the next feed, or None at the end."""
        return next(self._feeds, None)

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        return self._feeds

    def __next__(self) -> dict[str, np.ndarray]:
        return next(self._feeds)

    def rewind(self) -> None:
        """Start again from the first feed."""
        self._feeds = self._start()


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
