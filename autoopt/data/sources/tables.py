"""Tables: a row is an item; all columns together are one input, or columns are named by input."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np

from autoopt.data.csv_files import loader_of_suffix, read_columns
from autoopt.data.dataset import LABELS, Array, Choose, DataSet, check_columns, text_array
from autoopt.errors import InputError
from autoopt.option_names import option

Inputs: TypeAlias = Sequence[str] | Mapping[str, str | Sequence[str]]
"""Columns that are together one input, or columns by input."""
_ID: Final = re.compile(r"id|.*[ _-]id|index|unnamed: 0|", re.IGNORECASE)
"""Names of columns that may number the rows; pandas writes the index of a table without one."""
_DECIMAL_COMMA: Final = re.compile(r"\s*[+-]?\d+,\d+\s*")


def load_csv(
    path: str,
    *,
    label_col: str | None = None,
    input_cols: Inputs | None = None,
    ignore_cols: Sequence[str] | None = None,
    delimiter: str | None = None,
    model: str | None = None,
) -> DataSet:
    """Load a CSV file with a header; see `to_dataset`.

    Raises:
        InputError: There are no rows, rows differ in length, or a column does not exist.
    """
    delimiter, texts = read_columns(path, delimiter)
    columns = {name: _parse(cells) for name, cells in texts.items()}
    for name, values in columns.items():
        if values.dtype == object and all(map(_DECIMAL_COMMA.fullmatch, values)):
            reason = f"column {name!r} holds numbers with a decimal comma, such as {values[0].strip()}"
            raise InputError(reason, where=path, remedy="write them with a point")
    return to_dataset(columns, path, label_col, input_cols, ignore_cols, model)


def load_parquet(
    path: str,
    *,
    label_col: str | None = None,
    input_cols: Inputs | None = None,
    ignore_cols: Sequence[str] | None = None,
    choose: Choose | None = None,
    model: str | None = None,
) -> DataSet:
    """Load a Parquet file; see `to_dataset`. Needs pyarrow.

    Raises:
        InputError: pyarrow is missing, or the file is not a table.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise InputError("Parquet needs pyarrow", where=path, remedy="pip install 'autoopt[tables]'") from error
    try:
        table = pyarrow.parquet.read_table(path)
    except (OSError, pyarrow.ArrowException) as error:
        raise InputError(f"not a readable table ({error})", where=path) from error
    if choose is not None and len(table):
        table = table.take(choose(len(table)))
    columns = {name: _from_list(table.column(name).to_pylist(), name, path) for name in table.column_names}
    return to_dataset(columns, path, label_col, input_cols, ignore_cols, model)


def to_dataset(
    columns: Mapping[str, Array],
    path: str,
    label: str | None,
    inputs: Inputs | None,
    ignored: Sequence[str] | None,
    model: str | None,
) -> DataSet:
    """The rows of a table as items; messages name `path`.

    The columns of an input have the shape (items, columns) together. By default, the label is one of `LABELS` if there
    is such a column, and all other columns are one input, except one that numbers the rows.

    Raises:
        InputError: A column does not exist, or the columns of one input are not all numbers.
    """
    label = label or next((name for name in columns if name.lower() in LABELS), None)
    check_columns(columns, [*filter(None, [label]), *(ignored or ())], path)
    labels = None if label is None else columns[label]
    reading = ""
    if inputs is None:
        inputs = [name for name in columns if name != label and name not in (ignored or ())]
        ids = _ids(columns, inputs, model) if ignored is None else []
        if ids:
            inputs = [name for name in inputs if name not in ids]
            reading = f"ids are left out: {', '.join(map(repr, ids))}; the option inputs chooses columns"
    if not isinstance(inputs, Mapping):
        inputs = {"input": inputs}
    joined = {}
    for name, chosen in inputs.items():
        names = [chosen] if isinstance(chosen, str) else list(chosen)
        joined[name] = _join(columns, names, path, label)
    return DataSet(joined, labels, name=path, reading=reading)


def _ids(columns: Mapping[str, Array], names: Sequence[str], model: str | None) -> list[str]:
    """The columns without a use for a model: whole numbers or texts without repetition, by name or by number.

    They are called like an id, or there is just one, and the model takes one column less.
    """
    distinct = [name for name in names if columns[name].dtype.kind in "iO" and _is_distinct(columns[name])]
    if not distinct:
        return []
    width = None if model is None else _width(model)
    if width == len(names):
        return []
    ids = [name for name in distinct if _ID.fullmatch(name)]
    if not ids and width == len(names) - 1 and len(distinct) == 1:
        ids = distinct
    return ids if len(ids) < len(names) else []


def _is_distinct(values: Array) -> bool:
    return values.ndim == 1 and len(set(values.tolist())) == len(values) > 1


def _width(model: str) -> int | None:
    """The number of columns that a model takes; None if it is open, or if there are several inputs."""
    from autoopt.data.sources.synthetic import read_inputs

    specs = read_inputs(model).specs
    sizes = specs[0].fixed_sizes if len(specs) == 1 else ()
    return sizes[1] if len(sizes) == 2 else None


def _join(columns: Mapping[str, Array], names: list[str], path: str, label: str | None) -> Array:
    if not names:
        raise InputError("has no columns besides the label", where=path)
    check_columns(columns, names, path)
    arrays = [columns[name] for name in names]
    texts = [name for name in names if columns[name].dtype.kind == "O"]
    for name in texts:
        _refuse_files(str(columns[name][0]), name, path)
    if len(arrays) == 1:
        return arrays[0] if arrays[0].ndim > 1 or texts else arrays[0].reshape(-1, 1)
    if 0 < len(texts) < len(arrays):
        for name in texts:
            _refuse_stray_text(columns[name], name, path)
        raise _text_among_numbers(texts, path, is_labelled=label is not None)
    return np.column_stack(arrays)


def _text_among_numbers(texts: list[str], path: str, *, is_labelled: bool) -> InputError:
    """The error for columns of text beside columns of numbers; one of them may be the label if none is named."""
    noun, verb = ("column", "holds") if len(texts) == 1 else ("columns", "hold")
    quoted = ", ".join(map(repr, texts))
    remedy = f"choose columns with {option('inputs', of='A,B,...')}"
    if not is_labelled and len(texts) == 1:
        remedy = f"name the label with {option('label', texts[0])}, or {remedy}"
    elif not is_labelled:
        remedy = f"name the label with {option('label', of='NAME')}, and {remedy}"
    return InputError(f"{noun} {quoted} {verb} text among numbers", where=path, remedy=remedy)


def _refuse_stray_text(cells: Array, column: str, path: str) -> None:
    """Refuse a column of numbers with some text, such as `n/a`."""
    rows = [row for row, cell in enumerate(map(str, cells), 1) if not _is_number(cell)]
    if 2 * len(rows) > len(cells):
        return
    reason = f"column {column!r} holds the text {str(cells[rows[0] - 1])!r} among numbers, in row {rows[0]}"
    raise InputError(reason, where=path, remedy="give numbers, or leave these rows out")


def _is_number(cell: str) -> bool:
    try:
        float(cell or "nan")
    except ValueError:
        return False
    return True


def _refuse_files(cell: str, column: str, path: str) -> None:
    """Refuse a column of names of images or sounds: a list is read as such if its first file exists."""
    if loader_of_suffix(cell) is not None:
        reason = f"column {column!r} names files, and {cell} is not found"
        raise InputError(reason, where=path, remedy="paths in a CSV file start from its folder")


def _parse(texts: Sequence[str]) -> Array:
    """Whole numbers, numbers or texts: the narrowest type that holds all; an empty field is not a number."""
    numbers = np.array([text if text.strip() else "nan" for text in texts])
    for kind in (np.int64, np.float64):
        try:
            return numbers.astype(kind)
        except (ValueError, OverflowError):
            continue
    return np.array(texts, object)


def _from_list(values: list[object], name: str, path: str) -> Array:
    """Texts, numbers or lists of numbers of one length; a missing value is an empty text or not a number."""
    if any(isinstance(value, str) for value in values):
        return text_array(values)
    try:
        return np.array([np.nan if value is None else value for value in values])
    except ValueError as error:
        raise InputError(f"the rows of column {name!r} differ in length", where=path) from error
