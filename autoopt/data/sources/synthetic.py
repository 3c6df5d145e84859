"""Synthetic items from a model's own inputs: shapes, element types, safe ranges; for models without data."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

from autoopt.data.dataset import Array, DataSet
from autoopt.data.decoder import Decoder, decoder_of
from autoopt.data.fit import InputSpec, specs_of
from autoopt.errors import InputError
from autoopt.model.tables import constant_shapes, table_lengths

if TYPE_CHECKING:
    from onnx import ValueInfoProto

SYMBOL_SIZES: Final[Mapping[str, int]] = {"batch": 1, "seq": 32, "length": 32, "height": 64, "width": 64, "time": 32}
"""Sizes of symbolic dimensions by a part of their name."""
OTHER_SIZE: Final = 16
"""The size of other open dimensions."""
PICTURE_SIDE: Final = 16
"""Shortest side of an input that counts as a picture."""
SOUND_LENGTH: Final = 2000
"""Shortest input that counts as a sound."""


def load(  # noqa: PLR0913  one argument for each parameter in dag.yaml
    model: str,
    *,
    items: int = 32,
    seed: int = 0,
    dimensions: Mapping[str, int] | None = None,
    shapes: Mapping[str, list[int]] | None = None,
    ranges: Mapping[str, list[float]] | None = None,
    open_size: int | None = None,
) -> DataSet:
    """Make random items for a model, complete with batch dimension. Optional inputs are left out.

    Integers that index into a table (Gather) stay below its length. Masks are ones, types of tokens zeros, positions
    count up. A decoder with a cache gets a prompt: its cache is empty unless `dimensions` or `open_size` size it, and
    mask and positions fit. Other integers are 0 or 1. Floats that look like pictures or sound are smooth ones of
    standard deviation 1; other floats are standard normal.

    `dimensions` are sizes of symbolic dimensions by name, `shapes` the shapes of inputs with the batch dimension,
    `ranges` [low, high] by input, and `open_size` is the size of open dimensions that nothing else sizes.

    Raises:
        InputError: An input is a sequence or a map, whose values cannot be made up.
    """
    specs, lengths = read_inputs(model)
    rng = np.random.default_rng(seed)
    sizes, fixed_shapes, limits = dimensions or {}, shapes or {}, ranges or {}
    decoder = decoder_of({spec.name: spec.shape for spec in specs})
    arrays: dict[str, list[Array]] = {}
    for spec in specs:
        if spec.optional:
            continue
        if spec.name in fixed_shapes:
            shape = tuple(fixed_shapes[spec.name])
        elif decoder is not None and open_size is None:
            shape = _prompt_shape(spec, decoder, sizes)
        else:
            shape = _shape(spec, sizes, open_size)
        arrays[spec.name] = _items(rng, spec, shape, items, limits.get(spec.name), lengths.get(spec.name))
    if decoder is not None:
        _derive(arrays, decoder, {*fixed_shapes, *limits})
    return DataSet({}, None, arrays, name="synthetic")


def _prompt_shape(spec: InputSpec, decoder: Decoder, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of an input of a decoder that reads a prompt: the cache is empty if nothing sizes its sequence."""
    shape = _shape(spec, sizes, None)
    axis = decoder.cache.get(spec.name)
    if axis is None or (spec.shape is not None and spec.shape[axis] in sizes):
        return shape
    return (*shape[:axis], 0, *shape[axis + 1 :])


def _derive(arrays: dict[str, list[Array]], decoder: Decoder, given: Collection[str]) -> None:
    """Set mask, positions and branch to what fits tokens and cache, unless the user has given shapes or ranges."""
    first = {name: items[0] for name, items in arrays.items()}
    for name in decoder.derived:
        if name in arrays and name not in given:
            value = decoder.derive(name, first, first[name].dtype)
            arrays[name] = [value] * len(arrays[name])


def _shape(spec: InputSpec, sizes: Mapping[str, int], open_size: int | None) -> tuple[int, ...]:
    """A shape with a size for each open dimension; the batch has one item."""
    if spec.shape is None:
        return (1,)
    shape = []
    for axis, dimension in enumerate(spec.shape):
        if isinstance(dimension, int) and dimension > 0:
            shape.append(dimension)
        elif dimension in sizes:
            shape.append(sizes[str(dimension)])
        elif axis == 0:
            shape.append(1)
        elif open_size is not None:
            shape.append(open_size)
        else:
            shape.append(_symbol_size(str(dimension or "").lower()))
    return tuple(shape)


def _symbol_size(name: str) -> int:
    for part, size in SYMBOL_SIZES.items():
        if part in name:
            return size
    return OTHER_SIZE


def _items(
    rng: np.random.Generator,
    spec: InputSpec,
    shape: tuple[int, ...],
    count: int,
    limits: list[float] | None,
    table_length: int | None,
) -> list[Array]:
    """Make the items of an input. Without limits, integers index into its table or are 0 or 1.

    Raises:
        InputError: The input is a sequence or a map.
    """
    if spec.dtype is None or not spec.type.startswith("tensor("):
        raise InputError(f"cannot make up values of {spec.type}", where=f"input {spec.name!r}", remedy="give data")
    if limits is None:
        constant = _constant(spec.name.lower(), spec.dtype, shape)
        if constant is not None:
            return [constant] * count
        if spec.dtype.kind in "iu":
            limits = [0, (table_length or 2) - 1]
    return [_values(rng, spec.dtype, shape, limits) for _ in range(count)]


def _constant(name: str, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> Array | None:
    """The value of an input that is the same for all items by its meaning; None for any other input."""
    if "mask" in name and dtype.kind in "iubf":
        return np.ones(shape, dtype)
    if dtype.kind not in "iu" or not shape:
        return None
    if "token_type" in name or "segment_ids" in name:
        return np.zeros(shape, dtype)
    if "position_ids" in name:
        return np.broadcast_to(np.arange(shape[-1]), shape).astype(dtype)
    return None


def _values(
    rng: np.random.Generator, dtype: np.dtype[np.generic], shape: tuple[int, ...], limits: list[float] | None
) -> Array:
    if dtype.kind == "O":
        texts = [f"text {number}" for number in rng.integers(0, 100, int(np.prod(shape)))]
        return np.array(texts, object).reshape(shape)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if limits is None:
        return _floats(rng, shape).astype(dtype)
    low, high = limits
    if dtype.kind in "iu":
        return np.asarray(rng.integers(int(low), int(high) + 1, shape)).astype(dtype)
    return np.asarray(rng.uniform(low, high, shape)).astype(dtype)


def _floats(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Floats of mean 0 and standard deviation 1: pictures, sound, or independent ones."""
    if len(shape) == 4 and min(shape[2:]) >= PICTURE_SIDE:
        return _smooth(rng, shape, (2, 3))
    if len(shape) == 4 and shape[3] <= 4 and min(shape[1:3]) >= PICTURE_SIDE:
        return _smooth(rng, shape, (1, 2))
    if 2 <= len(shape) <= 3 and shape[-1] >= SOUND_LENGTH:
        return _smooth(rng, shape, (len(shape) - 1,))
    return np.asarray(rng.standard_normal(shape))


def _smooth(rng: np.random.Generator, shape: tuple[int, ...], axes: tuple[int, ...]) -> Array:
    """Noise whose amplitude falls with the frequency along `axes`, as that of pictures and sounds does."""
    squares = np.zeros((1,) * len(shape))
    for axis in axes:
        frequencies = np.fft.fftfreq(shape[axis]) * shape[axis]
        squares = squares + (frequencies**2).reshape([-1 if other == axis else 1 for other in range(len(shape))])
    spectrum = np.fft.fftn(rng.standard_normal(shape), axes=axes) / np.sqrt(1 + squares)
    values = np.fft.ifftn(spectrum, axes=axes).real
    return np.asarray((values - values.mean()) / (values.std() or 1.0))


def read_inputs(model: str) -> tuple[tuple[InputSpec, ...], dict[str, int]]:
    """Read the inputs of a model.

    Returns:
        The inputs, and the length of the table for integer inputs that index into one. Without onnx, in an interpreter
        that only measures, no table is found.
    """
    try:
        import onnx
    except ImportError:
        import onnxruntime

        return specs_of(onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])), {}
    graph = onnx.load(model, load_external_data=False).graph
    constants = constant_shapes(graph)
    specs = tuple(input_spec(value) for value in graph.input if value.name not in constants)
    return specs, table_lengths(graph)


def input_spec(value: ValueInfoProto) -> InputSpec:
    """Describe an input of a graph in onnxruntime's terms. Sizes of -1 and 0, as some exporters write, are open."""
    import onnx

    kind = value.type.WhichOneof("value") or "unknown"
    if kind != "tensor_type":
        return InputSpec(value.name, f"{kind.removesuffix('_type')}()", None)
    tensor = value.type.tensor_type
    shape = None
    if tensor.HasField("shape"):
        shape = tuple(max(0, dim.dim_value) or dim.dim_param or None for dim in tensor.shape.dim)
    element = onnx.TensorProto.DataType.Name(tensor.elem_type).lower()
    return InputSpec(value.name, f"tensor({element})", shape)
