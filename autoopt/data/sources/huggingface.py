"""Data sets of the Hugging Face hub, of its cache or of a local folder, by the `datasets` library (an extra)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import numpy as np

from autoopt.data.dataset import Array, Choose, DataSet, text_array
from autoopt.data.sources.images import ImageOptions
from autoopt.errors import InputError, one_line

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

Cells: TypeAlias = Sequence[Any]
"""Cells of one column: numbers, texts, lists, images, or None."""
Options: TypeAlias = Mapping[str, Any]
"""Fields of `ImageOptions`."""
SAVED: Final = ("dataset_dict.json", "state.json")
"""Files that `save_to_disk` writes: the first for several splits, the second for one."""


class Table(Protocol):
    """Rows that are read by column."""

    column_names: Sequence[str]

    def __getitem__(self, name: str) -> Cells: ...


def load(  # noqa: PLR0913  one argument for each parameter in dag.yaml
    data_name: str,
    *,
    subset: str | None = None,
    split: str | None = None,
    input_cols: Sequence[str] | None = None,
    label_col: str | None = None,
    revision: str | None = None,
    images: Options | None = None,
    choose: Choose | None = None,
) -> DataSet:
    """Load the rows of a split. Code that comes with the data set is never executed.

    `data_name` is a name on the hub, a folder that `save_to_disk` wrote, or one of Parquet, CSV or JSON files. The
    defaults are the split `test`, else the first; the label column `label` or `labels`; and all others as inputs.
    `images` are `ImageOptions` for columns of images.

    Raises:
        InputError: The library is missing, or it cannot load the data.
    """
    rows = _split(_load(data_name, subset, revision), data_name, split)
    if choose is not None and len(rows):
        rows = rows.select(choose(len(rows)))
    return from_rows(rows.with_format(None), data_name, input_cols, label_col, images)


def _load(data_name: str, subset: str | None, revision: str | None) -> Dataset | DatasetDict:
    try:
        import datasets
    except ImportError as error:
        raise InputError("Hugging Face data need the datasets library", remedy="pip install 'autoopt[hf]'") from error
    try:
        if any((Path(data_name) / name).is_file() for name in SAVED):
            return datasets.load_from_disk(data_name)
        return datasets.load_dataset(data_name, subset, revision=revision)
    except Exception as error:  # network, cache and format errors have no common class
        raise InputError(f"cannot load {data_name!r} ({one_line(f'{type(error).__name__}: {error}')})") from error


def _split(data: Dataset | DatasetDict, data_name: str, split: str | None) -> Dataset:
    if not isinstance(data, dict):
        return data
    if split is None:
        split = "test" if "test" in data else next(iter(data))
    if split not in data:
        raise InputError(f"no split {split!r}", where=data_name, remedy=f"it has: {', '.join(data)}")
    return data[split]


def from_rows(
    rows: Table,
    name: str,
    input_cols: Sequence[str] | None,
    label_col: str | None,
    images: Options | None = None,
) -> DataSet:
    """A table as a data set.

    Lists of different lengths are items of different shapes. Missing values are empty texts or not a number. Class
    labels that are all negative, as in the test splits of the hub, count as no labels.

    Raises:
        InputError: A column does not exist, or images do not fit together.
    """
    options = ImageOptions(**(images or {}))
    inputs, label = _select_columns(rows, name, input_cols, label_col)
    columns: dict[str, Array] = {}
    uneven: dict[str, list[Array]] = {}
    for column in inputs:
        values = _column(rows[column], name, options)
        if isinstance(values, list):
            uneven[column] = values
        else:
            columns[column] = values
    return DataSet(columns, _labels(rows, label, name, options), uneven, name)


def _select_columns(
    rows: Table, name: str, input_cols: Sequence[str] | None, label_col: str | None
) -> tuple[list[str], str | None]:
    """The columns of the inputs, and the column of the labels."""
    label = label_col or next((column for column in ("label", "labels") if column in rows.column_names), None)
    inputs = list(input_cols or [column for column in rows.column_names if column != label])
    for column in [*inputs, label or inputs[0]]:
        if column not in rows.column_names:
            raise InputError(f"no column {column!r}", where=name, remedy=f"it has: {', '.join(rows.column_names)}")
    return inputs, label


def _labels(rows: Table, column: str | None, name: str, options: ImageOptions) -> Array | None:
    if column is None:
        return None
    labels = _column(rows[column], name, options)
    if isinstance(labels, list):
        raise InputError(f"the labels in column {column!r} differ in shape", where=name)
    feature = getattr(rows, "features", {}).get(column)
    is_class = labels.dtype.kind == "i" and type(feature).__name__ == "ClassLabel"
    return None if is_class and np.all(labels < 0) else labels


def _images(values: Cells, name: str, options: ImageOptions) -> Array:
    """Stack a column of Pillow's images."""
    if any(value is None for value in values):
        raise InputError("rows without an image", where=name)
    return options.stack([options.pixels_of(value, name) for value in values], name)


def _column(values: Cells, name: str, options: ImageOptions) -> Array | list[Array]:
    """One array for all rows, or one per row if their shapes differ."""
    if any(isinstance(value, str) for value in values):
        return text_array(values)
    if any(hasattr(value, "convert") for value in values):
        return _images(values, name, options)
    arrays = [np.asarray(np.nan if value is None else value) for value in values]
    if len({array.shape for array in arrays}) > 1:
        return [array[np.newaxis] for array in arrays]
    return np.stack(arrays)
