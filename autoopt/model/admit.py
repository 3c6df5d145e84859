"""Admission: copying a model from anywhere into a folder of ours, with nothing read from outside its own folder.

onnxruntime follows a hard link to a foreign file, readers differ in what they make of odd names and duplicate entries,
and files can change while they are looked at. So external data has to be regular files of one name, reached without
any link, with bounds that hold; it is copied through the descriptor that was checked, and only the copy is ever used.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import stat
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from autoopt.errors import InputError
from autoopt.model.fetch import beside, fetch
from autoopt.model.files import MODEL, ORT_MODEL
from autoopt.model.io import parse
from autoopt.model.mlflow import is_packaged, packaged_model
from autoopt.model.tensors import tensors
from autoopt.outcome import Outcome

LARGEST_GRAPH = (1 << 31) - 1
"""Bytes; protobuf reads no more."""
_NUMBER = re.compile(r"[0-9]{1,18}")
_BITS = {
    **dict.fromkeys((2, 3, 9, 17, 18, 19, 20, 24), 8),
    **dict.fromkeys((4, 5, 10, 16), 16),
    **dict.fromkeys((1, 6, 12), 32),
    **dict.fromkeys((7, 11, 13, 14), 64),
    15: 128,
    21: 4,
    22: 4,
    23: 4,
    25: 2,
    26: 2,
}
"""Bits per element by ONNX type code."""


class NotAdmitted(InputError):
    """The model or its external data is not what may be copied in."""

    outcome = Outcome.REFUSED


def admit_model(source: Path, dest: Path) -> Path:
    """Copy the model `source` and its external data into the folder `dest`; the path of the copied graph.

    `source` may be a link, its external data not. `dest` is created; what it held before stays.

    Raises:
        NotAdmitted: the model or its external data breaks a rule; the line says which.
        Unreadable: the file is empty or no ONNX model.
    """
    source = _named_model(source)
    copy = dest / (ORT_MODEL if source.suffix == ".ort" else MODEL)
    dest.mkdir(parents=True, exist_ok=True)
    with ExitStack() as open_files:
        graph = open_files.enter_context(os.fdopen(_open_model(source), "rb"))
        _copy(graph, copy)
        if copy.name == ORT_MODEL:
            return copy
        try:
            model = parse(copy)
        except InputError as error:
            raise type(error)(error.what, where=str(source), remedy=error.remedy) from error
        places: dict[str, IO[bytes]] = {}
        for tensor in tensors(model):
            if tensor.data_location == tensor.EXTERNAL:
                _check_tensor(tensor, source, places, open_files)
        for location, file in places.items():
            _copy(file, dest / location)
    return copy


def download_model(url: str, folder: Path, cache: Path) -> Path:
    """Lay the model behind a URL and the external data that it names out in `folder`, as it is there; its path there.

    Nothing is checked but the names: `admit_model` does that.
    """
    graph = fetch(url, cache)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / graph.name
    shutil.copyfile(graph, path)
    if path.suffix == ".ort":
        return path
    named = (e.value for t in tensors(parse(path)) for e in t.external_data if e.key == "location")
    for location in sorted({name for name in named if not _bad_location(name)}):
        (folder / location).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(fetch(beside(url, location), cache), folder / location)
    return path


def _named_model(source: Path) -> Path:
    if not source.is_dir():
        return source
    if is_packaged(source):
        return packaged_model(source)
    if (source / MODEL).exists():
        return source / MODEL
    found = sorted(p for p in source.iterdir() if p.suffix in (".onnx", ".ort"))
    if len(found) != 1:
        raise NotAdmitted(f"a folder with {len(found)} models", where=str(source), remedy="name the .onnx file")
    return found[0]


def _open_model(source: Path) -> int:
    try:
        fd = os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise NotAdmitted(f"cannot be read ({error.strerror})", where=str(source)) from error
    status = os.fstat(fd)
    problem = ""
    if not stat.S_ISREG(status.st_mode):
        problem = "not a regular file"
    elif source.suffix != ".ort" and status.st_size > LARGEST_GRAPH:
        problem = f"a graph of {status.st_size} bytes; protobuf ends at 2 GiB, larger models keep weights beside it"
    if problem:
        os.close(fd)
        raise NotAdmitted(problem, where=str(source))
    return fd


def _check_tensor(tensor: Any, source: Path, places: dict[str, IO[bytes]], open_files: ExitStack) -> None:
    """Check one tensor's reference and open its file, once, under its location in `places`."""

    def refuse(reason: str) -> NotAdmitted:
        return NotAdmitted(f"external data of tensor {tensor.name!r}: {reason}", where=str(source))

    entries: dict[str, str] = {}
    for entry in tensor.external_data:
        if entry.key in entries:
            raise refuse(f"two entries {entry.key!r}")
        entries[entry.key] = entry.value
    location = entries.get("location", "")
    if reason := _bad_location(location):
        raise refuse(f"{reason}: {location!r}")
    numbers: dict[str, int] = {}
    for key in ("offset", "length"):
        text = entries.get(key, "0" if key == "offset" else "")
        if text and not _NUMBER.fullmatch(text):
            raise refuse(f"{key} is no number: {text!r}")
        if text:
            numbers[key] = int(text)
    if location not in places:
        fd = _open_beside(source, location, refuse)
        places[location] = open_files.enter_context(os.fdopen(fd, "rb"))
    size = os.fstat(places[location].fileno()).st_size
    wanted = _bytes_of(tensor, refuse)
    length = numbers.get("length", wanted if wanted is not None else 0)
    if wanted is not None and length != wanted:
        raise refuse(f"{length} bytes, but its type and shape need {wanted}")
    if numbers["offset"] + length > size:
        raise refuse(f"bytes {numbers['offset']} to {numbers['offset'] + length} of a file of {size}: {location!r}")


def _bad_location(location: str) -> str:
    """Why this is no name of a file within the model's folder, or an empty string."""
    if not location:
        return "no location"
    if not location.isprintable() or any(c in location for c in '\\*?"<>|:'):
        return "a character that file names should not have"
    if location.startswith("/"):
        return "an absolute path"
    if any(part in ("", ".", "..") for part in location.split("/")):
        return "leaves the model's folder"
    if location.split("/")[0] in (MODEL, ORT_MODEL):
        return "the name of the graph itself"
    return ""


def _open_beside(source: Path, location: str, refuse: Any) -> int:
    """Open `location` in the folder of the model (of its link, else of what that points to), following no link."""
    folder = source.parent if os.path.lexists(source.parent / location) else source.resolve().parent
    *parents, name = location.split("/")
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parents:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
            os.close(at)
            at = inner
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
    except OSError as error:
        what = "is a link" if os.path.islink(folder / location) else error.strerror or "cannot be opened"
        raise refuse(f"{location!r}: {what}") from error
    finally:
        os.close(at)
    status = os.fstat(fd)
    if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
        return fd
    os.close(fd)
    if stat.S_ISREG(status.st_mode):
        raise refuse(f"{location!r} has {status.st_nlink} names (hard links); copy the model with its files first")
    raise refuse(f"{location!r} is not a regular file")


def _bytes_of(tensor: Any, refuse: Any) -> int | None:
    """Bytes that type and shape ask for; None for a type whose packing is not known."""
    if tensor.data_type in (0, 8):
        raise refuse("strings and undefined types cannot be external")
    if any(dim < 0 for dim in tensor.dims):
        raise refuse(f"a negative size in its shape {list(tensor.dims)}")
    bits = _BITS.get(tensor.data_type)
    return None if bits is None else -(-math.prod(tensor.dims) * bits // 8)


def _copy(source: IO[bytes], dest: Path) -> None:
    dest.parent.mkdir(parents=True, exist_ok=True)
    source.seek(0)
    with dest.open("wb") as file:
        shutil.copyfileobj(source, file, 1 << 20)
