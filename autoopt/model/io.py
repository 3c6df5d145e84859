"""Reading and writing models. For workers only: any reader of a model may crash or hang."""

from __future__ import annotations

import math
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from autoopt.errors import InputError
from autoopt.model.files import MODEL
from autoopt.model.split import splitting
from autoopt.model.split.references import weight_at
from autoopt.model.split.splitting import split
from autoopt.model.split.stored import is_split
from autoopt.model.tensors import copy_fields, packed_bytes, tensors, weight_bytes
from autoopt.model.weight_files import Bytes, FileBytes, Weight
from autoopt.outcome import Outcome

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto

EXTERNAL_ABOVE = 3 << 29
"""Models with more bytes of weights (1.5 GiB) are saved with external data; protobuf ends at 2 GiB."""
EXTERNAL_NAME = f"{MODEL}.data"
SMALL = 1024
"""Tensors of fewer bytes stay in the graph: shapes and scales are needed to read it."""
PAGE = 4096
"""External tensors begin at multiples of this, so that runtimes can map them."""
AGAIN: Final = "download or export the model again"


class Unreadable(InputError):
    """The bytes are not an ONNX model."""

    outcome = Outcome.REFUSED


def parse(path: str | os.PathLike[str]) -> ModelProto:
    """Read a model without its external data.

    Attributes of a split model have their weights: passes ask for references to initializers only.

    Raises:
        Unreadable: the file is empty or not an ONNX model.
    """
    import onnx
    from google.protobuf.message import DecodeError

    where = str(path)
    if os.stat(path).st_size == 0:
        raise Unreadable("the file is empty", where=where, remedy=AGAIN)
    try:
        model = onnx.load(path, format="protobuf", load_external_data=False)
    except (DecodeError, UnicodeDecodeError) as error:
        raise Unreadable(f"not an ONNX model, or cut off ({error})", where=where, remedy=AGAIN) from error
    if not model.HasField("graph"):
        raise Unreadable("not an ONNX model (it has no graph)", where=where, remedy=AGAIN)
    if is_split(path):
        _load_attributes(model, Path(path).parent)
    return model


def load(path: str | os.PathLike[str]) -> ModelProto:
    """Read a model with its external data.

    Raises:
        Unreadable: the file is empty or not an ONNX model, or its external data is missing.
    """
    from onnx.checker import ValidationError

    model = parse(path)
    try:
        load_weights(model, Path(path).parent)
    except (OSError, ValidationError, ValueError) as error:
        raise Unreadable(f"its external data cannot be read ({error})", where=str(path)) from error
    return model


def load_small_weights(path: Path, elements: int) -> ModelProto:
    """Read a model with its external data, but leave tensors of more elements than that as references."""
    model = parse(path)
    load_weights(model, path.parent, lambda tensor: math.prod(tensor.dims) <= elements)
    return model


def load_own_weights(path: Path) -> ModelProto:
    """Read a model with its external data, but leave references to weights of split models."""
    model = parse(path)
    load_weights(model, path.parent, lambda tensor: not weight_at(_location(tensor)))
    return model


def load_weights(
    model: ModelProto, folder: str | Path = ".", chosen: Callable[[TensorProto], bool] = lambda tensor: True
) -> None:
    """Load external data of the chosen tensors from a folder, in place. Raises what onnx raises."""
    for tensor in external_tensors(model):
        if chosen(tensor):
            _load_weight(tensor, folder)


def _load_attributes(model: ModelProto, folder: Path) -> None:
    """Load external data of all tensors but the graph's initializers, which are the first ones."""
    for tensor in islice(tensors(model), len(model.graph.initializer), None):
        if tensor.data_location == tensor.EXTERNAL:
            _load_weight(tensor, folder)


def _load_weight(tensor: TensorProto, folder: str | Path) -> None:
    from onnx.external_data_helper import load_external_data_for_tensor

    # Add the length of external data if it is not given: onnx would read the file to its end for each tensor.
    size = packed_bytes(tensor)
    if size is not None and all(entry.key != "length" for entry in tensor.external_data):
        tensor.external_data.add(key="length", value=str(size))
    load_external_data_for_tensor(tensor, str(folder))
    tensor.ClearField("data_location")  # equal models must give equal bytes, wherever their weights were


def external_tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Yield the tensors that refer to external data."""
    for tensor in tensors(model):
        if tensor.data_location == tensor.EXTERNAL:
            yield tensor


def external_locations(model: ModelProto) -> set[str]:
    """List the files that hold external data, as the model names them."""
    return set(map(_location, external_tensors(model))) - {""}


def _location(tensor: TensorProto) -> str:
    """The file that holds a tensor's external data; empty if none is given."""
    return next((entry.value for entry in tensor.external_data if entry.key == "location"), "")


def save(model: ModelProto, folder: str | os.PathLike[str], *, external: bool | None = None) -> Path:
    """Write `folder/model.onnx` and, for large models or on request, `model.onnx.data`; return the model's path.

    Equal models give equal bytes. The folder is created if it does not exist.

    Raises:
        ValueError: `model` refers to external data that was not loaded.
    """
    if any(external_tensors(model)):
        raise ValueError("the model's external data is not loaded: use io.load")
    Path(folder).mkdir(parents=True, exist_ok=True)
    path, data = Path(folder, MODEL), Path(folder, EXTERNAL_NAME)
    if external is None:
        external = weight_bytes(model) > EXTERNAL_ABOVE
    places: dict[int, _Place] = {}
    if external:
        places = _write_weights(model, data)
    if places:
        model = _refer_to_data(model, places)
    else:
        data.unlink(missing_ok=True)
    path.write_bytes(model.SerializeToString(deterministic=True))
    return path


def save_split(model: ModelProto, folder: Path) -> Path | None:
    """Store a model like `save`, but split, in a folder of split models; None if it is too small for that.

    Its weights may be references to weights in this folder.

    Returns:
        The graph, which is to be published or removed.
    """
    size = weight_bytes(model)
    if size <= splitting.SPLIT_ABOVE:
        return None
    _load_attributes(model, folder)
    one_file = size <= EXTERNAL_ABOVE
    places = dict(_places(model))
    if one_file:
        initializers = len(model.graph.initializer)  # the first ones among all tensors
        places = {number: place for number, place in places.items() if number < initializers}
    # Serializing the whole model would take its memory once more.
    graph = _refer_to_data(model, places).SerializeToString(deterministic=True)
    files: dict[str, Bytes] = {MODEL: graph, EXTERNAL_NAME: _ExternalData(model, places, folder)}
    return split(files, folder, one_file=one_file, stored=_stored_weights(model, places))


def _stored_weights(model: ModelProto, places: Mapping[int, _Place]) -> dict[tuple[int, int], Weight]:
    """The weights of split models that a model refers to, by their positions in the file of external data."""
    weights: dict[tuple[int, int], Weight] = {}
    for number, tensor in enumerate(tensors(model)):
        if number in places and tensor.data_location == tensor.EXTERNAL:
            offset, length = places[number]
            digest = weight_at(_location(tensor))
            if digest:
                weights[offset, offset + length] = Weight(digest, length)
    return weights


class _ExternalData:
    """The file of external data that `save` writes, without a file. Tensors may refer to weights in a folder."""

    def __init__(self, model: ModelProto, places: Mapping[int, _Place], folder: Path) -> None:
        self._folder = folder
        self._tensors = [(*places[number], tensor) for number, tensor in enumerate(tensors(model)) if number in places]
        self._offsets = [offset for offset, _, _ in self._tensors]
        self._read: tuple[int, bytes] = (-1, b"")
        """The tensor that was read last, and its bytes: protobuf copies them each time."""

    def __len__(self) -> int:
        return sum(self._tensors[-1][:2]) if self._tensors else 0

    def __getitem__(self, part: slice, /) -> bytes:
        start, stop, _ = part.indices(len(self))
        pieces = []
        while start < stop:
            number = bisect_right(self._offsets, start) - 1
            offset, length, tensor = self._tensors[number]
            end = offset + length
            if start < end and tensor.data_location == tensor.EXTERNAL:
                with (self._folder / _location(tensor)).open("rb") as file:
                    pieces.append(FileBytes(file.fileno())[start - offset : min(stop, end) - offset])
            elif start < end:
                if self._read[0] != number:
                    self._read = (number, tensor.raw_data)
                pieces.append(self._read[1][start - offset : stop - offset])
            else:
                end = self._offsets[number + 1]
                pieces.append(bytes(min(stop, end) - start))
            start = min(stop, end)
        return b"".join(pieces)


_Place: TypeAlias = tuple[int, int]
"""Offset and length of a tensor in the file of external data."""


def _write_weights(model: ModelProto, data: Path) -> dict[int, _Place]:
    """Write the tensors that are not small to `data`; return their places, by their numbers among all tensors."""
    places = dict(_places(model))
    with data.open("wb") as file:
        for number, tensor in enumerate(tensors(model)):
            if number in places:
                file.seek(places[number][0])
                file.write(tensor.raw_data)
    return places


def _places(model: ModelProto) -> Iterator[tuple[int, _Place]]:
    """The places of the tensors that are not small, by their numbers among all tensors."""
    end = 0
    for number, tensor in enumerate(tensors(model)):
        length = 0
        if tensor.HasField("raw_data") or tensor.data_location == tensor.EXTERNAL:
            length = packed_bytes(tensor) or 0  # to read `raw_data` would copy the weights
        if length >= SMALL:
            offset = -(-end // PAGE) * PAGE
            yield number, (offset, length)
            end = offset + length


def _refer_to_data(model: ModelProto, places: Mapping[int, _Place]) -> ModelProto:
    """A copy of the model whose tensors with a place refer to the external data.

    The model itself stays as it is: protobuf frees the bytes of a tensor only together with the whole model, so to move
    them out and back would take the memory twice.
    """
    light = type(model)()
    copy_fields(model, light, but="graph")
    copy_fields(model.graph, light.graph, but="initializer")
    for number, tensor in enumerate(model.graph.initializer):  # the first ones among all tensors
        copy_fields(tensor, light.graph.initializer.add(), but="raw_data" if number in places else "")
    for number, tensor in enumerate(tensors(light)):
        if number in places:
            offset, length = places[number]
            tensor.ClearField("raw_data")
            tensor.ClearField("external_data")
            tensor.data_location = tensor.EXTERNAL
            for key, value in (("location", EXTERNAL_NAME), ("offset", offset), ("length", length)):
                tensor.external_data.add(key=key, value=str(value))
    return light
