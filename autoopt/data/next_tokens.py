"""The labels of a language model: the token after each position of a text."""

from __future__ import annotations

import numpy as np

from autoopt.data.dataset import IGNORED, Array, DataSet
from autoopt.data.decoder import TOKENS


def next_tokens(data: DataSet) -> Array | None:
    """The labels of a language model: the token after each position, and `IGNORED` where there is none.

    Labels that repeat the tokens, as Hugging Face's models take them, are moved by one position; labels that are the
    next tokens already stay.

    Returns:
        (items, positions); None for labels of any other kind.
    """
    labels = data.labels
    tokens = next((data.columns[name] for name in TOKENS if name in data.columns), None)
    if labels is None or tokens is None or labels.dtype.kind not in "iu":
        return None
    if labels.ndim != 2 or labels.shape != tokens.shape or labels.shape[1] < 2:
        return None
    after = np.full(labels.shape, IGNORED, np.int64)
    if _repeats(labels, tokens):
        after[:, :-1] = labels[:, 1:]
        return after
    after[:, :-1] = tokens[:, 1:]
    last_column = labels[:, :-1]
    return np.asarray(labels) if _repeats(last_column, after[:, :-1]) else None


def _repeats(labels: Array, tokens: Array) -> bool:
    """True if all labels that count, and there are some, equal the tokens at their positions."""
    counted = labels != IGNORED
    return bool(counted.any() and np.all(labels[counted] == tokens[counted]))
