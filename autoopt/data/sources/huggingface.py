"""Data sets of the Hugging Face hub, of its cache or of a local folder, by the `datasets` library (an extra)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autoopt.data.dataset import DataSet
from autoopt.errors import InputError, one_line

SAVED = ("dataset_dict.json", "state.json")
"""Files by which a folder of `save_to_disk` is known: of several splits, of one."""


def load(
    data_name: str,
    subset: str | None = None,
    split: str | None = None,
    input_cols: Sequence[str] | None = None,
    label_col: str | None = None,
    revision: str | None = None,
) -> DataSet:
    """The rows of a split (`test`, else the first there is); code of the data set's own is never executed.

    `data_name` is a name on the hub, a folder that `save_to_disk` wrote, or one of Parquet, CSV or JSON files.
    `input_cols` are the columns that become inputs; without them all but the label.

    Raises:
        InputError: the library is missing, or it cannot load the data.
    """
    try:
        import datasets
    except ImportError as error:
        raise InputError("Hugging Face data need the datasets library", remedy="pip install 'autoopt[hf]'") from error
    try:
        if any((Path(data_name) / name).is_file() for name in SAVED):
            loaded: Any = datasets.load_from_disk(data_name)
        else:
            loaded = datasets.load_dataset(data_name, subset, revision=revision)
    except Exception as error:  # network, cache and format errors have no common class
        raise InputError(f"cannot load {data_name!r} ({one_line(f'{type(error).__name__}: {error}')})") from error
    if isinstance(loaded, dict):
        split = split or ("test" if "test" in loaded else next(iter(loaded)))
        if split not in loaded:
            raise InputError(f"no split {split!r}", where=data_name, remedy=f"it has: {', '.join(loaded)}")
        loaded = loaded[split]
    return from_rows(loaded, data_name, input_cols, label_col)


def from_rows(rows: Any, name: str, input_cols: Sequence[str] | None, label_col: str | None) -> DataSet:
    """A table with `column_names` and columns by name as a data set; images become arrays.

    Raises:
        InputError: a column that is not there.
    """
    known = list(rows.column_names)
    label = label_col or next((c for c in ("label", "labels") if c in known), None)
    chosen = list(input_cols or [c for c in known if c != label])
    for column in [*chosen, *([label] if label else [])]:
        if column not in known:
            raise InputError(f"no column {column!r}", where=name, remedy=f"it has: {', '.join(known)}")
    columns = {c: _array(list(rows[c]), c, name) for c in chosen}
    return DataSet(columns, np.asarray(rows[label]) if label else None, name=name)


def _array(values: list[Any], column: str, name: str) -> Any:
    if values and isinstance(values[0], str):
        return np.array(values, object)
    arrays = [np.asarray(v) for v in values]
    if len({a.shape for a in arrays}) > 1:
        raise InputError(
            f"the rows of column {column!r} differ in shape", where=name, remedy="pad them, or leave it out"
        )
    return np.stack(arrays)
