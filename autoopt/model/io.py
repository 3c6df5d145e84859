"""Reading and writing models. For workers only: any reader of a model may crash or hang."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from autoopt.errors import InputError
from autoopt.model.files import MODEL
from autoopt.model.split import is_split
from autoopt.model.tensors import copy_fields, packed_bytes, tensors, weight_bytes
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


class Place(NamedTuple):
    """The place of a tensor's external data."""

    location: str
    """The name of the file."""
    offset: int
    size: int


class Unreadable(InputError):
    """The bytes are not an ONNX model."""

    outcome = Outcome.REFUSED


def parse(path: str | os.PathLike[str]) -> ModelProto:
    """Read a model without its external data.

    Attributes and bodies of a split model have their weights: passes ask for references to initializers only.

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
        for tensor in islice(tensors(model), len(model.graph.initializer), None):
            if tensor.data_location == tensor.EXTERNAL:
                load_weight(tensor, Path(path).parent)
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


def load_weights(
    model: ModelProto, folder: str | Path = ".", chosen: Callable[[TensorProto], bool] = lambda tensor: True
) -> None:
    """Load external data of the chosen tensors from a folder, in place. Raises what onnx raises."""
    for tensor in external_tensors(model):
        if chosen(tensor):
            load_weight(tensor, folder)


def load_weight(tensor: TensorProto, folder: str | Path) -> None:
    """Load the external data of a tensor from a folder, in place. Raises what onnx raises."""
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
    return set(map(location_of, external_tensors(model))) - {""}


def place_of(tensor: TensorProto) -> Place:
    """The place of a tensor's external data."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    size = packed_bytes(tensor)
    return Place(location_of(tensor), int(entries.get("offset") or 0), int(entries.get("length") or size or 0))


def location_of(tensor: TensorProto) -> str:
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
    places: dict[int, Place] = {}
    if external:
        places = places_of(model)
    if places:
        with data.open("wb") as file:
            for number, tensor in enumerate(tensors(model)):
                if number in places:
                    file.seek(places[number].offset)
                    file.write(tensor.raw_data)
        model = with_references(model, places)
    else:
        data.unlink(missing_ok=True)
    path.write_bytes(model.SerializeToString(deterministic=True))
    return path


def movable_bytes(tensor: TensorProto) -> int:
    """The bytes of a tensor that may lie in a file of its own; 0 for one whose values are fields of the graph."""
    if tensor.HasField("raw_data") or tensor.data_location == tensor.EXTERNAL:
        return packed_bytes(tensor) or 0  # to read `raw_data` would copy the weights
    return 0


def places_of(model: ModelProto) -> dict[int, Place]:
    """The places that `save` gives to the tensors that are not small, by their numbers among all tensors."""
    places: dict[int, Place] = {}
    end = 0
    for number, tensor in enumerate(tensors(model)):
        size = movable_bytes(tensor)
        if size >= SMALL:
            places[number] = Place(EXTERNAL_NAME, -(-end // PAGE) * PAGE, size)
            end = places[number].offset + size
    return places


def with_references(model: ModelProto, places: Mapping[int, Place]) -> ModelProto:
    """A copy of the model whose tensors with a place, by their numbers among all tensors, refer to external data.

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
            place = places[number]
            tensor.ClearField("raw_data")
            tensor.ClearField("external_data")
            tensor.data_location = tensor.EXTERNAL
            for key, value in (("location", place.location), ("offset", place.offset), ("length", place.size)):
                tensor.external_data.add(key=key, value=str(value))
    return light
