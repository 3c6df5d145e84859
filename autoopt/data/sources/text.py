"""Lines of text, and a tokenizer file (`tokenizer.json`) that turns them into token ids."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from autoopt.data.dataset import Array, Choose, DataSet, class_ids
from autoopt.errors import InputError
from autoopt.model.roles import Kind, names_with
from autoopt.option_names import option

LENGTH: Final = 128
"""Tokens of a text for a model that takes any number."""


def load(
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


def tokenize(
    data: DataSet,
    tokenizer: str,
    length: int | None = None,
    column: str | None = None,
    model: str | None = None,
    roles: Mapping[str, Kind] | None = None,
) -> DataSet:
    """Turn a column of texts into token ids, padded with zeros or cut to `length`. Needs the tokenizers library.

    The default column is the only one of texts, else `text`; the default length that of the model's tokens if it is
    fixed, else 128. `roles` are kinds of its inputs where names tell the wrong ones. A table without texts stays as it
    is: the tokenizer beside a model need not belong to it.

    Raises:
        InputError: The library is missing, the file is not a tokenizer, or the column does not exist.
    """
    if column is None:
        texts = [name for name, array in data.columns.items() if array.dtype.kind in "OU"]
        if not texts:
            return data
        column = texts[0] if len(texts) == 1 else "text"
    if column not in data.columns:
        remedy = f"choose the texts: {option('inputs', of='COLUMN')}"
        raise InputError(f"no column {column!r} to tokenize", where=data.name, remedy=remedy)
    if length is None:
        length = _tokens_of(model, roles) or LENGTH
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise InputError("texts need the tokenizers library", remedy="pip install 'autoopt[texts]'") from error
    try:
        encoder = Tokenizer.from_file(tokenizer)
    except Exception as error:  # the library raises plain Exception for every bad file
        raise InputError(f"not a tokenizer file ({error})", where=tokenizer) from error
    encoder.enable_truncation(length)
    encoder.enable_padding(length=length)
    encodings = encoder.encode_batch(list(map(str, data.columns[column])))
    columns = dict(data.columns)
    del columns[column]
    columns["input_ids"] = np.array([encoding.ids for encoding in encodings], np.int64)
    columns["attention_mask"] = np.array([encoding.attention_mask for encoding in encodings], np.int64)
    columns["token_type_ids"] = np.array([encoding.type_ids for encoding in encodings], np.int64)
    reading = f"{Path(tokenizer).name} turns texts into {length} tokens each; the option length cuts or pads to others"
    return replace(data, columns=columns, reading="; ".join(filter(None, [data.reading, reading])))


def _tokens_of(model: str | None, roles: Mapping[str, Kind] | None) -> int | None:
    """The number of tokens that a model takes; None if it is open, or without a model."""
    from autoopt.data.sources.synthetic import read_inputs

    if model is None:
        return None
    inputs = read_inputs(model, roles)
    tokens = names_with("tokens", inputs.roles)
    sizes = [spec.fixed_sizes[1] for spec in inputs.specs if spec.name in tokens and len(spec.dims) == 2]
    return next(filter(None, sizes), None)


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
