"""What a worker process is asked about data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def describe(payload: Mapping[str, Any]) -> dict[str, Any]:
    """`{"data", "model"?}` -> `{"items", "columns": {name: {"dtype", "shape", "finite"}}, "labels", "label_kind",
    "label_text"}`.

    `label_kind` is `class` (one integer or text an item), `value` (one float), `tensor` (more than one number) or None;
    `label_text` is a label that is text and no number, or None.

    Raises:
        InputError: data that cannot be read.
    """
    from autoopt.data.opening import open_data

    data = open_data(payload["data"], payload.get("model"))
    columns = {n: _described(a) for n, a in data.columns.items()}
    columns |= {n: {"dtype": str(a[0].dtype), "shape": list(a[0].shape)} for n, a in data.uneven.items()}
    kind = None
    if data.labels is not None:
        single = data.labels.size == len(data.labels)
        kind = "tensor" if not single else "value" if data.labels.dtype.kind == "f" else "class"
    return {
        "items": len(data),
        "columns": columns,
        "labels": data.labels is not None,
        "label_kind": kind,
        "label_text": None if data.labels is None else _text(data.labels),
    }


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
