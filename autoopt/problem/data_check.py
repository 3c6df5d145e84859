"""Check that the data belongs to the model, from the descriptions that a worker made of both."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from autoopt.data.decoder import Decoder, decoder_of
from autoopt.data.description import Column, DataDescription
from autoopt.errors import InputError, one_line
from autoopt.model.inspection import Inspection, ValueSpec
from autoopt.option_names import option
from autoopt.problem.problem import DataSets, DataSource
from autoopt.results import Note, NoteKind

CHANNELS = (1, 3, 4)
"""Numbers of channels that images have."""
TABLES = ("csv", "parquet")
"""Loaders of tables, whose columns can be chosen."""
SINGLE_INPUT = ("images", "sounds")
"""Loaders of files that are for one input."""
NOT_NUMBERS = ("str", "sequence", "map", "optional")
"""Types of outputs that a text label may equal."""
FLOATS = ("float16", "float32", "float64", "bfloat16")
NUMBERS = (*FLOATS, *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))
"""Types of inputs that numbers are cast to."""
RECORDS = ("[", "{", "|V")
"""Starts of the names that numpy gives to types with fields, and to raw bytes."""
CAST_NOTES = {
    "complex": "is complex: the imaginary parts are dropped, because the model expects {expected}",
    "datetime": "holds dates or times: they are read as numbers ({given})",
    "timedelta": "holds dates or times: they are read as numbers ({given})",
    "bool": "is boolean: it is read as 0 and 1 ({expected})",
}
"""Notes on values of other types that become the model's, by the start of the name that numpy gives the type."""
BYTE = 255
"""Largest value of a pixel."""
OF_TOKENIZERS = "token_type_ids"
"""An array that tokenizers always make and many models do not take."""
MOST_STARTS = 8
"""Beginnings of sequences that a message lists."""
MOST_NAMES = 5
"""Names of classes that are listed."""


def check_sets(
    data: DataSets,
    descriptions: Mapping[str, DataDescription],
    inspection: Inspection,
    place: str,
    state: Mapping[str, str] | None = None,
    *,
    has_script: bool = False,
) -> list[Note]:
    """Check the described data sets against the model.

    `place` names data without a path in messages; `state` is the recurrent state that the measurement feeds back.

    Returns:
        Notes on what is odd.

    Raises:
        InputError: The model cannot use them.
    """
    notes: list[Note] = []
    measured_states = frozenset((state or {}).values())
    for description, config in zip(descriptions.values(), configs_of(data, descriptions), strict=True):
        states = measured_states.union(config.get("state", {}).values())
        where = str(config.get("path") or place)
        if description.state and not states:
            notes.append(Note(f"{where}: {_state_advice(description)}"))
        named = "post_process" in config or has_script
        notes += check_data(description, inspection, where, fed_back=states, named=named)
    return notes


def configs_of(data: DataSets, descriptions: Mapping[str, DataDescription]) -> list[Mapping[str, Any]]:
    """The configurations of the described data sets, in the order of the descriptions."""
    sources: list[DataSource] = [getattr(data, use) for use in descriptions]
    return [source.config or {} for source in sources]


def _state_advice(description: DataDescription) -> str:
    """Say what to write into the data of a DAG so that each model gets its own recurrent state."""
    advice = "items follow each other; "
    if len(description.starts) > MOST_STARTS:
        return f"{advice}'autoopt init MODEL --data FILE' writes the fields that give each model its own state"
    text = ", ".join(f"{name}: {json.dumps(value)}" for name, value in description.state_fields.items())
    return f"{advice}{text} in the data gives each model its own state"


def check_data(
    description: DataDescription,
    inspection: Inspection,
    where: str,
    *,
    fed_back: Collection[str] = (),
    named: bool = False,
) -> list[Note]:
    """Check a data set against the model.

    Args:
        description: Of the data.
        inspection: Of the model.
        where: Place of the data, for errors.
        fed_back: Inputs that take the recurrent state and need no data. With tokens, a decoder with a cache needs no
            other data either.
        named: True if a script or post-processing names the outputs, so that text labels may fit any output.

    Returns:
        Notes on what is odd about the data.

    Raises:
        InputError: An input has no data, the items have a shape that the model does not accept, or the labels can
            equal no output.
    """
    place = f"{where}: data"
    notes = [Note(f"data: {description.reading}")] if description.reading else []
    if not named:
        notes += _check_labels(description, inspection, place)
    inputs = inspection.inputs
    decoder = decoder_of(inspection.input_roles)
    columns, binding = _columns_by_input(description, _only_input(inputs, decoder))
    notes += map(Note, binding)
    if decoder is not None and decoder.tokens in columns:
        fed_back = {*fed_back, *decoder.cache, *decoder.derived}
    for spec in inputs:
        if spec.name in columns:
            notes += _check_array(spec, columns[spec.name], description, inspection, place)
        elif spec.name not in fed_back and spec.dtype != "optional":
            names = ", ".join(description.columns) or "none"
            message = f"no array for the model's input {spec.name!r}; the data has: {names}"
            raise InputError(message, where=place, remedy=_name_remedy(inputs, description))
    notes += map(Note, _ignored(columns, inputs, description.labels))
    return notes


def _columns_by_input(
    description: DataDescription, only_input: str | None
) -> tuple[Mapping[str, Column], Sequence[str]]:
    """The columns by the input that they are for, and a note if a single one does not have its input's name."""
    columns = description.columns
    if len(columns) != 1 or only_input is None or only_input in columns:
        return columns, ()
    ((name, column),) = columns.items()
    array = f"array {one_line(name)!r}"
    if description.loader == "images":
        array = "the images"
    elif description.loader in TABLES and len(column.shape) == 2:
        array = f"{column.shape[1]} columns"
    return {only_input: column}, [f"data: using {array} as the model's input {one_line(only_input)!r}"]


def _check_array(
    spec: ValueSpec, column: Column, description: DataDescription, inspection: Inspection, place: str
) -> list[Note]:
    """Check the array of one input.

    Returns:
        Notes on what is odd about its values.

    Raises:
        InputError: The model cannot take it.
    """
    if spec.shape is not None and not _may_fit(spec.shape, column):
        expected = ["?" if size is None else size for size in spec.shape]
        message = f"array for input {spec.name!r} has shape {list(column.shape)}, the model expects {expected}"
        raise InputError(message, where=place, remedy=_shape_remedy(spec.shape, column.shape, description))
    array = f"data: the array for {one_line(spec.name)!r}"
    notes = []
    if column.finite is False:
        text = f"the array for {one_line(spec.name)!r} contains NaN or infinite values"
        notes.append(Note(f"{text}; leave these items out", NoteKind.WARNING))
    cast = _cast_note(spec, column, place)
    if cast:
        notes.append(Note(f"{array} {cast}"))
    if not description.made_up:
        _check_ids(spec, column, inspection.table_lengths.get(spec.name), place)
    return notes


def _check_ids(spec: ValueSpec, column: Column, length: int | None, place: str) -> None:
    """Refuse ids outside the table that the model looks them up in."""
    if length is None or column.span is None:
        return
    low, high = column.span
    if -length <= low and high < length:
        return
    message = (
        f"array for input {one_line(spec.name)!r} holds ids from {low} to {high}, the model knows 0 to {length - 1}"
    )
    raise InputError(message, where=place, remedy="use the tokenizer or the ids of this model")


def _only_input(inputs: Sequence[ValueSpec], decoder: Decoder | None) -> str | None:
    """The input that a single array belongs to, whatever its name; None if there are several."""
    if decoder is not None:
        return decoder.tokens
    return inputs[0].name if len(inputs) == 1 else None


def _name_remedy(inputs: Sequence[ValueSpec], description: DataDescription) -> str:
    if any(map(_is_text, description.columns.values())):
        return _tokenize()
    if description.loader in SINGLE_INPUT:
        return (
            f"{description.loader} are for one input only: give the arrays of all in an .npz file, or name recurrent "
            "state in a dag.yaml's data: state"
        )
    if len(inputs) == 1:
        labels = option("label", of="NAME")
        return f"choose it with {option('inputs', of='NAME')}, and the labels with {labels}"
    pairs = {one_line(spec.name): "NAME" for spec in inputs[:2]}
    return f"name the arrays after the model's inputs, or say which is which: {option('inputs', pairs)}"


def _check_labels(description: DataDescription, inspection: Inspection, place: str) -> list[Note]:
    """Refuse labels that are NaN, or texts that are not the names of the classes that an output scores.

    Returns:
        A note on the numbers that class names count as.
    """
    if description.broken_labels:
        message = f"{description.broken_labels} of {description.items} labels are NaN or infinite"
        raise InputError(message, where=place, remedy="leave these items out")
    text, names = description.label_text, list(map(one_line, description.class_names))
    if text is None or any(spec.dtype in NOT_NUMBERS for spec in inspection.outputs):
        return []
    if names and any(_classifies(spec, len(names)) for spec in inspection.outputs):
        if len(names) > MOST_NAMES:
            names[MOST_NAMES - 1 : -1] = ["..."]
        last = len(description.class_names) - 1
        return [Note(f"labels: the names {', '.join(names)} count as classes 0 to {last}, in sorted order")]
    raise InputError(
        f"labels are {len(names) or 'many'} different texts such as {one_line(text)!r}, which no output can equal",
        where=place,
        remedy="give class ids as labels, or a post_process that names the classes",
    )


def _classifies(output: ValueSpec, classes: int) -> bool:
    """True if an output may hold the ids or the scores of this number of classes, one or a row for each item."""
    if output.shape is None:
        return True
    if len(output.shape) == 2:
        last = output.shape[1]
        return not isinstance(last, int) or last == classes or (last == 1 and classes == 2)
    return len(output.shape) == 1 and (output.dtype not in FLOATS or classes == 2)


def _is_text(column: Column) -> bool:
    return column.dtype.startswith(("<U", "|S")) or column.dtype == "object"


def _cast_note(spec: ValueSpec, column: Column, place: str) -> str:
    """The loss or the likely mistake where values become the model's type; empty if nothing."""
    given, expected = column.dtype, spec.dtype
    if expected not in NUMBERS or given == expected:
        return ""
    if _is_text(column):
        message = f"array for input {one_line(spec.name)!r} holds text, the model expects {expected}"
        remedy = f"{_choose_columns()} or a pre_process"
        raise InputError(message, where=place, remedy=remedy if expected in FLOATS else _tokenize())
    if given.startswith(RECORDS):
        message = f"array for input {one_line(spec.name)!r} holds records or raw bytes, the model expects {expected}"
        raise InputError(message, where=place, remedy="give plain numbers, an array for each field")
    for kind, note in CAST_NOTES.items():
        if given.startswith(kind):
            return note.format(given=given, expected=expected)
    if expected not in FLOATS and given in FLOATS:
        return f"is {given}: fractions are cut off, because the model expects {expected}"
    return _range_note(column.span, expected, expected in FLOATS)


def _range_note(span: tuple[int, int] | None, expected: str, is_float: bool) -> str:
    if span is None:
        return ""
    low, high = span
    if is_float:
        if low >= 0 and 1 < high <= BYTE and high > BYTE // 2:
            remedy = f"if the model expects 0 to 1, add {option('scale', round(1 / BYTE, 6))}"
            return f"holds integers from {low} to {high}, as images do: they are read as they are; {remedy}"
        return ""
    bits = int(expected.removeprefix("u").removeprefix("int"))
    smallest, largest = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    if expected.startswith("u"):
        smallest, largest = 0, 2**bits - 1
    if low < smallest or high > largest:
        return f"holds integers from {low} to {high}, which do not fit into the model's {expected}"
    return ""


def _ignored(columns: Collection[str], inputs: Sequence[ValueSpec], has_labels: bool) -> list[str]:
    """Name the arrays that are no inputs, and may be the labels if there are none."""
    known = {spec.name for spec in inputs}
    notes: list[str] = []
    for name in columns:
        if name not in known and name != OF_TOKENIZERS:
            hint = "" if has_labels else f"; if it holds the labels, add {option('label', one_line(name))}"
            notes.append(f"data: array {one_line(name)!r} is no input of the model and is ignored{hint}")
    return notes


def _may_fit(expected: Sequence[int | str | None], column: Column) -> bool:
    """Compare the dimensions behind the axis of the items, which `autoopt.data.fit.fit` may drop or add."""
    missing = len(expected) - len(column.shape)
    if abs(missing) > 1:
        return False
    if missing and not column.stacked:
        return True
    item = column.shape[1:]
    return _fits(expected[len(expected) - len(item) :], item)


def _shape_remedy(expected: Sequence[int | str | None], actual: Sequence[int], description: DataDescription) -> str:
    """The options or the change that would give the data the expected shape (items first), if any would."""
    loader = description.loader
    if len(actual) == 2 and loader in TABLES:
        return _table_remedy(expected, actual[1], description.labels)
    if len(actual) != 4 or len(expected) != 4:
        return ""
    channels_first = actual[1] in CHANNELS
    if loader == "images":
        return _images_remedy(expected, actual, channels_first)
    if _fits(expected[1:], _swapped(actual, channels_first)):
        axes = "0, 2, 3, 1" if channels_first else "0, 3, 1, 2"
        return f"transpose it with numpy: array.transpose({axes})"
    return ""


def _images_remedy(expected: Sequence[int | str | None], actual: Sequence[int], channels_first: bool) -> str:
    if _fits(expected[1:], _swapped(actual, channels_first)):
        return f"add {option('layout', 'NHWC' if channels_first else 'NCHW')}"
    channel = 1 if channels_first else 3
    if (expected[channel], actual[channel]) == (1, 3):
        return f"add {option('grayscale', value=True)}"
    size = expected[2:] if expected[1] in CHANNELS else expected[1:3]
    if all(isinstance(side, int) for side in size):
        return f"add {option('image_size', tuple(size))}"
    return ""


def _tokenize() -> str:
    """The remedy where a model takes tokens and the data holds texts."""
    return f"for texts, add {option('tokenizer', 'tokenizer.json')}"


def _choose_columns() -> str:
    return f"choose the columns with {option('inputs', of='A,B,...')}"


def _table_remedy(expected: Sequence[int | str | None], columns: int, labelled: bool) -> str:
    """The remedy for a table with this number of columns beside the label."""
    if len(expected) <= 2:
        label = option("label", of="NAME")
        if labelled:
            return _choose_columns()
        if list(expected[1:]) == [columns - 1]:
            others = option("inputs", of="A,B,...")
            return f"one column too many: name the label with {label}, or choose the others with {others}"
        return f"{_choose_columns()} and the label with {label}"
    sizes = [size for size in expected[1:] if isinstance(size, int)]
    if len(sizes) == len(expected) - 1 and math.prod(sizes) == columns:
        return f"reshape each row to {sizes} in a pre_process"
    return "give the arrays in an .npz file, or a folder of images if the input is an image"


def _swapped(shape: Sequence[int], channels_first: bool) -> tuple[int, int, int]:
    """The shape of an item with its channels at the other end."""
    if channels_first:
        return shape[2], shape[3], shape[1]
    return shape[3], shape[1], shape[2]


def _fits(expected: Sequence[int | str | None], actual: Sequence[int]) -> bool:
    pairs = zip(expected, actual, strict=True)
    return all(side == other for side, other in pairs if isinstance(side, int))
