"""Data sets of the Hugging Face hub, of its cache or of a local folder, by the `datasets` library (an extra)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autoopt.data.dataset import Array, Choose, DataSet
from autoopt.data.sources.images import pixels_of, to_array
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
    images: Mapping[str, Any] | None = None,
    choose: Choose | None = None,
) -> DataSet:
    """The rows of a split (`test`, else the first there is); code of the data set's own is never executed.

    `data_name` is a name on the hub, a folder that `save_to_disk` wrote, or one of Parquet, CSV or JSON files.
    `input_cols` are the columns that become inputs; without them all but the label. `images` gives `size`, `mode`,
    `layout`, `scale`, `mean` and `std` of columns of images, which are read as the loader `images` does. `choose` says
    which rows are read.

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
    if choose is not None and len(loaded):
        loaded = loaded.select(choose(len(loaded)))
    return from_rows(loaded.with_format(None), data_name, input_cols, label_col, images)


def from_rows(
    rows: Any,
    name: str,
    input_cols: Sequence[str] | None,
    label_col: str | None,
    images: Mapping[str, Any] | None = None,
) -> DataSet:
    """A table with `column_names` and columns by name as a data set. Lists of different lengths are items of different
    shapes; nothing is an empty text or not a number; class labels that are all below zero, as in the test splits of the
    hub, are none.

    Raises:
        InputError: a column that is not there, or images that do not fit together.
    """
    known = list(rows.column_names)
    label = label_col or next((c for c in ("label", "labels") if c in known), None)
    chosen = list(input_cols or [c for c in known if c != label])
    for column in [*chosen, *([label] if label else [])]:
        if column not in known:
            raise InputError(f"no column {column!r}", where=name, remedy=f"it has: {', '.join(known)}")
    columns = {c: _column(list(rows[c]), name, images or {}) for c in chosen}
    truth = None if label is None else _column(list(rows[label]), name, images or {})
    if isinstance(truth, list):
        raise InputError(f"the labels in column {label!r} differ in shape", where=name)
    if truth is not None and truth.dtype.kind == "i" and np.all(truth < 0) and _is_class(rows, label):
        truth = None
    even = {c: values for c, values in columns.items() if not isinstance(values, list)}
    return DataSet(even, truth, {c: values for c, values in columns.items() if isinstance(values, list)}, name)


def _is_class(rows: Any, column: str | None) -> bool:
    return type(getattr(rows, "features", {}).get(column)).__name__ == "ClassLabel"


def _column(values: list[Any], name: str, images: Mapping[str, Any]) -> Array | list[Array]:
    """One array of all rows, or one for each where their shapes differ."""
    if any(isinstance(v, str) for v in values):
        return np.array(["" if v is None else v for v in values], object)
    if any(hasattr(v, "convert") for v in values):
        return _images(values, name, **images)
    arrays = [np.asarray(np.nan if v is None else v) for v in values]
    return [a[np.newaxis] for a in arrays] if len({a.shape for a in arrays}) > 1 else np.stack(arrays)


def _images(
    values: list[Any], name: str, size: Sequence[int] | None = None, mode: str = "RGB", **arguments: Any
) -> Array:
    if any(v is None for v in values):
        raise InputError("rows without an image", where=name)
    return to_array((pixels_of(v, name, size, mode) for v in values), name, **arguments)
