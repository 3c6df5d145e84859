"""Text lines, and a tokenizer file (`tokenizer.json`) that makes them token ids."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from autoopt.data.dataset import Array, Choose, DataSet
from autoopt.errors import InputError


def load(
    path: str,
    tokenizer: str | None = None,
    length: int = 128,
    labels: str | None = None,
    text_col: str = "text",
    label_col: str = "label",
    choose: Choose | None = None,
) -> DataSet:
    """Lines of a text file, or of a JSON-lines file with `text_col` and `label_col`; empty lines are left out.

    With `tokenizer` they become `input_ids`, `attention_mask` and `token_type_ids` of that length, otherwise they are
    the input `text`. `labels` is a file with one label a line. `choose` says which lines are used.

    Raises:
        InputError: not readable, nothing in it, or labels that do not fit.
    """
    texts, truth = _lines(Path(path), text_col, label_col)
    if labels is not None:
        lines = [line.strip() for line in Path(labels).read_text(encoding="utf-8").splitlines() if line.strip()]
        truth = _classes(lines)
    data = DataSet({"text": np.array(texts, object)}, truth, name=path)
    if choose is not None:
        data = data.take(choose(len(data)))
    return data if tokenizer is None else tokenize(data, tokenizer, length)


def _lines(path: Path, text_col: str, label_col: str) -> tuple[list[str], Array | None]:
    try:
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        if path.suffix.lower() != ".jsonl":
            return lines, None
        rows = [json.loads(line) for line in lines]
        known = all(label_col in row for row in rows)
        return [str(row[text_col]) for row in rows], _classes([row[label_col] for row in rows]) if known else None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"not readable as lines of text ({error!r})", where=str(path)) from error


def _classes(values: list[Any]) -> Array:
    """Numbers as they are; texts that are whole numbers as those; other texts by their place in sorted order."""
    if all(isinstance(v, int | float) for v in values):
        return np.array(values)
    texts = [str(v) for v in values]
    if all(t.lstrip("-").isdecimal() for t in texts):
        return np.array([int(t) for t in texts], np.int64)
    names = sorted(set(texts))
    return np.array([names.index(t) for t in texts], np.int64)


def tokenize(data: DataSet, tokenizer: str, length: int = 128, column: str = "text") -> DataSet:
    """A column of texts as token ids, padded with zeros or cut to `length`. Needs the tokenizers library.

    Raises:
        InputError: the library is missing, the file is no tokenizer, or there is no such column.
    """
    if column not in data.columns:
        raise InputError(f"no column {column!r} to tokenize", where=data.name)
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise InputError("texts need the tokenizers library", remedy="pip install 'autoopt[data]'") from error
    try:
        coder = Tokenizer.from_file(tokenizer)
    except Exception as error:  # the library raises plain Exception for every bad file
        raise InputError(f"not a tokenizer file ({error})", where=tokenizer) from error
    coder.enable_truncation(length)
    coder.enable_padding(length=length)
    coded = coder.encode_batch([str(text) for text in data.columns[column]])
    made = {
        "input_ids": np.array([c.ids for c in coded], np.int64),
        "attention_mask": np.array([c.attention_mask for c in coded], np.int64),
        "token_type_ids": np.array([c.type_ids for c in coded], np.int64),
    }
    return replace(data, columns={**{n: a for n, a in data.columns.items() if n != column}, **made})
