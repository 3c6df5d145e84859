"""Tables: a row is an item; all columns together are one input, or columns are named by input."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np

from autoopt.data.dataset import LABELS, Array, Choose, DataSet, check_columns, text_array
from autoopt.errors import InputError

Inputs: TypeAlias = Sequence[str] | Mapping[str, Sequence[str]]
"""Columns that are together one input, or columns by input."""
_DECIMAL_COMMA: Final = re.compile(r"\s*[+-]?\d+,\d+\s*")


def load_csv(
    path: str, label_col: str | None = None, input_cols: Inputs | None = None, delimiter: str | None = None
) -> DataSet:
    """Load a CSV file with a header; see `to_dataset`.

    Fields are separated by commas, or by semicolons or tabs if the header has these and no comma.

    Raises:
        InputError: There are no rows, rows differ in length, or a column does not exist.
    """
    if delimiter is None and path.lower().endswith(".tsv"):
        delimiter = "\t"
    delimiter, (header, *body) = _read_rows(path, delimiter)
    header = list(map(str.strip, header))
    _check_table(header, body, delimiter, path)
    columns = {name: _parse(texts) for name, texts in zip(header, zip(*body, strict=True), strict=True)}
    for name, values in columns.items():
        if values.dtype == object and all(map(_DECIMAL_COMMA.fullmatch, values)):
            reason = f"column {name!r} holds numbers with a decimal comma, such as {values[0].strip()}"
            raise InputError(reason, where=path, remedy="write them with a point")
    return to_dataset(columns, path, label_col, input_cols)


def _read_rows(path: str, delimiter: str | None) -> tuple[str, list[list[str]]]:
    """Read the separator of the fields, the header and at least one row of a CSV file."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as stream:
            delimiter = delimiter or _separator(stream.readline())
            stream.seek(0)
            rows = list(csv.reader(stream, delimiter=delimiter))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"not a readable table ({error})", where=path) from error
    if len(rows) < 2:
        raise InputError("has no rows below its header", where=path)
    return delimiter, rows


def _separator(header: str) -> str:
    for separator in (",", ";", "\t"):
        if separator in header:
            return separator
    return ","


def _check_table(header: Sequence[str], body: Sequence[Sequence[str]], delimiter: str, path: str) -> None:
    """Refuse columns of the same name, and rows of another length than the header."""
    for name, count in Counter(header).items():
        if count > 1:
            raise InputError(f"has several columns named {name!r}", where=path)
    for line, row in enumerate(body, 2):
        if len(row) != len(header):
            fields = f"{len(row)} fields separated by {delimiter!r}"
            raise InputError(f"line {line} has {fields}, the header {len(header)}", where=path)


def load_parquet(
    path: str, label_col: str | None = None, input_cols: Inputs | None = None, choose: Choose | None = None
) -> DataSet:
    """Load a Parquet file; see `to_dataset`. Needs pyarrow.

    Raises:
        InputError: pyarrow is missing, or the file is not a table.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise InputError("Parquet needs pyarrow", where=path, remedy="pip install 'autoopt[data]'") from error
    try:
        table = pyarrow.parquet.read_table(path)
    except (OSError, pyarrow.ArrowException) as error:
        raise InputError(f"not a readable table ({error})", where=path) from error
    if choose is not None and len(table):
        table = table.take(choose(len(table)))
    columns = {name: _from_list(table.column(name).to_pylist(), name, path) for name in table.column_names}
    return to_dataset(columns, path, label_col, input_cols)


def to_dataset(columns: Mapping[str, Array], path: str, label_col: str | None, input_cols: Inputs | None) -> DataSet:
    """The rows of a table as items; messages name `path`.

    The columns of an input have the shape (items, columns) together. By default, the label is one of `LABELS` if there
    is such a column, and all other columns are one input.

    Raises:
        InputError: A column does not exist, or the columns of one input are not all numbers.
    """
    label = label_col or next((name for name in columns if name.lower() in LABELS), None)
    labels = None
    if label is not None:
        check_columns(columns, [label], path)
        labels = columns[label]
    if input_cols is None:
        input_cols = [name for name in columns if name != label]
    if not isinstance(input_cols, Mapping):
        input_cols = {"input": input_cols}
    inputs = {name: _join(columns, list(names), path) for name, names in input_cols.items()}
    return DataSet(inputs, labels, name=path)


def _join(columns: Mapping[str, Array], names: list[str], path: str) -> Array:
    if not names:
        raise InputError("has no columns besides the label", where=path)
    check_columns(columns, names, path)
    arrays = [columns[name] for name in names]
    texts = [name for name in names if columns[name].dtype.kind == "O"]
    if len(arrays) == 1:
        return arrays[0] if arrays[0].ndim > 1 or texts else arrays[0].reshape(-1, 1)
    if 0 < len(texts) < len(arrays):
        noun, verb = ("column", "holds") if len(texts) == 1 else ("columns", "hold")
        quoted = ", ".join(map(repr, texts))
        remedy = f"is it the label? Use --label {texts[0]}; or choose columns with --inputs A,B,..."
        raise InputError(f"{noun} {quoted} {verb} text among numbers", where=path, remedy=remedy)
    return np.column_stack(arrays)


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
