"""Releases in an OCI image layout on disk, which `oras` and `skopeo` copy to a registry.

Each release is an artifact with a layer for each file of the package, tagged with its number; the tag `current` is the
release in use. See https://github.com/opencontainers/image-spec/blob/main/image-layout.md.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from autoopt.errors import InputError, writing
from autoopt.json_codec import JsonObject, JsonValue, read_object
from autoopt.model.files import digest_file, files_in
from autoopt.results.release import Release
from autoopt.working_folder import replacing

ARTIFACT_TYPE: Final = "application/vnd.autoopt.model"
MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
INDEX: Final = "application/vnd.oci.image.index.v1+json"
EMPTY: Final = "application/vnd.oci.empty.v1+json"
TITLE: Final = "org.opencontainers.image.title"
"""Annotation with the name of a layer's file."""
TAG: Final = "org.opencontainers.image.ref.name"
RELEASE: Final = "dev.autoopt.release"
"""Annotation of a manifest: `zoo/model number`."""
CURRENT: Final = "current"


def add(folder: Path, release: Release, place: str) -> Callable[[], None]:
    """Add a package to the layout in the folder `place`, unless it is there; return the call that tags it.

    Raises:
        InputError: the folder cannot be written, is none of an OCI layout, or has releases of another model.
    """
    layout = Path(place)
    manifests = _manifests(layout)
    tag = str(release.number)
    with writing(place):
        if tag not in manifests:
            manifests[tag] = _add_package(layout, folder, release)
        _check_same(layout, manifests[tag], release)
    manifests[CURRENT] = manifests[tag]

    def switch() -> None:
        _write(layout / "oci-layout", {"imageLayoutVersion": "1.0.0"})
        entries: list[JsonValue] = []
        for tag, manifest in manifests.items():
            entries.append({**manifest, "artifactType": ARTIFACT_TYPE, "annotations": {TAG: tag}})
        _write(layout / "index.json", {"schemaVersion": 2, "mediaType": INDEX, "manifests": entries})

    return switch


def _add_package(layout: Path, folder: Path, release: Release) -> JsonObject:
    """Store the files of a package and its manifest; return the manifest's descriptor."""
    (layout / "blobs" / "sha256").mkdir(parents=True, exist_ok=True)
    layers: list[JsonValue] = []
    for name, file in sorted(files_in(folder).items()):
        layer = _add_file(layout, file, "application/octet-stream")
        layers.append({**layer, "annotations": {TITLE: name}})
    manifest: JsonObject = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "artifactType": ARTIFACT_TYPE,
        "config": _add_json(layout, {}, EMPTY),
        "layers": layers,
        "annotations": {RELEASE: release.name, "dev.autoopt.run": release.entry.run},
    }
    return _add_json(layout, manifest, MANIFEST)


def _check_same(layout: Path, manifest: JsonObject, release: Release) -> None:
    """Check that a manifest belongs to this release."""
    blob = layout / "blobs" / "sha256" / str(manifest["digest"]).removeprefix("sha256:")
    annotations = read_object(blob).get("annotations")
    if not isinstance(annotations, dict) or annotations.get(RELEASE) != release.name:
        remedy = "name another folder with --to"
        raise InputError(f"tag {release.number} is not release {release.name}", where=str(layout), remedy=remedy)


def _manifests(layout: Path) -> dict[str, JsonObject]:
    """The manifests of the layout by their tags."""
    if not (layout / "index.json").exists() and not any(layout.glob("[!b.]*")):
        return {}
    try:
        entries = read_object(layout / "index.json")["manifests"]
        return {entry["annotations"][TAG]: _descriptor(entry) for entry in entries}
    except (ValueError, KeyError, TypeError) as error:
        remedy = "name a new folder, or an OCI layout that autoopt made"
        raise InputError("is no OCI layout of releases", where=str(layout), remedy=remedy) from error


def _descriptor(entry: Mapping[str, object]) -> JsonObject:
    return {"mediaType": str(entry["mediaType"]), "digest": str(entry["digest"]), "size": int(str(entry["size"]))}


def _add_json(layout: Path, document: JsonObject, kind: str) -> JsonObject:
    content = json.dumps(document, separators=(",", ":"), sort_keys=True).encode()
    digest = hashlib.sha256(content).hexdigest()
    with replacing(layout / "blobs" / "sha256" / digest) as new:
        new.write_bytes(content)
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}


def _add_file(layout: Path, file: Path, kind: str) -> JsonObject:
    digest = digest_file(file)
    blob = layout / "blobs" / "sha256" / digest
    if not blob.exists():
        with replacing(blob) as new:
            shutil.copyfile(file, new)
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": file.stat().st_size}


def _write(path: Path, document: JsonObject) -> None:
    with replacing(path) as new:
        new.write_text(json.dumps(document, indent=2) + "\n")
