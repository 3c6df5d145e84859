"""Models in memory as files, named by their content, so that equal models are one."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Final, Protocol, TypeAlias, runtime_checkable

from autoopt.errors import InputError
from autoopt.working_folder import replacing

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
