"""Check that the data belongs to the model, from the descriptions that a worker made of both."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from autoopt.errors import InputError, one_line
from autoopt.model.inspection import Inspection, ValueSpec

NOT_NUMBERS = ("str", "sequence", "map", "optional")
"""Types of outputs that a text label may equal."""


def check_data(
    description: Mapping[str, Any] | None,
    inspection: Inspection,
    where: str,
    *,
    fed_back: Collection[str] = (),
    named: bool = False,
) -> list[str]:
    """Check a data set against the model.

    Args:
        description: Description of the data; None without data.
        inspection: Inspection of the model.
        where: Place of the data, for errors.
        fed_back: Inputs that take the recurrent state and need no data.
        named: True if a script or post-processing names the outputs, so that text labels may fit any output.

    Returns:
        Notes on what is odd about the data.

    Raises:
        InputError: An input has no data, the items have a shape that the model does not accept, or the labels can
            equal no output.
    """
    if description is None:
        return []
    place = f"{where}:1: data"
    _check_labels(description, inspection, place, named)
    columns: Mapping[str, Mapping[str, Any]] = description["columns"]
    names = ", ".join(columns) or "none"
    inputs = inspection.inputs
    notes: list[str] = []
    if len(inputs) == len(columns) == 1 and inputs[0].name not in columns:
        ((name, column),) = columns.items()
        notes.append(f"data: using array {one_line(name)!r} as the model's input {one_line(inputs[0].name)!r}")
        columns = {inputs[0].name: column}
    for spec in inputs:
        if spec.name not in columns:
            if spec.name not in fed_back and spec.dtype != "optional":
                raise InputError(f"no array for the model's input {spec.name!r}; the data has: {names}", where=place)
            continue
        _check_shape(spec, columns[spec.name]["shape"], place)
        if columns[spec.name].get("finite") is False:
            notes.append(f"data: the array for {one_line(spec.name)!r} contains NaN or infinite values")
    return notes


def _check_labels(description: Mapping[str, Any], inspection: Inspection, place: str, named: bool) -> None:
    text = description.get("label_text")
    if text is None or named or any(spec.dtype in NOT_NUMBERS for spec in inspection.outputs):
        return
    raise InputError(
        f"labels are texts such as {one_line(text)!r}, but the model's outputs are numbers",
        where=place,
        remedy="give class ids as labels, or a post_process that names the classes",
    )


def _check_shape(spec: ValueSpec, shape: list[int], place: str) -> None:
    if not _fits(spec, shape):
        expected = ["?" if dimension is None else dimension for dimension in spec.shape or ()]
        message = f"array for input {spec.name!r} has shape {list(shape)}, the model expects {expected}"
        raise InputError(message, where=place)


def _fits(spec: ValueSpec, shape: list[int]) -> bool:
    """True unless items of an array of this shape certainly cannot be an input."""
    # Reading the data adds or removes a batch axis.
    if spec.shape is None or len(spec.shape) != len(shape):
        return True
    for expected, actual in zip(spec.shape[1:], shape[1:], strict=True):
        if isinstance(expected, int) and expected != actual:
            return False
    return True
