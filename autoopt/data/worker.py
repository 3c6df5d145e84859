"""The function about data that workers run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autoopt.data.dataset import Array

TEXTS = 1000
"""Labels that are looked at for one that is text."""


def describe(payload: Mapping[str, object]) -> dict[str, object]:
    """Describe a data set.

    Args:
        payload: `{"data", "model"?}`: a data config, and the path of a model for synthetic data.

    Returns:
        `{"items", "columns": {name: {"dtype", "shape", "finite"}}, "labels", "label_kind", "label_text"}`.
        `label_kind` is `class` (an integer or text, a one-hot row, or ids for several places), `value` (one float),
        `tensor` (several floats, or bytes as images have them) or None. `label_text` is a label that is text and not
        a number, or None.

    Raises:
        InputError: The data cannot be read.
    """
    import numpy as np

    from autoopt.data.opening import open_data

    model = payload.get("model")
    data = open_data(payload["data"], None if model is None else str(model))
    columns: dict[str, object] = {}
    for name, array in data.columns.items():
        finite = array.dtype.kind != "f" or bool(np.isfinite(array).all())
        columns[name] = {"dtype": str(array.dtype), "shape": list(array.shape), "finite": finite}
    for name, arrays in data.uneven.items():
        columns[name] = {"dtype": str(arrays[0].dtype), "shape": list(arrays[0].shape)}
    return {
        "items": len(data),
        "columns": columns,
        "labels": data.labels is not None,
        "label_kind": None if data.labels is None else _label_kind(data.labels),
        "label_text": None if data.labels is None else _label_text(data.labels),
    }


def _label_kind(labels: Array) -> str:
    from autoopt.data.dataset import plain_labels

    plain = plain_labels(labels)
    is_single = plain.size == len(plain)
    if plain.dtype.kind == "f" or (plain.dtype == "uint8" and not is_single):
        return "value" if is_single else "tensor"
    return "class"


def _label_text(labels: Array) -> str | None:
    """The first label that is text and not a number."""
    if labels.dtype.kind not in "OU":
        return None
    for label in labels.ravel()[:TEXTS]:
        try:
            float(label)
        except (TypeError, ValueError):
            return str(label)
    return None
