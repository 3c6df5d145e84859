"""Rows: of CSV and Parquet files, of data sets of Hugging Face, and lines of text. A row is an item."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import numpy as np

from autoopt.data.dataset import Array, Choose, DataSet, class_ids, text_array
from autoopt.data.files import LABELS, check_columns, loader_of_suffix, read_columns
from autoopt.data.sources.media import ImageOptions
from autoopt.errors import InputError, one_line
from autoopt.option_names import option

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

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
        left_out = {label, *(ignored or ())}
        inputs = list(filter(lambda name: name not in left_out, columns))
        ids = _ids(columns, inputs, model) if ignored is None else []
        if ids:
            inputs = [name for name in inputs if name not in ids]
            reading = f"ids are left out: {', '.join(map(repr, ids))}; the option inputs chooses columns"
    if not isinstance(inputs, Mapping):
        inputs = {"input": inputs}
    joined = {name: _join(columns, chosen, path, label) for name, chosen in inputs.items()}
    return DataSet(joined, labels, name=path, reading=reading)


def _ids(columns: Mapping[str, Array], names: Sequence[str], model: str | None) -> list[str]:
    """The columns without a use for a model: whole numbers or texts without repetition, by name or by number.

    They are called like an id, or there is just one, and the model takes one column less.
    """
    distinct = [name for name in names if _is_distinct(columns[name])]
    width = None if model is None or not distinct else _width(model)
    if width == len(names):
        return []
    ids = list(filter(_ID.fullmatch, distinct))
    if not ids and width == len(names) - 1 and len(distinct) == 1:
        ids = distinct
    return ids if len(ids) < len(names) else []


def _is_distinct(values: Array) -> bool:
    """True for whole numbers or texts without repetition."""
    return values.dtype.kind in "iO" and values.ndim == 1 and len(set(values.tolist())) == len(values) > 1


def _width(model: str) -> int | None:
    """The number of columns that a model takes; None if it is open, or if there are several inputs."""
    from autoopt.data.sources.synthetic import read_inputs

    specs = read_inputs(model).specs
    sizes = specs[0].fixed_sizes if len(specs) == 1 else ()
    return sizes[1] if len(sizes) == 2 else None


def _join(columns: Mapping[str, Array], chosen: str | Sequence[str], path: str, label: str | None) -> Array:
    names = [chosen] if isinstance(chosen, str) else list(chosen)
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


def load_text(
    path: str,
    labels: str | None = None,
    input_cols: Sequence[str] = ("text",),
    label_col: str = "label",
    choose: Choose | None = None,
) -> DataSet:
    """Load the lines of a text file or of a JSON-lines file as the input `text`; empty lines are left out.

    `labels` is a file with one label per line; JSON lines hold the text in the first of `input_cols`.

    Raises:
        InputError: The file is not readable or empty, or the labels do not fit.
    """
    texts, truth, names = _read(Path(path), input_cols[0], label_col)
    if labels is not None:
        truth, names = class_ids([line.strip() for line in _lines(Path(labels))])
    data = DataSet({"text": np.array(texts, object)}, truth, name=path, classes=names)
    return data if choose is None else data.take(choose(len(data)))


def _lines(path: Path) -> list[str]:
    """The lines of a file that are not empty."""
    # `str.splitlines` would also split at characters that a text may hold, such as U+2028.
    return [line for line in path.read_text(encoding="utf-8-sig").split("\n") if line.strip()]


def _read(path: Path, text_col: str, label_col: str) -> tuple[list[str], Array | None, tuple[str, ...]]:
    """The texts in a file, and their labels if all lines have one, with the names of the classes."""
    try:
        lines = _lines(path)
        if path.suffix.lower() != ".jsonl":
            return lines, None, ()
        texts = []
        labels = []
        for line in lines:
            row = json.loads(line)
            texts.append(str(row[text_col]))
            if label_col in row:
                labels.append(row[label_col])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"not readable as lines of text ({error!r})", where=str(path)) from error
    if len(labels) < len(texts):
        return texts, None, ()
    if all(isinstance(label, int | float) for label in labels):
        return texts, np.array(labels), ()
    return texts, *class_ids(list(map(str, labels)))


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


def load_huggingface(  # noqa: PLR0913  one argument for each parameter in dag.yaml
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
    rows = _split(_load_rows(data_name, subset, revision), data_name, split)
    if choose is not None and len(rows):
        rows = rows.select(choose(len(rows)))
    return from_rows(rows.with_format(None), data_name, input_cols, label_col, images)


def _load_rows(data_name: str, subset: str | None, revision: str | None) -> Dataset | DatasetDict:
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
