"""Synthetic items from a model's own inputs: shapes, element types, safe ranges, sounds; for models without data."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from autoopt.data.dataset import Array, DataSet, Feed
from autoopt.data.decoder import Decoder, decoder_of
from autoopt.data.fit import InputSpec, fit, output_specs, specs_of
from autoopt.data.sources.open_sizes import (
    SAMPLE_RATE,
    OpenSizes,
    inner_open_axes,
    open_sizes,
    signal_sizes,
    with_features,
)
from autoopt.errors import InputError, one_line
from autoopt.model.roles import Dimension, Kind, Role, input_roles, names_with, output_roles
from autoopt.model.session import make_session
from autoopt.model.tensors import constant_shapes, one_hot_lengths, table_lengths

if TYPE_CHECKING:
    from onnx import ValueInfoProto

SYMBOL_SIZES: Final[Mapping[str, int]] = {"batch": 1, "seq": 32, "length": 32, "height": 64, "width": 64, "time": 32}
"""Sizes of symbolic dimensions by a part of their name."""
OTHER_SIZE: Final = 16
"""The size of other open dimensions."""
FEWEST_ITEMS: Final = 4
"""Items even of a model with huge inputs, because one item says nothing about the spread of a metric."""
MAX_ELEMENTS: Final = 1 << 24
"""Largest number of elements of all items but the fewest; made-up images gain nothing by their number."""
OPEN_SIZES: Final = (8, 1, 2, 64, 224, 128)
"""Sizes of open dimensions to try if the model does not run with the usual ones."""
PICTURE_SIDE: Final = 16
"""Shortest side of an input that counts as a picture."""


@dataclass(frozen=True)
class ModelInputs:
    """The inputs of a model, and what it tells about them."""

    specs: tuple[InputSpec, ...]
    table_lengths: Mapping[str, int] = field(default_factory=dict)
    """Length of the table for inputs that index into one."""
    open_sizes: Mapping[str, OpenSizes] = field(default_factory=dict)
    roles: Mapping[str, Role] = field(default_factory=dict)


@dataclass(frozen=True)
class Sizes:
    """The sizes of open dimensions; the fields in the order in which they count."""

    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Complete shapes by input."""
    dimensions: Mapping[str, int] = field(default_factory=dict)
    """Sizes by symbolic dimension."""
    image_size: Sequence[int] = ()
    """Height and width of images."""
    open_size: int | None = None
    """The size of all other open dimensions."""
    rows: int = 1
    """The size of an open first dimension: of the batch, but for models that read one long item without a batch."""


def load(  # noqa: PLR0913  one argument for each parameter in dag.yaml
    model: str,
    *,
    items: int = 32,
    seed: int = 0,
    dimensions: Mapping[str, int] | None = None,
    shapes: Mapping[str, list[int]] | None = None,
    ranges: Mapping[str, list[float]] | None = None,
    open_size: int | None = None,
    image_size: Sequence[int] = (),
    roles: Mapping[str, Kind] | None = None,
) -> DataSet:
    """Make random items for a model, complete with batch dimension. Optional inputs are left out.

    Numbers that index into a table (Gather) stay below its length. Masks are ones, types of tokens zeros, positions
    count up, lengths are those of the input that they belong to. A decoder with a cache gets a prompt: its cache is
    empty unless `dimensions` or `open_size` size it, and mask and positions fit. Other integers are 0 or 1. Sounds are
    like a voice; recurrent state is the model's own output for the item before. Floats that look like pictures are
    smooth ones of standard deviation 1; other floats are standard normal.

    `dimensions` are sizes of symbolic dimensions by name, `shapes` the shapes of inputs with the batch dimension,
    `ranges` [low, high] by input, `image_size` [height, width] of images, and `open_size` is the size of open
    dimensions that nothing else sizes. Without these, open dimensions get the sizes that the model is meant for; if it
    does not run with them, the first of `OPEN_SIZES` that it runs with, first with one item, then with as many rows
    along the first dimension. `roles` are kinds by input where names and
    shapes tell the wrong ones.

    Raises:
        InputError: An input is a sequence or a map, whose values cannot be made up.
    """
    inputs = read_inputs(model, roles)
    sizes = Sizes(shapes or {}, dimensions or {}, image_size, open_size)
    if open_size is None and _is_open(inputs.specs, sizes):
        sizes = _runnable(model, inputs, sizes, ranges or {})
    first = _arrays(inputs, sizes, ranges or {}, 1, seed)
    elements = sum(arrays[0].size for arrays in first.values())
    count = min(items, max(FEWEST_ITEMS, MAX_ELEMENTS // max(1, elements)))
    arrays = _arrays(inputs, sizes, ranges or {}, count, seed)
    carry_states(model, arrays, inputs.specs, inputs.roles)
    return DataSet({}, None, arrays, name="synthetic")


def _is_open(specs: Sequence[InputSpec], sizes: Sizes) -> bool:
    """True if a dimension other than the batch has no size yet."""
    for spec in specs:
        if spec.name not in sizes.shapes:
            for dimension in spec.dims[1:]:
                if not isinstance(dimension, int) and dimension not in sizes.dimensions:
                    return True
    return False


def _runnable(model: str, inputs: ModelInputs, sizes: Sizes, ranges: Mapping[str, list[float]]) -> Sizes:
    """The first sizes that the model runs with; `sizes` if it runs with none."""
    try:
        session = make_session(model)
    except Exception:  # The next call that runs the model reports the runtime's own message.
        return sizes
    without_batch = [replace(sizes, open_size=size, rows=size, image_size=()) for size in OPEN_SIZES]
    for tried in (sizes, *(replace(one, rows=1) for one in without_batch), *without_batch):
        arrays = _arrays(inputs, tried, ranges, 1, 0)
        try:
            session.run(None, fit({name: items[0] for name, items in arrays.items()}, specs_of(session)))
        except Exception:  # The model does not take these sizes.
            continue
        return tried
    return sizes


def _arrays(
    inputs: ModelInputs, sizes: Sizes, ranges: Mapping[str, list[float]], count: int, seed: int
) -> dict[str, list[Array]]:
    """Make `count` items of each input."""
    rng = np.random.default_rng(seed)
    decoder = decoder_of(inputs.roles)
    arrays: dict[str, list[Array]] = {}
    for spec in inputs.specs:
        if spec.optional:
            continue
        role = inputs.roles[spec.name]
        shape = _shape(spec, sizes, role, inputs.open_sizes.get(spec.name))
        items = None
        if decoder is not None:
            shape = _prompt_shape(spec, shape, decoder, sizes)
        elif spec.name not in ranges:
            items = signal_items(rng, spec, shape, count, role)
        if items is None and spec.name not in ranges:
            items = _constant_items(role, spec.dtype, shape, count)
        if items is None:
            items = _items(rng, spec, shape, count, ranges.get(spec.name), inputs.table_lengths.get(spec.name))
        arrays[spec.name] = items
    first = {name: items[0] for name, items in arrays.items()}
    derived, chosen = lengths_of(first, inputs.specs, inputs.roles), {*ranges}
    if decoder is not None:
        derived, chosen = decoder.derived_values(first), {*sizes.shapes, *ranges}
    for name in derived.keys() - chosen:
        arrays[name] = [derived[name]] * count
    return arrays


def _prompt_shape(spec: InputSpec, shape: tuple[int, ...], decoder: Decoder, sizes: Sizes) -> tuple[int, ...]:
    """The shape of an input of a decoder that reads a prompt: the cache is empty if nothing sizes its sequence."""
    axis = decoder.cache.get(spec.name)
    if axis is None or sizes.open_size is not None or spec.name in sizes.shapes:
        return shape
    if sizes.dimensions.keys() & spec.dims[axis : axis + 1]:
        return shape
    return (*shape[:axis], 0, *shape[axis + 1 :])


def assumed_sizes(
    model: str, items: Mapping[str, Sequence[Array]], roles: Mapping[str, Kind] | None = None
) -> tuple[str, ...]:
    """Say which sizes the items of `load`, of all inputs or of some, have where the model leaves them open.

    Returns:
        Texts such as `images of 320x320 (imgsz in the model's metadata)`.
    """
    inputs = read_inputs(model, roles)
    decoder = decoder_of(inputs.roles)
    texts: dict[str, None] = {}
    for spec in inputs.specs:
        role = inputs.roles[spec.name]
        follows = decoder is not None and spec.name in {*decoder.cache, *decoder.derived}
        if spec.name not in items or follows or not _is_open([spec], Sizes()):
            continue
        shape = items[spec.name][0].shape
        text = f"{one_line(spec.name)} of {'x'.join(map(str, shape))}"
        if role.kind in ("image", "mask") and role.axes:
            text = f"images of {'x'.join(str(shape[axis]) for axis in role.axes)}"
        assumed = inputs.open_sizes.get(spec.name)
        if assumed is not None and all(shape[axis] == size for axis, size in assumed.by_axis.items()):
            text = f"{text} ({assumed.reason})"
        texts[text] = None
    return tuple(texts)


def _shape(spec: InputSpec, sizes: Sizes, role: Role, assumed: OpenSizes | None) -> tuple[int, ...]:
    """A shape with a size for each open dimension; the batch has one item."""
    if spec.name in sizes.shapes:
        return tuple(sizes.shapes[spec.name])
    if spec.shape is None:
        return (1,)
    known = dict(assumed.by_axis) if assumed is not None else {}
    if role.kind in ("image", "mask") and role.axes and sizes.image_size:
        known = dict(zip(role.axes, sizes.image_size, strict=True))
    shape = []
    for axis, dimension in enumerate(spec.shape):
        shape.append(_size(axis, dimension, sizes, known))
    return tuple(shape)


def _size(axis: int, dimension: Dimension, sizes: Sizes, known: Mapping[int, int]) -> int:
    """The size of a dimension; `known`: sizes by axis that the model lets expect."""
    if isinstance(dimension, int) and dimension > 0:
        return dimension
    if dimension in sizes.dimensions:
        return sizes.dimensions[str(dimension)]
    if axis == 0:
        return known.get(axis, sizes.rows)
    if sizes.open_size is not None:
        return sizes.open_size
    name = str(dimension or "").lower()
    by_name = (size for part, size in SYMBOL_SIZES.items() if part in name)
    return known.get(axis) or next(by_name, OTHER_SIZE)


def _items(
    rng: np.random.Generator,
    spec: InputSpec,
    shape: tuple[int, ...],
    count: int,
    limits: list[float] | None,
    table_length: int | None,
) -> list[Array]:
    """Make the items of an input. Without limits, numbers index into its table, and other integers are 0 or 1."""
    if not spec.type.startswith("tensor("):
        kind, remedy = spec.type.partition("(")[0], "export the model with tensors as inputs"
        raise InputError(f"is a {kind}, and autoopt feeds tensors only", where=f"input {spec.name!r}", remedy=remedy)
    if spec.dtype is None:
        raise InputError(f"cannot make up values of {spec.type}", where=f"input {spec.name!r}", remedy="give data")
    if limits is None and table_length is not None:
        return [np.asarray(rng.integers(0, table_length, shape)).astype(spec.dtype) for _ in range(count)]
    if limits is None and spec.is_integer:
        limits = [0, 1]
    return [_values(rng, spec.dtype, shape, limits) for _ in range(count)]


def _constant_items(
    role: Role, dtype: np.dtype[np.generic] | None, shape: tuple[int, ...], count: int
) -> list[Array] | None:
    """The items of an input that are the same by its meaning; None for any other input."""
    if dtype is None or dtype.kind not in "iubf":
        return None
    match role.kind:
        case "mask" | "token mask":
            return [np.ones(shape, dtype)] * count
        case "token types":
            return [np.zeros(shape, dtype)] * count
        case "positions" if shape:
            return [np.broadcast_to(np.arange(shape[-1]), shape).astype(dtype)] * count
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
    """Floats of mean 0 and standard deviation 1: pictures, or independent ones."""
    if len(shape) == 4 and min(shape[2:]) >= PICTURE_SIDE:
        return _smooth(rng, shape, (2, 3))
    if len(shape) == 4 and shape[3] <= 4 and min(shape[1:3]) >= PICTURE_SIDE:
        return _smooth(rng, shape, (1, 2))
    return np.asarray(rng.standard_normal(shape))


def _smooth(rng: np.random.Generator, shape: tuple[int, ...], axes: tuple[int, ...]) -> Array:
    """Noise whose amplitude falls with the frequency along `axes`, as in pictures."""
    squares = np.zeros((1,) * len(shape))
    for axis in axes:
        frequencies = np.fft.fftfreq(shape[axis]) * shape[axis]
        squares = squares + (frequencies**2).reshape([-1 if other == axis else 1 for other in range(len(shape))])
    spectrum = np.fft.fftn(rng.standard_normal(shape), axes=axes) / np.sqrt(1 + squares)
    values = np.fft.ifftn(spectrum, axes=axes).real
    return np.asarray((values - values.mean()) / (values.std() or 1.0))


def read_inputs(model: str, given: Mapping[str, Kind] | None = None) -> ModelInputs:
    """Read the inputs of a model, of which the user may give kinds. Without onnx, only specs and roles are found."""
    try:
        import onnx
    except ImportError:
        specs = specs_of(make_session(model))
        return ModelInputs(specs, roles=input_roles(specs, given=given))
    proto = onnx.load(model, load_external_data=False)
    constants = constant_shapes(proto.graph)
    values = [value for value in proto.graph.input if value.name not in constants]
    specs = with_features(proto.graph, list(map(input_spec, values)))
    tables = {**one_hot_lengths(proto.graph), **table_lengths(proto.graph)}
    roles = input_roles(specs, tables, given)
    sizes = {**open_sizes(proto, specs, roles), **signal_sizes(specs, roles, tables)}
    return ModelInputs(specs, tables, sizes, roles)


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


HARMONICS: Final = 12
"""Overtones of a made-up voice; they reach 1 to 3 kHz."""
LONGEST_VOICE: Final = 317_011
"""Samples; no multiple of usual sizes, so that items differ."""


def signal_items(
    rng: np.random.Generator, spec: InputSpec, shape: tuple[int, ...], count: int, role: Role
) -> list[Array] | None:
    """Make the items of a sound, a sample rate or a recurrent state; None for any other input.

    Each item continues the sound of the one before. State is zero here; `carry_states` fills it in.
    """
    if spec.dtype is None:
        return None
    if role.kind == "sound":
        samples = sound(rng, count * int(np.prod(shape))).reshape(count, *shape)
        return list(samples.astype(spec.dtype))
    if role.kind == "sample rate":
        return [np.full(shape, SAMPLE_RATE, spec.dtype)] * count
    if role.kind == "state":
        return [np.zeros(shape, spec.dtype)] * count
    return None


def sound(rng: np.random.Generator, samples: int) -> Array:
    """A voice of changing pitch in syllables between pauses, and weak noise: within -1 and 1, at 16 kHz.

    Longer ones repeat it.
    """
    time = np.arange(min(samples, LONGEST_VOICE)) / SAMPLE_RATE
    pitch = rng.uniform(90, 220) * (1 + 0.2 * np.sin(2 * np.pi * 0.7 * time) + 0.1 * np.sin(2 * np.pi * 2.3 * time))
    phase = 2 * np.pi * np.cumsum(pitch) / SAMPLE_RATE
    voice = np.zeros(len(time))
    for harmonic in range(1, HARMONICS + 1):
        voice += rng.uniform(0.2, 1) / harmonic * np.sin(harmonic * phase)
    syllables = np.clip(np.sin(2 * np.pi * 2.5 * time), 0, None) * (np.sin(2 * np.pi * 0.4 * time) > -0.7)
    return np.resize(0.3 * voice * syllables + 0.003 * rng.standard_normal(len(time)), samples)


def lengths_of(feed: Mapping[str, Array], specs: Sequence[InputSpec], roles: Mapping[str, Role]) -> Feed:
    """Make the values of the inputs that tell how much of another input counts: all of it."""
    measured: dict[str, int] = {}
    for spec in specs:
        open_axes = inner_open_axes(spec)
        if open_axes and spec.name in feed:
            measured[spec.name] = feed[spec.name].shape[open_axes[-1]]
    lengths: Feed = {}
    for length in names_with("length", roles):
        if measured and length in feed:
            closest = max(measured, key=lambda name: len(os.path.commonprefix([name, length])))  # noqa: RUF071  letters
            lengths[length] = np.full_like(feed[length], measured[closest])
    return lengths


def carry_states(
    model: str, arrays: dict[str, list[Array]], specs: Sequence[InputSpec], roles: Mapping[str, Role]
) -> None:
    """Replace recurrent states by the outputs of the model for the item before, in place.

    They stay zero where the model returns no such states or does not run.
    """
    if arrays.keys().isdisjoint(names_with("state", roles)):
        return
    try:
        session = make_session(model)
        inputs = specs_of(session)
        returned = output_roles(output_specs(session), specs, roles)
        outputs = {role.feeds: name for name, role in returned.items() if role.kind == "state"}
        if not outputs:
            return
        for number in range(len(next(iter(arrays.values()))) - 1):
            feed = {name: items[number] for name, items in arrays.items()}
            results = session.run(list(outputs.values()), fit(feed, inputs))
            for name, result in zip(outputs, results, strict=True):
                arrays[name] = [*arrays[name][: number + 1], result, *arrays[name][number + 2 :]]
    except Exception:  # The next call that runs the model reports the runtime's own message.
        return
