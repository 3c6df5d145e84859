"""onnxruntime's quantizers with less work around theirs: no files between their steps, and cheap channels.

Their results stay the same, byte by byte. By themselves, they write each model to a folder twice, so that onnx can
infer the shapes of models of any size, and once more at the end. With a scale for each channel, they mostly check
types.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from autoopt.model import io
from autoopt.model.lazy_imports import onnx
from autoopt.model.split import weight_at
from autoopt.model.tensors import copy_fields, packed_bytes

if TYPE_CHECKING:
    from onnx import ModelProto

BYTES: Final = {2: np.dtype(np.uint8), 3: np.dtype(np.int8)}
"""The 8-bit types, by ONNX's codes."""
READ_BYTES: Final = 991
"""Shape inference reads initializers of fewer bytes; the library moves larger ones to a file before."""
TINY: Final = float(np.finfo(np.float32).tiny)


@dataclass
class Quantized:
    """The result of a quantizer."""

    model: ModelProto | None = None
    """The model that it would have written; None before its end."""

    def load(self) -> ModelProto:
        """The quantized model; references to weights of split models stay."""
        assert self.model is not None
        return self.model


@contextmanager
def lean_quantizers(target: Path) -> Iterator[Quantized]:
    """Let onnxruntime's quantizers and calibrators work in memory, and quantize a channel with few calls of numpy.

    They read weights that are external data in the working directory one by one. They change the model that they are
    given, so static quantization needs a calibration cache, and they do not write `target`.
    """
    from onnxruntime.quantization import base_quantizer, calibrate, onnx_quantizer, qdq_quantizer, quant_utils
    from onnxruntime.quantization.onnx_model import ONNXModel

    quantized = Quantized()
    write = ONNXModel.save_model_to_file

    def keep(model: ONNXModel, path: str | Path, use_external_data_format: bool = False) -> None:
        if Path(path) != target:
            write(model, path, use_external_data_format)
            return
        model.topological_sort()
        # A copy, because protobuf keeps the memory of what was removed from a model, such as its weights in float.
        quantized.model = type(model.model)()
        quantized.model.CopyFrom(model.model)

    functions = {
        "load_model_with_shape_infer": _load_with_shapes,
        "save_and_reload_model_with_shape_infer": _with_shapes,
        "compute_data_quant_params": partial(_parameters, quant_utils.compute_data_quant_params),
        "quantize_nparray": partial(_integers, quant_utils.quantize_nparray),
    }
    quantize = import_module("onnxruntime.quantization.quantize")  # the package has a function of that name
    modules = (base_quantizer, calibrate, onnx_quantizer, qdq_quantizer, quant_utils, quantize)
    places = [(module, name) for module in modules for name in functions if hasattr(module, name)]
    missing = functions.keys() - {name for _, name in places}
    if missing:
        raise AttributeError(f"onnxruntime's quantizers have no {', '.join(sorted(missing))} any more")
    originals = [getattr(module, name) for module, name in places]
    for module, name in places:
        setattr(module, name, functions[name])
    ONNXModel.save_model_to_file = keep
    try:
        yield quantized
    finally:
        ONNXModel.save_model_to_file = write
        for (module, name), original in zip(places, originals, strict=True):
            setattr(module, name, original)


def _load_with_shapes(path: Path) -> ModelProto:
    """Read a model with its inferred shapes."""
    model = io.parse(path)
    if not any(io.external_tensors(model)):
        return _with_shapes(model)
    inferred = path.with_name(f"{path.stem}-inferred.onnx")
    onnx.shape_inference.infer_shapes_path(str(path), str(inferred))
    model = io.parse(inferred)
    io.load_weights(model, inferred.parent, lambda tensor: not weight_at(io.location_of(tensor)))
    inferred.unlink()
    _mark(model)
    return model


def _with_shapes(model: ModelProto) -> ModelProto:
    """Infer shapes, in place: onnx gets a copy of the graph without the weights."""
    light = type(model)()
    copy_fields(model, light, but="graph")
    copy_fields(model.graph, light.graph, but="initializer")
    for tensor in model.graph.initializer:
        if tensor.HasField("raw_data") and (packed_bytes(tensor) or 0) >= READ_BYTES:
            light.graph.initializer.add(
                name=tensor.name, data_type=tensor.data_type, dims=tensor.dims, data_location=tensor.EXTERNAL
            )
        else:
            light.graph.initializer.add().CopyFrom(tensor)
    inferred = onnx.shape_inference.infer_shapes(light).graph
    for field, _ in model.graph.ListFields():
        if field.name != "initializer":
            model.graph.ClearField(field.name)
    copy_fields(inferred, model.graph, but="initializer")
    _mark(model)
    return model


def _mark(model: ModelProto) -> None:
    """Note that shapes were inferred, which quantizers look for."""
    from onnxruntime.quantization.quant_utils import add_infer_metadata

    add_infer_metadata(model)


def _parameters(
    original: Callable[..., tuple[np.ndarray, np.ndarray]],
    data: np.ndarray,
    quant_type: int,
    symmetric: bool,
    reduce_range: bool = False,
    *overrides: float | None,
    **named: float | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Compute zero point and scale of a channel as `compute_data_quant_params` does, which has the rarer cases."""
    overridden = any(value is not None for value in (*overrides, *named.values()))
    if quant_type in BYTES and data.dtype == np.float32 and data.size and not overridden:
        low, high = min(float(data.min()), 0.0), max(float(data.max()), 0.0)
        if symmetric:
            high = max(-low, high)
            low = -high
        span = high - low
        if math.isfinite(span):
            lowest, highest, middle, dtype = _limits(quant_type, bool(reduce_range), bool(symmetric))
            scale = span / (highest - lowest)
            zero_point = middle if symmetric else 0
            if scale < TINY:
                scale, zero_point = 1.0, 0
            elif not symmetric:
                zero_point = round(lowest - low / scale)
            return np.array(zero_point, dtype), np.array(scale, np.float32)
    return original(data, quant_type, symmetric, reduce_range, *overrides, **named)


@lru_cache(maxsize=16)
def _limits(quant_type: int, reduce_range: bool, symmetric: bool) -> tuple[float, float, int, np.dtype[Any]]:
    """The lowest and the highest integer, the zero point of a symmetric range, and the type."""
    from onnxruntime.quantization.quant_utils import get_qmin_qmax_for_qType

    lowest, highest = get_qmin_qmax_for_qType(quant_type, reduce_range, symmetric)
    middle = np.round((lowest + highest) / np.float64(2))
    return float(lowest), float(highest), int(middle), lowest.dtype


def _integers(
    original: Callable[..., np.ndarray],
    quant_type: int,
    data: np.ndarray,
    scale: np.ndarray,
    zero_point: np.ndarray,
    *bounds: float,
) -> np.ndarray:
    """Quantize values as `quantize_nparray` does, which has the rarer cases."""
    usual = quant_type in BYTES and data.dtype == np.float32 and getattr(scale, "dtype", None) == np.float32
    if not usual or getattr(zero_point, "dtype", None) not in BYTES.values() or bounds:
        return original(quant_type, data, scale, zero_point, *bounds)
    lowest, highest, _, dtype = _limits(quant_type, reduce_range=False, symmetric=False)
    values = data / scale
    np.rint(values, out=values)
    values += zero_point
    np.clip(values, lowest, highest, out=values)
    integers: np.ndarray = values.astype(dtype)
    return integers
