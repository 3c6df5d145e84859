"""Outputs of slow source models, in files that the workers of one process share: each compares candidates with them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from autoopt.measure.inference.runner import Item
from autoopt.working_folder import SHARED_FOLDER

LEAST_SECONDS: Final = 1.0
"""Time of the inferences from which their outputs are worth a file."""
MOST_BYTES: Final = 64 << 20
NUMBERS: Final = "fiub"
"""numpy's kinds of arrays that an .npz file holds as they are."""


def load_outputs(key: str) -> list[Item] | None:
    """Load what a worker has stored under a key; None without it."""
    path = _path(key)
    if path is None or not path.exists():
        return None
    with np.load(path, allow_pickle=False) as arrays:
        item_count, output_count = arrays["counts"]
        return [[arrays[f"{number}.{output}"] for output in range(output_count)] for number in range(item_count)]


def store_outputs(key: str, items: Sequence[Item], seconds: float) -> None:
    """Store outputs that took at least `LEAST_SECONDS`, if they are arrays of numbers and not too large.

    `seconds` is the time that they took.
    """
    path = _path(key)
    if path is None or seconds < LEAST_SECONDS:
        return
    arrays: dict[str, np.ndarray] = {"counts": np.array([len(items), len(items[0])])}
    for number, item in enumerate(items):
        for output, value in enumerate(item):
            if not isinstance(value, np.ndarray) or value.dtype.kind not in NUMBERS:
                return
            arrays[f"{number}.{output}"] = value
    if sum(array.nbytes for array in arrays.values()) > MOST_BYTES:
        return
    new = path.with_name(f"{path.stem}.{os.getpid()}.npz")
    np.savez(new, **arrays)  # type: ignore[arg-type]  # numpy types its own options only
    new.replace(path)


def _path(key: str) -> Path | None:
    folder = os.environ.get(SHARED_FOLDER)
    return Path(folder, f"outputs-{key}.npz") if folder else None
