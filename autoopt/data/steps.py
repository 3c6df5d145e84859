"""Built-in components: pre-processing, ordering and sampling of items, post-processing of outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np

from autoopt.data.dataset import Array, DataSet
from autoopt.data.files import check_columns
from autoopt.errors import InputError
from autoopt.model.roles import Kind, names_with
from autoopt.option_names import option

Values: TypeAlias = float | Sequence[float]
"""One number for all, or one per index of an axis."""


def cast(data: DataSet, dtype: str, columns: Sequence[str] | None = None) -> DataSet:
    """Convert to another element type, as numpy names it."""
    return _map(data, columns, lambda array: array.astype(np.dtype(dtype)))


def normalize(
    data: DataSet, mean: Values = 0.0, std: Values = 1.0, axis: int = 1, columns: Sequence[str] | None = None
) -> DataSet:
    """Compute `(x - mean) / std`; lists are per index of `axis`, by default the channels after the items."""

    def along_axis(values: Values, rank: int) -> Array:
        array = np.asarray(values, np.float32)
        if array.ndim == 0:
            return array
        shape = [1] * rank
        shape[axis] = -1
        return array.reshape(shape)

    def normalized(array: Array) -> Array:
        centered: Array = array.astype(np.float32) - along_axis(mean, array.ndim)
        return np.asarray(centered / along_axis(std, array.ndim))

    return _map(data, columns, normalized)


def transpose(data: DataSet, axes: Sequence[int], columns: Sequence[str] | None = None) -> DataSet:
    """Reorder the axes; the items stay axis 0."""
    return _map(data, columns, lambda array: array.transpose(list(axes)))


def reshape(data: DataSet, shape: Sequence[int], columns: Sequence[str] | None = None) -> DataSet:
    """Give each item another shape."""
    return _map(data, columns, lambda array: array.reshape([len(array), *shape]))


def in_order(data: DataSet) -> DataSet:
    """Keep the order of the items."""
    return data


def shuffle(data: DataSet, seed: int = 0) -> DataSet:
    """Put the items in a random order that `seed` fixes."""
    return data.take(np.random.default_rng(seed).permutation(len(data)))


def output(outputs: list[Array], index: int = 0) -> Array:
    """One output as it is."""
    return outputs[index]


def argmax(outputs: list[Array], index: int = 0, axis: int = -1) -> Array:
    """Class ids: the places of the highest scores of an output."""
    return np.asarray(np.argmax(outputs[index], axis=axis))


def softmax(outputs: list[Array], index: int = 0, axis: int = -1) -> Array:
    """The probabilities from the logits of an output."""
    scores = np.asarray(outputs[index], np.float64)
    # Subtracting the maximum keeps the exponentials finite and does not change the quotient.
    exponentials = np.exp(scores - scores.max(axis=axis, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=axis, keepdims=True))


def sigmoid(outputs: list[Array], index: int = 0) -> Array:
    """`1 / (1 + exp(-x))` of an output."""
    return np.asarray(1.0 / (1.0 + np.exp(-np.asarray(outputs[index], np.float64))))


def threshold(outputs: list[Array], index: int = 0, at: float = 0.5) -> Array:
    """1 where an output is at least `at`, else 0."""
    return (np.asarray(outputs[index]) >= at).astype(np.int64)


def _map(data: DataSet, names: Sequence[str] | None, change: Callable[[Array], Array]) -> DataSet:
    """Change the columns with these names, by default all that have items."""
    if not names:
        names = [name for name, array in data.columns.items() if array.ndim]
    check_columns(data.columns, names, data.name)
    return replace(data, columns={**data.columns, **{name: change(data.columns[name]) for name in names}})


LENGTH: Final = 128
"""Tokens of a text for a model that takes any number."""


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
    texts = [name for name, array in data.columns.items() if array.dtype.kind in "OU"]
    if column is None and not texts:
        return data
    column = column or (texts[0] if len(texts) == 1 else "text")
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
    for name, field in (("input_ids", "ids"), ("attention_mask", "attention_mask"), ("token_type_ids", "type_ids")):
        columns[name] = np.array([getattr(encoding, field) for encoding in encodings], np.int64)
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
