"""A worker call as files on a shared folder or object store (fsspec), for a worker on another machine.

<root>/blobs/<sha256>              every file that a call reads or makes, once
<root>/calls/<id>/asked.json       {"call", "payload", "seconds", "memory", "alone"}
<root>/calls/<id>/begun.json       {}, once nothing there is waited for any more
<root>/calls/<id>/answer.json      {"outcome", "value", "message", "seconds", "environment"}

Paths travel as `{"$file": digest, "name": …}` and `{"$folder": {name: digest, …}, "pick": name}`; the folder that a
call writes into as `{"$output": {name: digest, …}}`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

from autoopt.errors import InputError, SystemFailure
from autoopt.model.files import digest_file
from autoopt.model.filesystems import open_filesystem
from autoopt.settings import without_password

MODELS: Final = ("candidate", "source", "model")
"""Where a payload names a model: its folder goes along, for external data."""
FOLDERS: Final = ("path", "labels", "tokenizer", "vocabulary", "data_name", "params")
"""Fields that may name folders; `params`, of a pass or of a data component, at any depth."""


class Exchange:
    """The place that both sides reach."""

    def __init__(self, url: str) -> None:
        """
        Raises:
            InputError: no such file system, or what it needs is not installed.
        """
        self.safe_url = without_password(url)
        try:
            self._system, root = open_filesystem(url)
        except (ImportError, ValueError) as error:
            raise InputError(f"calls cannot be exchanged there ({error})", where=self.safe_url) from None
        self._root = PurePosixPath(root)

    def put(self, file: Path) -> str:
        """Copy a file there unless it is there; returns its digest."""
        digest = digest_file(file)
        self._done("written", lambda: self._put(file, self._at("blobs", digest)))
        return digest

    def _put(self, file: Path, target: str) -> None:
        if not self._system.exists(target):
            self._system.makedirs(str(PurePosixPath(target).parent), exist_ok=True)
            self._system.put_file(str(file), target)

    def get(self, digest: str, file: Path) -> None:
        """Copy a file here; its digest is checked."""
        if len(digest) != 64 or not digest.isalnum():
            raise SystemFailure(f"{digest!r} is no digest", where=self.safe_url)
        file.parent.mkdir(parents=True, exist_ok=True)
        self._done("read", lambda: self._system.get_file(self._at("blobs", digest), str(file)))
        if digest_file(file) != digest:
            raise SystemFailure(f"blob {digest[:12]} is damaged", where=self.safe_url)

    def write(self, call: str, name: str, value: Mapping[str, Any]) -> None:
        """Leave a JSON document with a call."""

        def work() -> None:
            target = self._at("calls", call, name)
            self._system.makedirs(str(PurePosixPath(target).parent), exist_ok=True)
            self._system.pipe_file(target, json.dumps(value).encode())

        self._done("written", work)

    def read(self, call: str, name: str) -> dict[str, Any] | None:
        """The JSON document; None where it is not there."""
        target = self._at("calls", call, name)
        found: dict[str, Any] | None = self._done(
            "read", lambda: json.loads(self._system.cat_file(target)) if self._system.exists(target) else None
        )
        return found

    def clear(self) -> None:
        """Remove everything."""

        def work() -> None:
            if self._system.exists(str(self._root)):
                self._system.rm(str(self._root), recursive=True)

        self._done("removed", work)

    def _at(self, *names: str) -> str:
        return str(self._root.joinpath(*names))

    def _done(self, what: str, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except Exception as error:  # any file system's own family of errors
            raise SystemFailure(f"a call cannot be {what} ({error})", where=self.safe_url) from None


def pack(payload: Mapping[str, Any], exchange: Exchange) -> dict[str, Any]:
    """A payload whose files lie in the exchange; an `output` folder is left to be made there."""
    return {k: {"$output": {}} if k == "output" else _packed(v, k, exchange) for k, v in payload.items()}


def _packed(value: Any, key: str, exchange: Exchange) -> Any:
    if key in MODELS and isinstance(value, Mapping) and isinstance(value.get("path"), str):
        path = Path(value["path"])
        return {**value, "path": {**_folder(path.parent, exchange), "pick": path.name}}
    if isinstance(value, Mapping):  # the names of parameters mean nothing here
        return {name: _packed(item, key if key == "params" else str(name), exchange) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_packed(item, key, exchange) for item in value]
    if isinstance(value, str) and value.startswith("/") and len(value) < 4096 and "\n" not in value:
        path = Path(value)
        if path.is_file():
            return {"$file": exchange.put(path), "name": path.name}
        if key in FOLDERS and path.is_dir() and path.name:
            return {**_folder(path, exchange), "pick": ""}
    return value


def _folder(folder: Path, exchange: Exchange) -> dict[str, Any]:
    files = [f for f in sorted(folder.rglob("*")) if f.is_file()]
    return {"$folder": {f.relative_to(folder).as_posix(): exchange.put(f) for f in files}}


def unpack(value: Any, exchange: Exchange, folder: Path) -> Any:
    """The reverse of `pack`: the same with paths of files below `folder`; the output folder is `folder/output`."""
    if isinstance(value, Mapping):
        if "$output" in value:
            (folder / "output").mkdir(parents=True, exist_ok=True)
            return str(folder / "output")
        if "$file" in value:
            file = folder / "files" / str(value["$file"])[:16] / Path(str(value["name"])).name
            exchange.get(str(value["$file"]), file)
            return str(file)
        if "$folder" in value:
            here = folder / "folders" / str(len(list((folder / "folders").glob("*"))))
            here.mkdir(parents=True)
            fetch(value["$folder"], exchange, here)
            return str(here / Path(str(value["pick"])).name) if value["pick"] else str(here)
        return {name: unpack(item, exchange, folder) for name, item in value.items()}
    if isinstance(value, list):
        return [unpack(item, exchange, folder) for item in value]
    return value


def fetch(files: Mapping[str, str], exchange: Exchange, folder: Path) -> None:
    """Files by relative name and digest, into `folder` and nowhere else.

    Raises:
        SystemFailure: a name leads out of the folder.
    """
    for name, digest in files.items():
        if ".." in PurePosixPath(name).parts or PurePosixPath(name).is_absolute():
            raise SystemFailure(f"a file is named {name!r}", where=exchange.safe_url)
        exchange.get(digest, folder / name)


def pack_answer(value: Any, folder: Path, exchange: Exchange) -> dict[str, Any]:
    """`{"value", "output"}`: an answer whose paths below `folder/output` are marked, and the files that lie there."""
    output = folder / "output"
    made = _folder(output, exchange)["$folder"] if output.is_dir() else {}
    return {"value": _moved(value, str(output), "$output"), "output": made}


def unpack_answer(answer: Mapping[str, Any], output: str, exchange: Exchange) -> Any:
    """The answer's value, with the files it made in the folder `output`."""
    if answer["output"]:
        fetch(answer["output"], exchange, Path(output))
    return _moved(answer["value"], "$output", output)


def _moved(value: Any, old: str, new: str) -> Any:
    if isinstance(value, Mapping):
        return {name: _moved(item, old, new) for name, item in value.items()}
    if isinstance(value, list):
        return [_moved(item, old, new) for item in value]
    if isinstance(value, str) and (value == old or value.startswith(old + "/")):
        return new + value[len(old) :]
    return value
