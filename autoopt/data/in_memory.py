"""Data in memory as files: arrays by name, and data frames."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from autoopt.errors import InputError
from autoopt.model.in_memory import write_once

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


@runtime_checkable
class DataFrame(Protocol):
    """A table in memory, such as `pandas.DataFrame`."""

    def to_csv(self, *, index: bool) -> str: ...


Data: TypeAlias = "str | Path | Mapping[str, object] | Mapping[str, ArrayLike] | DataFrame"
"""A path, a data configuration, arrays by the name of the model's input or `labels`, or a table."""


def data_file(data: Data, home: Path) -> object:
    """The path or the configuration of data; those in memory are written below `home`.

    Raises:
        InputError: an array holds Python objects, or the data are something else.
    """
    if isinstance(data, DataFrame):
        return write_once(data.to_csv(index=False).encode(), home, "data.csv")
    if isinstance(data, Mapping) and data and all(map(_is_array, data.values())):
        # Equal arrays give equal bytes: entries without a time of writing.
        import numpy as np

        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for name, value in data.items():
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as stream:
                    try:
                        np.lib.format.write_array(stream, np.asarray(value), allow_pickle=False)
                    except ValueError as error:
                        raise InputError(f"array {name!r}: {error}", where="data") from None
        return write_once(buffer.getvalue(), home, "data.npz")
    if not isinstance(data, str | Path | Mapping):
        reason = f"must be a path, a mapping of arrays or a data frame, not {type(data).__name__}"
        raise InputError(reason, where="data")
    return data


def _is_array(value: object) -> bool:
    """True for an array or a list; a configuration has other values too."""
    return hasattr(value, "__array__") or isinstance(value, list | tuple)
