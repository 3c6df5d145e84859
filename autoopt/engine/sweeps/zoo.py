"""The models of a zoo, one by one: archives unpacked, folders of URLs listed, each with its own request."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autoopt.errors import InputError
from autoopt.model.archive import MODELS, is_archive
from autoopt.model.fetch import fetch, innermost, is_url
from autoopt.model.filesystems import open_filesystem
from autoopt.settings import redacted, root_of_data, without_password
from autoopt.spec import DagSpec, load_dag
from autoopt.spec.data import WHICH, DataSpec
from autoopt.spec.zoo import ZooEntry, ZooModel, ZooSpec, load_zoo, name_of
from autoopt.workers import call_once

UNPACK_SECONDS = 600.0


@dataclass(frozen=True)
class ZooItem:
    """One model of a sweep. `reason` says why there is none, where a path is not there, or an archive or URL could not
    be read."""

    name: str
    path: str
    entry: ZooEntry
    reason: str = ""
    called: str = ""
    """Its name among the models of its own line in the zoo file, which other lines do not change."""

    @property
    def listed(self) -> str:
        """The path in the zoo file that it comes from, without what is secret in a URL."""
        return listed(self.entry.spec)

    @property
    def shown_path(self) -> str:
        """The path without what is secret in a URL."""
        return without_password(self.path) if is_url(self.path) else self.path


def listed(model: ZooModel) -> str:
    """What the zoo file says of a model's path, without what is secret in a URL."""
    return without_password(model.path) if is_url(model.path) else model.path


def check_zoo(given: Any, only: str | None = None, dag: str | None = None, data_root: str | None = None) -> ZooSpec:
    """A zoo file and its DAGs, checked as far as that takes neither workers nor a store: at once.

    Raises:
        ConfigError: something in them is wrong.
    """
    zoo = load_zoo(given).with_data_root(root_of_data(data_root))
    check_data(zoo)
    seen: set[str | None] = set()
    for entry in zoo.entries(only):
        if entry.spec.dag not in seen:
            seen.add(entry.spec.dag)
            dag_of(zoo, ZooItem(entry.name, entry.path, entry), dag).check_files(model=False)
    return zoo


def items(zoo: ZooSpec, home: Path, only: str | None = None) -> list[ZooItem]:
    """The models of a zoo under names that differ.

    Raises:
        ConfigError: no model has the tag, or no path of the zoo file is there.
    """
    found: list[ZooItem] = []
    taken: set[str] = set()
    called: dict[str, set[str]] = {}
    for entry in zoo.entries(only):
        of_line = called.setdefault(listed(entry.spec), set())
        found += [
            replace(item, name=free_name(item.name, taken), called=free_name(item.name, of_line))
            for item in _expanded(entry, home)
        ]
    return found


def free_name(name: str, taken: set[str]) -> str:
    """`name`, with a number where it is taken; taken from now on."""
    free, number = name, 2
    while free in taken:
        free, number = f"{name}-{number}", number + 1
    taken.add(free)
    return free


def _expanded(entry: ZooEntry, home: Path) -> Iterator[ZooItem]:
    """The models that one path stands for."""
    if entry.reason:
        yield ZooItem(entry.name, entry.path, entry, reason=entry.reason)
        return
    try:
        urls = _urls(entry.path)
    except InputError as error:
        yield ZooItem(entry.name, entry.path, entry, reason=str(error))
        return
    for one in [entry] if urls is None else [replace(entry, name=name_of(url), path=url) for url in urls]:
        try:
            if is_archive(one.path):
                yield from _unpacked(one, home)
            else:
                yield ZooItem(one.name, one.path, one)
        except InputError as error:
            yield ZooItem(one.name, one.path, one, reason=str(error))


def _urls(path: str) -> list[str] | None:
    """The models and archives in a folder or glob of a remote file system; None where `path` is none."""
    if "://" not in path or not (path.endswith("/") or "*" in path):
        return None
    try:
        system, root = open_filesystem(path)
        pattern = root if "*" in root else f"{root.rstrip('/')}/**"
        names = [str(p) for p in system.glob(pattern)]
    except Exception as error:  # any file system's own family of errors
        text = redacted(f"{type(error).__name__}: {error}", path)
        raise InputError(f"cannot be listed ({text})", where=without_password(path)) from None
    found = sorted(str(system.unstrip_protocol(p)) for p in names if p.endswith(MODELS) or is_archive(p))
    if not found:
        raise InputError("no models there", where=without_password(path))
    inside = path.partition(f"{innermost(path)}::")[2]  # zip://*.onnx::s3://models/all.zip
    return [f"{url}::{inside}" for url in found] if inside else found


def _unpacked(entry: ZooEntry, home: Path) -> Iterator[ZooItem]:
    """The models in an archive, unpacked once for each content."""
    file = fetch(entry.path, home / "downloads")
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    folder = home / "unpacked" / digest
    if not folder.is_dir():
        _unpack(file, folder)
    models = sorted(p for p in folder.rglob("*") if p.suffix in MODELS)
    if not models:
        shown = ZooItem(entry.name, entry.path, entry).shown_path
        raise InputError("no models in this archive", where=shown)
    for model in models:
        name = entry.name if len(models) == 1 else name_of(str(model.relative_to(folder)))
        yield ZooItem(name, str(model), entry)


def _unpack(file: Path, folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(dir=folder.parent))
    try:
        payload = {"source": str(file), "dest": str(new)}
        done = call_once("autoopt.model.archive:unpack", payload, timeout=UNPACK_SECONDS)
        if not done.outcome.good:
            raise InputError(done.message.removeprefix("InputError: "))
        if not folder.exists():
            new.rename(folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def dag_of(zoo: ZooSpec, item: ZooItem, dag: str | None) -> DagSpec:
    """The DAG of one model: its own, else `dag`, else the zoo's; with the constraints, objectives and data of zoo and
    model in place of the DAG's.

    Raises:
        ConfigError: there is none, or it is wrong.
    """
    model = item.entry.spec
    said = model.dag or (None if dag else zoo.dag)
    path = zoo.path(said) if said else dag
    if said and path and not Path(path).exists():
        place = ("models", zoo.models.index(model), "dag") if model.dag else ("dag",)
        raise zoo.error(place, f"no such file: {said}", f"looked for {path}")
    if path is None:
        raise zoo.error((), "no DAG is named", "write dag: in the file, or give --dag")
    spec = load_dag(path).with_data_root(zoo.data_root)
    changed: dict[str, Any] = {}
    for field in ("constraints", "objectives"):
        value = getattr(model, field) if getattr(model, field) is not None else getattr(zoo, field)
        if value is not None:
            changed[field] = value
    data = {which: _data(zoo, model.data, which) or spec.data_json(which) for which in WHICH}
    changed["data"] = DataSpec(**{which: value for which, value in data.items() if value is not None})
    return spec.model_copy(update=changed)


def _data(zoo: ZooSpec, own: DataSpec | None, which: str) -> Any:
    """The data that a model, else the zoo, names."""
    folder = zoo.source.folder
    root = zoo.data_root
    return (own.resolved(which, folder, root) if own else None) or zoo.data.resolved(which, folder, root)


def check_data(zoo: ZooSpec) -> None:
    """That the data files that the zoo file names exist.

    Raises:
        ConfigError: one does not.
    """
    named: list[tuple[tuple[str | int, ...], DataSpec]] = [(("data",), zoo.data)]
    named += [(("models", i, "data"), m.data) for i, m in enumerate(zoo.models) if m.data is not None]
    for place, data in named:
        for inner, text in data.paths():
            path = zoo.data_path(text)
            if "://" not in path and not Path(path).exists():
                raise zoo.error((*place, *inner), f"no such file: {text}", f"looked for {path}")
