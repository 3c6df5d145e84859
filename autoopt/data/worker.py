"""What a worker process is asked about data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def describe(payload: Mapping[str, Any]) -> dict[str, Any]:
    """`{"data", "model"?}` -> `{"items", "columns": {name: {"dtype", "shape", "finite"}}, "labels", "label_kind",
    "label_text"}`.

    `label_kind` is `class` (an integer or text, a one-hot row, or ids for several places), `value` (one float),
    `tensor` (several floats, or bytes as images have them) or None; `label_text` is a label that is text and no
    number, or None.

    Raises:
        InputError: data that cannot be read.
    """
    from autoopt.data.opening import open_data

    data = open_data(payload["data"], payload.get("model"))
    columns = {n: _described(a) for n, a in data.columns.items()}
    columns |= {n: {"dtype": str(a[0].dtype), "shape": list(a[0].shape)} for n, a in data.uneven.items()}
    return {
        "items": len(data),
        "columns": columns,
        "labels": data.labels is not None,
        "label_kind": None if data.labels is None else _kind(data.labels),
        "label_text": None if data.labels is None else _text(data.labels),
    }


def _kind(labels: Any) -> str:
    from autoopt.data.dataset import plain_labels

    plain = plain_labels(labels)
    single = plain.size == len(plain)
    if plain.dtype.kind == "f" or (plain.dtype == "uint8" and not single):
        return "value" if single else "tensor"
    return "class"


def _text(labels: Any) -> str | None:
    """The first label that is text and no number; None where there is none."""
    if labels.dtype.kind not in "OU":
        return None
    for label in labels.ravel()[:1000]:
        try:
            float(label)
        except (TypeError, ValueError):
            return str(label)
    return None


def _described(array: Any) -> dict[str, Any]:
    import numpy as np

    finite = bool(np.isfinite(array).all()) if array.dtype.kind == "f" else True
    return {"dtype": str(array.dtype), "shape": list(array.shape), "finite": finite}
