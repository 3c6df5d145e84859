"""Outputs of a model as plain arrays, including sequences and maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from autoopt.model.lazy_imports import np

FLOATS: Final = ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
"""Floats that numpy does not count among its floating types."""


def output_arrays(outputs: Sequence[object]) -> list[np.ndarray]:
    """Flatten outputs into arrays.

    A sequence becomes its items in order; a map becomes its keys and then its values, so that both are compared.
    """
    arrays: list[np.ndarray] = []
    for output in outputs:
        if isinstance(output, list) and output and isinstance(output[0], dict):
            arrays.append(np.array(list(map(list, output)), object))
            arrays.append(np.array([list(row.values()) for row in output]))
        elif isinstance(output, list):
            arrays += output_arrays(output)
        elif isinstance(output, dict):
            arrays += output_arrays([[output]])
        else:
            arrays.append(np.asarray(output))
    return arrays


def is_float(array: np.ndarray) -> bool:
    """True for an array of floats, those included that numpy itself does not know."""
    return bool(np.issubdtype(array.dtype, np.floating)) or str(array.dtype) in FLOATS
