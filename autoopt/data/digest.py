"""The identity of a data set: sha256 of its config and of all files that it reads, without parsing them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from autoopt.data.config import DataConfig, map_texts
from autoopt.data.files import listed_files
from autoopt.errors import InputError
from autoopt.model.files import external_names, known_digest

GENERATED: Final = "generated, version 1"
"""The identity of the items that `sources.synthetic` makes up. The version is raised whenever they change: failures of
earlier items say nothing about the model."""


def digest(config: object, root: str | Path = ".") -> str:
    """The sha256 of a data config and the content that it names; the location of the files does not matter.

    `config` is anything that `DataConfig.parse` reads; relative paths start from `root`.

    Raises:
        InputError: A file does not exist or cannot be read.
    """
    parsed = DataConfig.parse(config)
    paths = (*parsed.paths(), *parsed.optional_paths(root))
    contents = {path: digest_path(Path(root, os.path.expanduser(path))) for path in paths}
    document = parsed.to_json()
    document.pop("meta_data", None)
    without_paths = map_texts(document, lambda text: contents.get(text, text))
    text = json.dumps(without_paths, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


class InputChanged(InputError):
    """An input that a run has read is no longer the one it began with."""

    def __init__(self, place: str) -> None:
        super().__init__("changed while the run read it", where=place, remedy="run again once nothing writes to it")


def check_unchanged(config: DataConfig, content: str) -> None:
    """Check, after data were read, that they still have the digest `content`: results are known by it.

    Raises:
        InputChanged: They have another one, or are gone.
    """
    try:
        now = digest(config)
    except InputError:
        now = ""
    if now != content:
        raise InputChanged(str(config.path or "data"))


def digest_path(path: Path) -> str:
    """The sha256 of a file, or of the sorted names and sha256 of all files below a folder.

    A model counts with its external data, as a folder with these files would; a list of files, with these.

    Raises:
        InputError: There is no such file or folder, or it cannot be read.
    """
    try:
        if path.is_file():
            names = external_names(path) if path.suffix == ".onnx" else ()
            external = list(filter(Path.is_file, (path.parent / name for name in sorted(names))))
            if external:
                return _digest_files(path.parent, [path, *external])
            listed = listed_files(path)
            if not listed:
                return known_digest(path)
            digests = [known_digest(file) for file in (path, *listed)]  # the names of the files are in the list
            return hashlib.sha256("\n".join(digests).encode()).hexdigest()
        if path.is_dir():
            return _digest_files(path, sorted(path.rglob("*")))
    except OSError as error:
        raise InputError(f"the data cannot be read ({error.strerror})", where=str(error.filename or path)) from error
    raise InputError("no such data file or folder", where=str(path))


def _digest_files(folder: Path, files: Iterable[Path]) -> str:
    total = hashlib.sha256()
    for file in files:
        if file.is_file():
            line = f"{file.relative_to(folder).as_posix()}\0{known_digest(file)}\n"
            total.update(line.encode(errors="surrogateescape"))  # names need not be UTF-8
    return total.hexdigest()
