"""Admission: copying a model from anywhere into a folder of ours, reading nothing from outside its own folder.

onnxruntime follows a hard link to a foreign file, readers disagree about odd names and duplicate entries, and files can
change while they are read. So external data must be regular files with a single name, reached without any link, with
bounds that hold. It is copied through the descriptor that was checked, and only the copy is ever used.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from autoopt.errors import InputError
from autoopt.model.fetch import beside, fetch
from autoopt.model.files import MODEL, ORT_MODEL, append_part, version_of
from autoopt.model.io import external_locations, external_tensors, parse
from autoopt.model.packaged_models import is_packaged, packaged_model
from autoopt.model.repairs import repair
from autoopt.model.tensors import packed_bytes
from autoopt.outcome import Outcome

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto

LARGEST_GRAPH = (1 << 31) - 1
"""Bytes; protobuf reads no more."""
NUMBER = re.compile(r"[0-9]{1,18}")
NOT_EXTERNAL = (0, 8)
"""Type codes of undefined types and of strings."""


class NotAdmitted(InputError):
    """The model or its external data breaks a rule of admission."""

    outcome = Outcome.REFUSED


@dataclass(frozen=True)
class AdmittedModel:
    """A model that was copied or stored."""

    graph: Path
    repairs: tuple[str, ...]
    """A few words on each fault of the file that was mended in the copy."""


def admit_model(source: Path, dest: Path) -> AdmittedModel:
    """Copy the model `source` and its external data into the folder `dest`, its faults mended.

    `source` may be a link, its external data may not. `dest` is created; what it holds already stays.

    Raises:
        NotAdmitted: the model or its external data breaks a rule, or changed meanwhile; the message names it.
        Unreadable: the file is empty or not an ONNX model.
    """
    source = _model_file(source)
    copy = dest / (ORT_MODEL if source.suffix == ".ort" else MODEL)
    dest.mkdir(parents=True, exist_ok=True)
    with ExitStack() as open_files:
        graph = open_files.enter_context(_open_model(source))
        states = {graph.fileno(): version_of(os.fstat(graph.fileno()))}
        _copy(graph, copy)
        files: dict[str, IO[bytes]] = {}
        repairs: list[str] = []
        if copy.name == MODEL:
            try:
                model = parse(copy)
            except InputError as error:
                raise type(error)(error.what, where=str(source), remedy=error.remedy) from error
            repairs = _plain_locations(model)
            files = _open_files(source, model, open_files)
            repairs += repair(model)
            if repairs:
                copy.write_bytes(model.SerializeToString(deterministic=True))
        states |= {file.fileno(): version_of(os.fstat(file.fileno())) for file in files.values()}
        _check_free_space(files, dest, str(source))
        for location, file in files.items():
            _copy(file, dest / location)
        if not _is_unchanged(source, states):
            remedy = "run again once nothing writes to it"
            raise NotAdmitted("the model changed while it was read", where=str(source), remedy=remedy)
    return AdmittedModel(copy, tuple(repairs))


def _is_unchanged(source: Path, states: Mapping[int, tuple[int, ...]]) -> bool:
    """True if the files of a model are still as they were when they were opened: else copies may not fit each other.

    `states` are by descriptor; that of the graph, at the path `source`, is the first.
    """
    try:
        graph = version_of(os.stat(source))
    except OSError:  # it is gone
        return False
    now = {descriptor: version_of(os.fstat(descriptor)) for descriptor in states}
    return now == states and graph == next(iter(states.values()))


def _open_files(source: Path, model: ModelProto, open_files: ExitStack) -> dict[str, IO[bytes]]:
    """Open the external data that a model names; `open_files` closes them."""
    files: dict[str, IO[bytes]] = {}
    for tensor in external_tensors(model):
        try:
            location = _location(tensor)
            if location not in files:
                files[location] = open_files.enter_context(_open_external(source, location))
            _check_bounds(tensor, location, os.fstat(files[location].fileno()).st_size)
        except _Problem as problem:
            reason = f"external data of tensor {tensor.name!r}: {problem}"
            raise NotAdmitted(reason, where=str(source)) from problem
    return files


def download_model(url: str, folder: Path, cache: Path) -> Path:
    """Download a model and the external data that it names into `folder`; return the model's path there.

    Only names are checked: `admit_model` checks the rest.
    """
    graph = fetch(url, cache)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / graph.name
    shutil.copyfile(graph, path)
    if path.suffix == ".ort":
        return path
    for location in sorted(map(_without_dots, external_locations(parse(path)))):
        if not _location_problem(location):
            (folder / location).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(fetch(beside(url, location), cache), folder / location)
    return path


class _Problem(Exception):
    """External data breaks a rule; the text names it."""


def _model_file(source: Path) -> Path:
    """Find the one model in a folder; a file is returned as it is."""
    if not source.is_dir():
        return source
    if is_packaged(source):
        return packaged_model(source)
    if (source / MODEL).exists():
        return source / MODEL
    models = sorted(path for path in source.iterdir() if path.suffix in (".onnx", ".ort"))
    if len(models) != 1:
        raise NotAdmitted(f"a folder with {len(models)} models", where=str(source), remedy="name the .onnx file")
    return models[0]


def _open_model(source: Path) -> IO[bytes]:
    try:
        # Opening a pipe must not wait for a writer.
        descriptor = os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise NotAdmitted("no such model file", where=str(source)) from error
    except OSError as error:
        raise NotAdmitted(f"cannot be read ({error.strerror})", where=str(source)) from error
    status = os.fstat(descriptor)
    problem = ""
    if not stat.S_ISREG(status.st_mode):
        problem = "not a regular file"
    elif source.suffix != ".ort" and status.st_size > LARGEST_GRAPH:
        problem = f"a graph of {status.st_size} bytes; protobuf ends at 2 GiB, larger models keep weights beside it"
    if problem:
        os.close(descriptor)
        raise NotAdmitted(problem, where=str(source))
    return os.fdopen(descriptor, "rb")


def _plain_locations(model: ModelProto) -> list[str]:
    """Name external data without `./`, as a file of the store is named; returns a few words if one had it."""
    is_changed = False
    for tensor in external_tensors(model):
        for entry in tensor.external_data:
            plain = _without_dots(entry.value)
            if entry.key == "location" and entry.value != plain:
                entry.value, is_changed = plain, True
    return ["external data named without ./"] if is_changed else []


def _without_dots(location: str) -> str:
    return "/".join(part for part in location.split("/") if part != ".") or location


def _location(tensor: TensorProto) -> str:
    keys = [entry.key for entry in tensor.external_data]
    for key in keys:
        # Readers disagree about which of two entries counts.
        if keys.count(key) > 1:
            raise _Problem(f"two entries {key!r}")
    location: str = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
    problem = _location_problem(location)
    if problem:
        raise _Problem(f"{problem}: {location!r}")
    return location


def _location_problem(location: str) -> str:
    """Explain why this is not the name of a file within the model's folder; empty if it is."""
    if not location:
        return "no location"
    if not location.isprintable() or any(character in location for character in '\\*?"<>|:'):
        return "a character that file names should not have"
    if location.startswith("/"):
        return "an absolute path"
    parts = location.split("/")
    if any(part in ("", ".", "..") for part in parts):
        return "leaves the model's folder"
    if parts[0] in (MODEL, ORT_MODEL):
        return "the name of the graph itself"
    return ""


def _check_bounds(tensor: TensorProto, location: str, file_size: int) -> None:
    numbers = {"offset": 0}
    for entry in tensor.external_data:
        if entry.key in ("offset", "length") and entry.value:
            if not NUMBER.fullmatch(entry.value):
                raise _Problem(f"{entry.key} is not a number: {entry.value!r}")
            numbers[entry.key] = int(entry.value)
    needed = _bytes_of(tensor)
    length = numbers.get("length", needed or 0)
    if needed is not None and length != needed:
        raise _Problem(f"{length} bytes, but its type and shape need {needed}")
    end = numbers["offset"] + length
    if end > file_size:
        raise _Problem(f"bytes {numbers['offset']} to {end} of a file of {file_size}: {location!r}")


def _check_free_space(files: Mapping[str, IO[bytes]], dest: Path, where: str) -> None:
    """Refuse files that fill the disk: a sparse one takes no room before it is copied."""
    size = sum(os.fstat(file.fileno()).st_size for file in files.values())
    free = shutil.disk_usage(dest).free
    if size > free:
        raise NotAdmitted(f"external data of {size} bytes; the disk has room for a copy of {free}", where=where)


def _open_external(source: Path, location: str) -> IO[bytes]:
    """Open `location` in the folder of the model (of its link, else of the link's target), following no link."""
    folder = source.parent if os.path.lexists(source.parent / location) else source.resolve().parent
    *parents, name = location.split("/")
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parents:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            inner = os.open(part, flags, dir_fd=directory)
            os.close(directory)
            directory = inner
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(name, flags, dir_fd=directory)
    except OSError as error:
        reason = "is a link" if os.path.islink(folder / location) else error.strerror or "cannot be opened"
        raise _Problem(f"{location!r}: {reason}") from error
    finally:
        os.close(directory)
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISREG(status.st_mode):
        names = status.st_nlink
        raise _Problem(f"{location!r} has {names} names (hard links); copy the model with its files first")
    raise _Problem(f"{location!r} is not a regular file")


def _bytes_of(tensor: TensorProto) -> int | None:
    """Compute the bytes that type and shape need; None for a type with an unknown packing."""
    if tensor.data_type in NOT_EXTERNAL:
        raise _Problem("strings and undefined types cannot be external")
    if any(dim < 0 for dim in tensor.dims):
        raise _Problem(f"a negative size in its shape {list(tensor.dims)}")
    return packed_bytes(tensor)


def _copy(source: IO[bytes], dest: Path) -> None:
    dest.parent.mkdir(parents=True, exist_ok=True)
    size = os.fstat(source.fileno()).st_size
    with dest.open("wb") as file, suppress(EOFError):  # whoever reads the copy finds out
        append_part(source.fileno(), 0, size, file.fileno())
