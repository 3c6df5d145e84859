"""Models and data in memory as files, named by their content, so that equal ones are one."""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, runtime_checkable

from autoopt.errors import InputError
from autoopt.working_folder import replacing

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

FOLDER: Final = "inputs"
"""Folder of the home for models and data that came from memory."""


@runtime_checkable
class Serializable(Protocol):
    """A model in memory, such as `onnx.ModelProto`."""

    def SerializeToString(self) -> bytes: ...


Model: TypeAlias = str | Path | Serializable
"""A path, a URL or a model in memory."""


def model_file(model: Model, home: Path) -> str | Path:
    """The path or URL of a model; one in memory is written below `home`.

    Raises:
        InputError: the model cannot be serialised.
    """
    if not isinstance(model, Serializable):
        return model
    try:
        content = model.SerializeToString()
    except Exception as error:  # protobuf's own types; models above 2 GB cannot be serialised
        remedy = "save it with onnx.save_model(..., save_as_external_data=True) and name the file"
        raise InputError(f"cannot serialise the model ({error})", where="model", remedy=remedy) from None
    graph = getattr(model, "graph", None)
    name = re.sub(r"[^\w.-]+", "_", str(getattr(graph, "name", "")))[:60].strip("._") or "model"
    return write_once(content, home, f"{name}.onnx")


def write_once(content: bytes, home: Path, name: str) -> Path:
    """Write a file into a folder named by its content, unless it is there; return its path."""
    file = home.absolute() / FOLDER / hashlib.sha256(content).hexdigest()[:16] / name
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        with replacing(file) as new:
            new.write_bytes(content)
    return file


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
