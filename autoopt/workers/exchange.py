"""A worker call as files on a shared folder or object store (fsspec), for a worker on another machine.

<root>/blobs/<sha256>              each file that a call reads or creates, once
<root>/calls/<id>/asked.json       a `RemoteCall`
<root>/calls/<id>/begun.json       a `CallBegun`
<root>/calls/<id>/answer.json      a `RemoteAnswer`

Paths travel as `{"$file": digest, "name": ...}` and `{"$folder": {name: digest, ...}, "pick": name}`; the folder that a
call writes into travels as `{"$output": {}}`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final, TypeVar

from autoopt.errors import ErrorRecord, SystemFailure
from autoopt.json_codec import from_json, to_json
from autoopt.model.files import MODEL, digest_file
from autoopt.model.filesystems import RemoteFolder
from autoopt.model.model_set import MODEL_SET
from autoopt.model.split.graphs import is_split
from autoopt.model.split.sets import is_split_set
from autoopt.model.split.stored import write_files
from autoopt.outcome import Outcome
from autoopt.working_folder import working_folder

MODELS: Final = ("candidate", "source", "model")
"""Fields that name a model: its folder travels with it, for external data."""
FOLDERS: Final = ("path", "labels", "tokenizer", "vocabulary", "data_name", "params")
"""Fields that may name folders; `params`, of a pass or of a data component, at any depth."""
MAX_PATH_CHARS = 4096

T = TypeVar("T")


@dataclass(frozen=True)
class RemoteCall:
    """A call as the caller leaves it in the exchange."""

    call: str
    """`module:function`."""
    payload: dict[str, object]
    """Packed, see `pack`."""
    seconds: float | None = None
    memory: int | None = None
    alone: bool = False
    """True if nothing else of autoopt may run on that machine meanwhile."""


@dataclass(frozen=True)
class CallBegun:
    """A sign that the call no longer waits for anything on the worker's machine: its time counts from now on."""


@dataclass(frozen=True)
class RemoteAnswer:
    """The end of a call as the worker leaves it in the exchange."""

    outcome: Outcome
    value: object = None
    """Packed, see `pack_answer`."""
    output: dict[str, str] = field(default_factory=dict)
    """Files in the output folder: digest by relative name."""
    message: str = ""
    seconds: float = 0.0
    details: str = ""
    machine: dict[str, object] = field(default_factory=dict)
    """CPU and versions of the worker's machine."""
    error: ErrorRecord | None = None
    transient: bool = False


FILES: Final[Mapping[type, str]] = {
    RemoteCall: "asked.json",
    CallBegun: "begun.json",
    RemoteAnswer: "answer.json",
}
"""Files of the messages about a call."""


class Exchange:
    """A folder or object store that both sides reach.

    Raises:
        InputError: the file system is unknown, or a package that it needs is not installed.
    """

    def __init__(self, url: str) -> None:
        self._folder = RemoteFolder(url, "cannot exchange calls there")
        self._system, self._root = self._folder.system, self._folder.root
        self.safe_url = self._folder.safe_url

    def put(self, file: Path) -> str:
        """Upload a file unless it is there already; returns its digest."""
        digest = digest_file(file)
        target = self._root / "blobs" / digest
        with self._failures("write"):
            if not self._system.exists(str(target)):
                self._folder.put(file, target)
        return digest

    def get(self, digest: str, file: Path) -> None:
        """Download a blob and check its digest."""
        if len(digest) != 64 or not digest.isalnum():
            raise SystemFailure(f"{digest!r} is not a digest", where=self.safe_url)
        file.parent.mkdir(parents=True, exist_ok=True)
        with self._failures("read"):
            self._system.get_file(str(self._root / "blobs" / digest), str(file))
        if digest_file(file) != digest:
            raise SystemFailure(f"blob {digest[:12]} is damaged", where=self.safe_url)

    def write(self, call_id: str, message: RemoteCall | CallBegun | RemoteAnswer) -> None:
        """Leave a message about a call for the other side."""
        target = self._root / "calls" / call_id / FILES[type(message)]
        with self._failures("write"):
            self._system.makedirs(str(target.parent), exist_ok=True)
            self._system.pipe_file(str(target), json.dumps(to_json(message)).encode())

    def read(self, call_id: str, kind: type[T]) -> T | None:
        """The message of that type about a call; None while there is none."""
        target = str(self._root / "calls" / call_id / FILES[kind])
        message = None
        with self._failures("read"):
            if self._system.exists(target):
                message = from_json(kind, json.loads(self._system.cat_file(target)))
        return message

    def clear(self) -> None:
        """Remove all calls and blobs."""
        with self._failures("remove"):
            if self._system.exists(str(self._root)):
                self._system.rm(str(self._root), recursive=True)

    def _failures(self, verb: str) -> AbstractContextManager[None]:
        return self._folder.failures(f"cannot {verb} the files of a call")


def pack(payload: Mapping[str, object], exchange: Exchange) -> dict[str, object]:
    """Upload the files that a payload names and replace their paths; an `output` folder will be created there."""
    packed: dict[str, object] = {}
    for name, value in payload.items():
        if name == "output":
            packed[name] = {"$output": {}}
        else:
            packed[name] = _pack_value(value, name, exchange)
    return packed


def _pack_value(value: object, key: str, exchange: Exchange) -> object:
    if isinstance(value, Mapping):
        return _pack_mapping(value, key, exchange)
    if isinstance(value, list | tuple):
        return [_pack_value(item, key, exchange) for item in value]
    if isinstance(value, str) and value.startswith("/") and len(value) < MAX_PATH_CHARS and "\n" not in value:
        return _pack_path(value, key, exchange)
    return value


def _pack_path(value: str, key: str, exchange: Exchange) -> object:
    path = Path(value)
    if path.is_file():
        return {"$file": exchange.put(path), "name": path.name}
    if key in FOLDERS and path.is_dir() and path.name:
        return {"$folder": _put_folder(path, exchange), "pick": ""}
    return value


def _pack_mapping(value: Mapping[str, object], key: str, exchange: Exchange) -> dict[str, object]:
    model = value.get("path")
    if key in MODELS and isinstance(model, str):
        return {**value, "path": _put_model(Path(model), exchange)}
    packed = {}
    for name, item in value.items():
        # The names of parameters mean nothing here: inside `params`, all fields count as `params`.
        item_key = str(name)
        if key == "params":
            item_key = key
        packed[name] = _pack_value(item, item_key, exchange)
    return packed


def _put_model(model: Path, exchange: Exchange) -> dict[str, object]:
    """Upload a model with all files in its folder; of a split model or set, its files as they were."""
    if not is_split(model) and not is_split_set(model):
        return {"$folder": _put_folder(model.parent, exchange), "pick": model.name}
    with working_folder() as folder:
        write_files(model, folder)
        return {"$folder": _put_folder(folder, exchange), "pick": MODEL_SET if is_split_set(model) else MODEL}


def _put_folder(folder: Path, exchange: Exchange) -> dict[str, str]:
    """Upload all files of a folder; their digests by relative name."""
    digests = {}
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            digests[file.relative_to(folder).as_posix()] = exchange.put(file)
    return digests


def unpack(payload: Mapping[str, object], exchange: Exchange, folder: Path) -> dict[str, object]:
    """Reverse `pack`: download the files below `folder` and put their paths in.

    The output folder becomes `folder/output`.
    """
    return {name: _unpack_value(value, exchange, folder) for name, value in payload.items()}


def _unpack_value(value: object, exchange: Exchange, folder: Path) -> object:
    if isinstance(value, list):
        return [_unpack_value(item, exchange, folder) for item in value]
    if not isinstance(value, Mapping):
        return value
    if "$output" in value:
        (folder / "output").mkdir(parents=True, exist_ok=True)
        return str(folder / "output")
    if "$file" in value:
        digest = str(value["$file"])
        file = folder / "files" / digest[:16] / Path(str(value["name"])).name
        exchange.get(digest, file)
        return str(file)
    if "$folder" in value:
        count = len(list((folder / "folders").glob("*")))
        target = folder / "folders" / str(count)
        target.mkdir(parents=True)
        fetch(value["$folder"], exchange, target)
        return str(target / Path(str(value["pick"])).name)
    return {name: _unpack_value(item, exchange, folder) for name, item in value.items()}


def fetch(files: Mapping[str, str], exchange: Exchange, folder: Path) -> None:
    """Download files, given as digest by relative name, into `folder`.

    Raises:
        SystemFailure: a name leads out of the folder.
    """
    for name, digest in files.items():
        if ".." in PurePosixPath(name).parts or PurePosixPath(name).is_absolute():
            raise SystemFailure(f"unsafe file name {name!r}", where=exchange.safe_url)
        exchange.get(digest, folder / name)


def pack_answer(value: object, folder: Path, exchange: Exchange) -> tuple[object, dict[str, str]]:
    """Upload the files in `folder/output`.

    Returns:
        The value, with the marker `$output` in place of that folder, and the digest of each file by relative name.
    """
    output = folder / "output"
    files: dict[str, str] = _put_folder(output, exchange) if output.is_dir() else {}
    return _move_paths(value, str(output), "$output"), files


def unpack_answer(answer: RemoteAnswer, output: str, exchange: Exchange) -> object:
    """Download the files of an answer into the folder `output`; returns the value, with paths there."""
    if answer.output:
        fetch(answer.output, exchange, Path(output))
    return _move_paths(answer.value, "$output", output)


def _move_paths(value: object, old: str, new: str) -> object:
    if isinstance(value, Mapping):
        return {name: _move_paths(item, old, new) for name, item in value.items()}
    if isinstance(value, list):
        return [_move_paths(item, old, new) for item in value]
    if isinstance(value, str) and (value == old or value.startswith(old + "/")):
        return new + value[len(old) :]
    return value
