"""Tables: a row is an item; all columns together are one input, or columns are named by input."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autoopt.data.dataset import Array, Choose, DataSet
from autoopt.errors import InputError, did_you_mean

LABELS = ("label", "labels", "target", "class", "y")
"""Columns that are the ground truth where `label_col` is not given."""


def load_csv(
    path: str,
    label_col: str | None = None,
    input_cols: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
    delimiter: str | None = None,
) -> DataSet:
    """A CSV file with a header. See `to_dataset`.

    Raises:
        InputError: no rows, rows of different lengths, an unknown column.
    """
    file = Path(path)
    try:
        with open(file, newline="", encoding="utf-8") as stream:
            rows = list(csv.reader(stream, delimiter=delimiter or ("\t" if file.suffix.lower() == ".tsv" else ",")))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"not a readable table ({error})", where=path) from error
    if len(rows) < 2:
        raise InputError("has no rows below its header", where=path)
    header, *body = rows
    for number, row in enumerate(body, 2):
        if len(row) != len(header):
            raise InputError(f"line {number} has {len(row)} fields, the header {len(header)}", where=path)
    columns = {name.strip(): _typed([row[i] for row in body]) for i, name in enumerate(header)}
    return to_dataset(columns, path, label_col, input_cols)


def load_parquet(
    path: str,
    label_col: str | None = None,
    input_cols: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
    choose: Choose | None = None,
) -> DataSet:
    """A Parquet file; needs pyarrow. See `to_dataset`. `choose` says which rows are read.

    Raises:
        InputError: pyarrow is missing, or the file is no table.
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


def to_dataset(
    columns: Mapping[str, Array],
    path: str,
    label_col: str | None,
    input_cols: Sequence[str] | Mapping[str, Sequence[str]] | None,
) -> DataSet:
    """Items of a table.

    `input_cols` is a list of columns, together one input of shape (items, columns), or {input: columns}. Without it
    every column but the label is taken. `label_col` is the label's column; without it one of `LABELS` if there is one.

    Raises:
        InputError: an unknown column, or columns of one input that are not all numbers.
    """
    label = label_col or next((name for name in columns if name.lower() in LABELS), None)
    if label is not None and label not in columns:
        raise InputError(f"no column {label!r}", where=path, remedy=did_you_mean(label, columns))
    if input_cols is None:
        input_cols = [name for name in columns if name != label]
    groups = input_cols if isinstance(input_cols, Mapping) else {"input": list(input_cols)}
    made = {name: _join(columns, list(chosen), path) for name, chosen in groups.items()}
    return DataSet(made, columns[label] if label else None, name=path)


def _join(columns: Mapping[str, Array], chosen: list[str], path: str) -> Array:
    for name in chosen:
        if name not in columns:
            raise InputError(f"no column {name!r}", where=path, remedy=did_you_mean(name, columns))
    arrays = [columns[name] for name in chosen]
    if len(arrays) == 1:
        return arrays[0] if arrays[0].ndim > 1 or arrays[0].dtype.kind == "O" else arrays[0].reshape(-1, 1)
    if any(a.dtype.kind == "O" for a in arrays) and not all(a.dtype.kind == "O" for a in arrays):
        texts = [name for name in chosen if columns[name].dtype.kind == "O"]
        raise InputError(f"columns of texts among numbers: {', '.join(texts)}", where=path, remedy="choose input_cols")
    return np.column_stack(arrays)


def _typed(texts: list[str]) -> Array:
    """Whole numbers, numbers, or texts: the narrowest that holds all."""
    for kind in (np.int64, np.float64):
        try:
            return np.array([t if t.strip() else "nan" for t in texts]).astype(kind)
        except ValueError:
            continue
    return np.array(texts, object)


def _from_list(values: list[Any], name: str, path: str) -> Array:
    """Texts, numbers or lists of numbers of one length; nothing is an empty text or not a number."""
    if any(isinstance(v, str) for v in values):
        return np.array(["" if v is None else v for v in values], object)
    try:
        return np.array([np.nan if v is None else v for v in values])
    except ValueError as error:
        raise InputError(f"the rows of column {name!r} differ in length", where=path) from error
