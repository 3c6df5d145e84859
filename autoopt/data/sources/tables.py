"""Tables: a row is an item; all columns together are one input, or columns are named by input."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np

from autoopt.data.dataset import Array, Choose, DataSet, text_array
from autoopt.errors import InputError, did_you_mean

Inputs: TypeAlias = Sequence[str] | Mapping[str, Sequence[str]]
"""Columns that are together one input, or columns by input."""
LABELS: Final = ("label", "labels", "target", "class", "y")
"""Names of columns that are the ground truth unless `label_col` names another."""


def load_csv(
    path: str, label_col: str | None = None, input_cols: Inputs | None = None, delimiter: str | None = None
) -> DataSet:
    """Load a CSV file with a header; see `to_dataset`.

    Raises:
        InputError: There are no rows, rows differ in length, or a column does not exist.
    """
    file = Path(path)
    if delimiter is None:
        delimiter = "\t" if file.suffix.lower() == ".tsv" else ","
    try:
        with open(file, newline="", encoding="utf-8") as stream:
            rows = list(csv.reader(stream, delimiter=delimiter))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"not a readable table ({error})", where=path) from error
    if len(rows) < 2:
        raise InputError("has no rows below its header", where=path)
    header, *body = rows
    for line, row in enumerate(body, 2):
        if len(row) != len(header):
            raise InputError(f"line {line} has {len(row)} fields, the header {len(header)}", where=path)
    columns = {name.strip(): _parse(texts) for name, texts in zip(header, zip(*body, strict=True), strict=True)}
    return to_dataset(columns, path, label_col, input_cols)


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
    """The rows of a table as items.

    Args:
        columns: The columns by name.
        path: The name of the data.
        label_col: The column of labels; by default one of `LABELS` if there is one.
        input_cols: The columns that are inputs, together of shape (items, columns); by default all but the label.

    Raises:
        InputError: A column does not exist, or the columns of one input are not all numbers.
    """
    label = label_col or next((name for name in columns if name.lower() in LABELS), None)
    labels = None
    if label is not None:
        _check_column(columns, label, path)
        labels = columns[label]
    if input_cols is None:
        input_cols = [name for name in columns if name != label]
    if not isinstance(input_cols, Mapping):
        input_cols = {"input": input_cols}
    inputs = {name: _join(columns, list(names), path) for name, names in input_cols.items()}
    return DataSet(inputs, labels, name=path)


def _check_column(columns: Mapping[str, Array], name: str, path: str) -> None:
    if name not in columns:
        raise InputError(f"no column {name!r}", where=path, remedy=did_you_mean(name, columns))


def _join(columns: Mapping[str, Array], names: list[str], path: str) -> Array:
    arrays = []
    texts = []
    for name in names:
        _check_column(columns, name, path)
        arrays.append(columns[name])
        if columns[name].dtype.kind == "O":
            texts.append(name)
    if len(arrays) == 1:
        return arrays[0] if arrays[0].ndim > 1 or texts else arrays[0].reshape(-1, 1)
    if 0 < len(texts) < len(arrays):
        raise InputError(f"columns of texts among numbers: {', '.join(texts)}", where=path, remedy="choose input_cols")
    return np.column_stack(arrays)


def _parse(texts: Sequence[str]) -> Array:
    """Whole numbers, numbers or texts: the narrowest type that holds all; an empty field is not a number."""
    numbers = np.array([text if text.strip() else "nan" for text in texts])
    for kind in (np.int64, np.float64):
        try:
            return numbers.astype(kind)
        except ValueError:
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
