"""Synthetic inputs made from a model's signature, for the quick equivalence check."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from autoopt.data.decoder import align, decoder_of
from autoopt.model.lazy_imports import helper, np, onnx
from autoopt.model.roles import Kind, Role, input_roles, may_be_same
from autoopt.model.tensors import names_of, origins, table_lengths
from autoopt.passes.onnx_tools.graphs import caller_inputs

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, ValueInfoProto

    from autoopt.data.fit import InputSpec

SIZES: Final = ((2, 8), (1, 8), (1, 1), (2, 2), (1, 64), (1, 224))
"""Sizes tried for open dimensions, in order: (the first dimension of an input, all its other ones)."""
LONGEST_SOUND: Final = 8000
"""Samples of a sound of open length: some runtimes die of an empty spectrum where a sound is shorter than a window."""
MAX_ELEMENTS: Final = 1 << 26
"""Largest number of elements of one input."""
BYTE_VALUES: Final = 256
SMALL: Final = 0.1
"""Size of small values, as a share of ordinary ones."""
LARGE: Final = 100.0
"""Size of large values, as a multiple of ordinary ones."""
TINY: Final = 1e-6
"""Size of tiny values, as a share of ordinary ones."""
_ANY_BYTE_OPS: Final = ("OneHot", "QuantizeLinear", "DequantizeLinear", "ConvInteger", "MatMulInteger")
"""Operators that accept any byte as their first input."""


def synthetic_feeds(
    model: ModelProto, narrower: ModelProto | None = None, seed: int = 0, roles: Mapping[str, Kind] | None = None
) -> Iterator[dict[str, np.ndarray]]:
    """Generate inputs for `model`, one set for each of `SIZES`; only one set if no dimension is open.

    Floats are drawn from a normal distribution. Integers stay below the number of rows of the table that they index,
    otherwise they are 0 or 1. Texts are words. Sounds are long enough for their spectrum. Mask and positions of a
    decoder fit its tokens and its cache, lengths the inputs that they belong to. Images suit the weights. Dimensions
    have the sizes that `narrower`, another version of the model, fixes. `roles` are kinds that the user gives.

    Raises:
        ValueError: an input is not a tensor, is of an unknown type, or is too large.
    """
    from autoopt.data.sources.open_sizes import with_features
    from autoopt.data.sources.synthetic import input_spec, lengths_of

    inputs = caller_inputs(model)
    fixed: dict[str, list[int | str]] = {}
    if narrower is not None:
        fixed = {value.name: _dims(value) for value in caller_inputs(narrower)}
    specs = with_features(model.graph, list(map(input_spec, inputs)))
    known = input_roles(specs, given=roles)
    usual_sizes = {**_image_sizes(model.graph, specs), **_sound_sizes(specs, known)}
    decoder = decoder_of(known)
    limits = _index_limits(model)
    tried: set[tuple[tuple[int, ...], ...]] = set()
    for first, other in SIZES:
        shapes = []
        for value in inputs:
            dims = _narrow(_dims(value), fixed.get(value.name))
            shapes.append(_shape(dims, first, other, usual_sizes.get(value.name, {})))
        if tuple(shapes) in tried:
            continue
        tried.add(tuple(shapes))
        feeds = {}
        for number, (value, shape) in enumerate(zip(inputs, shapes, strict=True)):
            feeds[value.name] = _random_array(value, shape, limits.get(value.name, 2), seed + number)
        if decoder is not None:
            feeds = align(feeds, decoder)
        else:
            feeds.update(lengths_of(feeds, specs, known))
        yield feeds


def unusual_feeds(feeds: Mapping[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    """Make inputs of the same shapes with unusual floats and other switches; empty if no input holds either.

    They reach what ordinary values do not: the constant under a logarithm, the smallest divisor, the part of a sigmoid
    that does not saturate, the bounds of a Clip. In order: zeros; small positive values, every fourth of them 0; ones;
    large values; tiny values. Small and large ones come with the other value of each switch, an input of one bool
    such as the `use_cache_branch` of decoders, so that both branches run.
    """
    floats = {name: array for name, array in feeds.items() if np.issubdtype(array.dtype, np.floating)}
    switched = {name: ~array for name, array in feeds.items() if array.dtype == bool and array.size == 1}
    if not floats:
        return [{**feeds, **switched}] if switched else []
    makers: list[tuple[Callable[[np.ndarray], np.ndarray], Mapping[str, np.ndarray]]] = [
        (np.zeros_like, {}),
        (_small_values, switched),
        (np.ones_like, {}),
        (lambda array: array * np.asarray(LARGE, array.dtype), switched),
        (lambda array: array * np.asarray(TINY, array.dtype), {}),
    ]
    return [
        {**feeds, **switches, **{name: maker(array) for name, array in floats.items()}} for maker, switches in makers
    ]


def _small_values(array: np.ndarray) -> np.ndarray:
    values = np.asarray(np.abs(array) * SMALL).astype(array.dtype)
    values.reshape(-1)[::4] = 0
    return values


def _dims(value: ValueInfoProto) -> list[int | str]:
    """Dimensions of an input: sizes, or names of open ones."""
    if not value.type.HasField("tensor_type"):
        raise ValueError(f"input {value.name!r} is not a tensor")
    dims = value.type.tensor_type.shape.dim
    return [int(dim.dim_value) if dim.dim_value > 0 else str(dim.dim_param) for dim in dims]


def _narrow(dims: list[int | str], narrower: list[int | str] | None) -> list[int | str]:
    """Take over the sizes that `narrower` fixes."""
    if narrower is None or len(narrower) != len(dims):
        return dims
    return [size if isinstance(size, int) else dim for dim, size in zip(dims, narrower, strict=True)]


def _image_sizes(graph: GraphProto, specs: Sequence[InputSpec]) -> dict[str, dict[int, int]]:
    """Channels, and sides by the table of positions, of inputs that a convolution reads, by name and axis."""
    from autoopt.data.sources.open_sizes import sides_by_positions

    sides = sides_by_positions(graph)
    sizes: dict[str, dict[int, int]] = {}
    for spec in specs:
        by_axis = {axis: size for axis, size in enumerate(spec.dims) if isinstance(size, int)}
        sizes[spec.name] = by_axis
        if spec.name in sides:
            by_axis |= dict.fromkeys((2, 3), sides[spec.name])
    return sizes


def _sound_sizes(specs: Sequence[InputSpec], roles: Mapping[str, Role]) -> dict[str, dict[int, int]]:
    """Samples of the inputs that take a sound, by name and axis."""
    from autoopt.data.sources.open_sizes import signal_sizes

    sizes: dict[str, dict[int, int]] = {}
    for name, usual in signal_sizes(specs, roles, ()).items():
        if roles[name].kind == "sound":
            sizes[name] = {
                axis: min(size, LONGEST_SOUND) for axis, size in usual.by_axis.items() if axis in roles[name].axes
            }
    return sizes


def _shape(dims: list[int | str], first: int, other: int, by_axis: Mapping[int, int]) -> tuple[int, ...]:
    """Fill in the open dimensions."""
    sizes = []
    for position, dim in enumerate(dims):
        if isinstance(dim, int):
            sizes.append(dim)
        elif position in by_axis:
            sizes.append(by_axis[position])
        elif position == 0:
            sizes.append(first)
        else:
            sizes.append(other)
    return tuple(sizes)


def _random_array(value: ValueInfoProto, shape: tuple[int, ...], limit: int, seed: int) -> np.ndarray:
    """An array for one input. Integers stay below `limit`."""
    if np.prod(shape, dtype=np.int64) > MAX_ELEMENTS:
        raise ValueError(f"input {value.name!r} of shape {shape} is too large for a quick check")
    kind = value.type.tensor_type.elem_type
    rng = np.random.default_rng(seed)
    if kind == onnx.TensorProto.STRING:
        return rng.choice(np.array(["a", "the", "zero", "0", "red fox"], dtype=object), size=shape)
    if kind == onnx.TensorProto.BOOL:
        return rng.integers(0, 2, size=shape).astype(bool)
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    if np.issubdtype(dtype, np.integer):
        return rng.integers(0, min(limit, np.iinfo(dtype).max), size=shape).astype(dtype)
    return rng.standard_normal(size=shape).astype(dtype)


def _index_limits(model: ModelProto) -> dict[str, int]:
    """Upper bounds of integer inputs: the length of the constant table that they index, or all bytes."""
    limits = {name: max(1, length) for name, length in table_lengths(model.graph).items()}
    sources = origins(model.graph)
    # Pixels and codes may have any value.
    kinds = (onnx.TensorProto.UINT8, onnx.TensorProto.INT8)
    any_byte = {value.name for value in model.graph.input if value.type.tensor_type.elem_type in kinds}
    for node in model.graph.node:
        if node.op_type in _ANY_BYTE_OPS and node.input and node.input[0] in sources:
            any_byte.add(sources[node.input[0]])
    for name in any_byte:
        limits.setdefault(name, BYTE_VALUES)
    return limits


def cast_feeds(feeds: Mapping[str, np.ndarray], model: ModelProto) -> dict[str, np.ndarray] | None:
    """Convert `feeds` to the input types of `model`; None if names or shapes do not fit its inputs."""
    inputs = caller_inputs(model)
    if names_of(inputs) != set(feeds):
        return None
    converted = {}
    for value in inputs:
        array = feeds[value.name]
        if not may_be_same(array.shape, _dims(value)):
            return None
        kind = value.type.tensor_type.elem_type
        if kind != onnx.TensorProto.STRING:
            array = np.asarray(array).astype(helper.tensor_dtype_to_np_dtype(kind))
        converted[value.name] = array
    return converted
