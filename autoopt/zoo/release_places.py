"""Places where releases are published: a folder, a folder at a URL, MLflow's model registry.

Each keeps all releases beside each other and a pointer to the current one, which moves in one step: a symbolic link, a
small object, an alias. Publishing a release again only moves the pointer.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from autoopt.engine.run.export import export
from autoopt.engine.run.output_folder import check_writable
from autoopt.engine.run.package import Package
from autoopt.engine.tools import exports
from autoopt.errors import InputError, writing
from autoopt.json_codec import read_object
from autoopt.model.fetch import has_secret, is_url, shown_source
from autoopt.results.sweep import Release
from autoopt.store import Store
from autoopt.working_folder import working_folder

Switch: TypeAlias = Callable[[], None]
"""Makes what was added the current release of a place."""
REGISTRY: Final = "mlflow:"
"""Start of a place that names a model of MLflow's registry."""
CURRENT: Final = "current"
"""Name of the link in a folder to the release in use."""
RELEASE_FILE: Final = "release.json"


def publish(store: Store, package: Package, release: Release, places: Sequence[str]) -> None:
    """Publish a release and make it the current one at all places, or at none if one of them fails.

    Places are folders, URLs that fsspec writes, or `mlflow:NAME` for a registered model.

    Raises:
        InputError: a place cannot be written, or belongs to another model.
        SystemFailure: a remote place cannot be written.
    """
    with working_folder() as scratch:
        folder = scratch / "package"
        export(store, package, folder)
        text = json.dumps(release_document(release), indent=2) + "\n"
        (folder / RELEASE_FILE).write_text(text, encoding="utf-8")
        switches = [_add(folder, release, place) for place in places]
    for switch in switches:
        switch()


def _add(folder: Path, release: Release, place: str) -> Switch:
    """Add a package to a place; return the call that makes it the current one."""
    if is_url(place):
        return exports.publish(folder, release, place, release_document(release))
    if place.startswith(REGISTRY):
        return exports.register(folder, release, place.removeprefix(REGISTRY))
    return _add_to_folder(folder, release, Path(place))


def absolute(place: str) -> str:
    """The place with the absolute path of its folder, for a rollback from elsewhere.

    Raises:
        InputError: the place has no name, or a URL has a password, which the store would keep.
    """
    if place == REGISTRY:
        raise InputError(f"{place!r} names no model", where="--to", remedy=f"write {REGISTRY}NAME")
    if has_secret(place):
        raise InputError(
            "has a password or a signature", where=shown_source(place), remedy="keep it in the environment"
        )
    if place.startswith(REGISTRY) or is_url(place):
        return place
    return str(Path(place).absolute())


def release_document(release: Release) -> dict[str, object]:
    """`release.json`, which is in each published package."""
    return {
        "zoo": release.zoo,
        "model": release.entry.name,
        "release": release.number,
        "run": release.entry.run,
        "trial": release.trial,
        "artifact": release.model.artifact,
        "by": release.by,
    }


def _add_to_folder(package: Path, release: Release, folder: Path) -> Switch:
    """Copy the package to `FOLDER/NUMBER`, unless it is there; the switch lets `FOLDER/current` point to it."""
    check_writable(folder)
    final = folder / str(release.number)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if not _has(final, release):
            scratch = Path(tempfile.mkdtemp(dir=folder, prefix=".new-"))
            try:
                shutil.copytree(package, scratch / "package")
                shutil.rmtree(final, ignore_errors=True)  # of a promotion that failed
                (scratch / "package").rename(final)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)

    current = folder / CURRENT
    if current.exists() and not current.is_symlink():
        raise InputError("is no link to a release", where=str(current), remedy="name another folder with --to")

    def switch() -> None:
        link = folder / f".{CURRENT}-{os.getpid()}"
        link.unlink(missing_ok=True)
        link.symlink_to(final.name)
        os.replace(link, current)

    return switch


def _has(final: Path, release: Release) -> bool:
    """True if a folder holds this release; False without a folder, or if a failed promotion left it."""
    if not final.exists():
        return False
    document = read_object(final / RELEASE_FILE)
    expected = release_document(release)
    names = ("zoo", "model", "artifact")
    differing = [name for name in names if document.get(name) != expected[name]]
    current = (final.parent / CURRENT).resolve() == final.resolve()
    if not differing:
        return True
    if differing == ["artifact"] and not current:
        return False
    raise InputError(f"is not release {release.name}", where=str(final), remedy="name another folder with --to")
