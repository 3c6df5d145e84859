"""Model files as bytes: their digests and sizes, without looking inside."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from autoopt.errors import InputError
from autoopt.model.candidate import digest_json

MODEL = "model.onnx"
ORT_MODEL = "model.ort"
"""Names of the model in its folder; external data files lie beside it."""


def digest_file(path: str | os.PathLike[str]) -> str:
    """The sha256 of a file's bytes, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def model_in(folder: str | os.PathLike[str]) -> Path:
    """The model file of an artifact folder: `model.onnx`, or `model.ort` where it is in ORT format.

    Raises:
        InputError: there is neither.
    """
    for name in (MODEL, ORT_MODEL):
        path = Path(folder, name)
        if path.is_file():
            return path
    raise InputError(f"no {MODEL} in it", where=str(folder))


def files_in(folder: str | os.PathLike[str]) -> dict[str, Path]:
    """All files below `folder` by their relative name (with `/`), sorted by name.

    Raises:
        InputError: something there is neither a folder nor a regular file.
    """
    found: dict[str, Path] = {}
    root = Path(folder)
    for path in root.rglob("*"):
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            continue
        if not stat.S_ISREG(mode):
            raise InputError("not a regular file", where=str(path))
        found[path.relative_to(root).as_posix()] = path
    return dict(sorted(found.items()))


def digest_folder(path: str | os.PathLike[str]) -> str:
    """The digest that names an artifact: the sha256 of its one file, or, where there are several (external data),
    the sha256 of the sorted list of name and sha256 of each.

    Raises:
        InputError: the folder is empty or holds something that is no regular file.
    """
    files = files_in(path)
    if not files:
        raise InputError("the folder is empty", where=str(path))
    if len(files) == 1:
        return digest_file(next(iter(files.values())))
    return digest_json([[name, digest_file(file)] for name, file in files.items()])


def bytes_in(path: str | os.PathLike[str]) -> int:
    """The bytes of a model: of all files in its folder."""
    return sum(file.stat().st_size for file in files_in(path).values())


def is_convertible(name: str) -> bool:
    """Whether a source model is to be converted to ONNX, by its name alone: an exported program or a script."""
    return split_source(name)[0].endswith((".pt2", ".py"))


def split_source(name: str) -> tuple[str, str]:
    """The file and the function that a source model names: `net.py:build` -> `net.py`, `build`; a file alone names no
    function."""
    file, _, function = name.rpartition(":")
    return (file, function) if file.endswith(".py") and function.isidentifier() else (name, "")
