"""Does the data belong to the model? Asked before anything runs, of what a worker said of both."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from autoopt.errors import InputError, one_line
from autoopt.model.inspection import Inspection, ValueSpec


def check_data(
    described: Mapping[str, Any] | None,
    inspection: Inspection,
    where: str,
    *,
    fed_back: Collection[str] = (),
    named: bool = False,
) -> list[str]:
    """Notes on what is odd about the data.

    Args:
        fed_back: inputs that take the recurrent state, and need no data.
        named: whether something of the user's gives the outputs names, so that text labels fit any output.

    Raises:
        InputError: an input without data, items of a size that the model does not take, or labels that no output can
            ever equal.
    """
    if described is None:
        return []
    _check_labels(described, inspection, where, named)
    columns: Mapping[str, Mapping[str, Any]] = described["columns"]
    inputs = inspection.inputs
    notes: list[str] = []
    have = ", ".join(columns) or "none"
    if len(inputs) == 1 and len(columns) == 1 and inputs[0].name not in columns:
        (name,) = columns
        notes.append(f"data: array {one_line(name)!r} is taken for the model's input {one_line(inputs[0].name)!r}")
        columns = {inputs[0].name: columns[name]}
    for spec in inputs:
        column = columns.get(spec.name)
        if column is None and (spec.name in fed_back or spec.dtype == "optional"):
            continue
        if column is None:
            raise InputError(
                f"no array for the model's input {spec.name!r}; the data has: {have}", where=f"{where}:1: data"
            )
        if not _fits(spec, column["shape"]):
            takes = [d if d is not None else "?" for d in spec.shape or ()]
            raise InputError(
                f"array for input {spec.name!r} has shape {list(column['shape'])}, the model takes {takes}",
                where=f"{where}:1: data",
            )
        if column.get("finite") is False:
            notes.append(f"data: the array for {one_line(spec.name)!r} holds NaN or infinite values")
    return notes


def _check_labels(described: Mapping[str, Any], inspection: Inspection, where: str, named: bool) -> None:
    text = described.get("label_text")
    numbers = all(spec.dtype not in ("str", "sequence", "map", "optional") for spec in inspection.outputs)
    if text is not None and numbers and not named:
        raise InputError(
            f"labels are texts such as {one_line(text)!r}, but the model's outputs are numbers",
            where=f"{where}:1: data",
            remedy="give class ids as labels, or a post_process that names the classes",
        )


def _fits(spec: ValueSpec, shape: list[int]) -> bool:
    """Whether items of an array of that shape can be an input; only what is certain counts against it."""
    if spec.shape is None or len(spec.shape) != len(shape):
        return True  # a missing or extra batch axis is put right where the data is read
    return all(not isinstance(want, int) or want == got for want, got in zip(spec.shape[1:], shape[1:], strict=True))
