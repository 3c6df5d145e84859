"""Models that come as a folder or an archive: those that belong together, or a single one.

A folder of a Hugging Face model without ONNX files is exported first.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from autoopt.distributions import library_version
from autoopt.errors import InputError
from autoopt.model.candidate import digest_json
from autoopt.model.fetch import fetch, shown_source
from autoopt.model.files import digest_file
from autoopt.model.packaged_models import CONFIG, is_archive, is_checkpoint, is_packaged
from autoopt.spec import DagSpec, load_dag
from autoopt.spec.document import Document, Json
from autoopt.spec.model_parts import models_in, parse_models
from autoopt.working_folder import EXPORTED, working_folder

UNPACK_SECONDS: Final = 600.0
"""Time limit for unpacking an archive of models, in a worker."""
EXPORT_SECONDS: Final = 3600.0
"""Time limit for exporting a Hugging Face model, in a worker."""
EXPORTERS: Final = ("optimum-onnx", "transformers", "torch")


def holds_models(path: str | Path) -> bool:
    """True for an archive and for a folder, unless MLflow put a model there."""
    return is_archive(str(path)) or (Path(path).is_dir() and not is_packaged(Path(path)))


def read_models(arguments: Sequence[str], home: Path) -> tuple[str, dict[str, str]]:
    """Read what a command names as `parse_models` does; of an archive, the models that are in it.

    Raises:
        InputError: as in `parse_models`, an archive that cannot be read, or a Hugging Face model without an export.
    """
    if "" in arguments:  # a shell variable that is not set
        raise InputError("is empty", where="the name of a DAG or model", remedy="name a file or folder")
    if len(arguments) > 1 or not holds_models(arguments[0]):
        return parse_models(arguments)
    models = models_of(arguments[0], home)
    return next(iter(models.values())), models if len(models) > 1 else {}


def models_of(path: str, home: Path) -> dict[str, str]:
    """The models of a folder or an archive, by name.

    Raises:
        InputError: it cannot be read, or has no model.
    """
    is_packed, folder = is_archive(path), Path(path)
    if is_packed:
        folder = unpacked(path, home)
    if is_checkpoint(folder):
        folder = exported(folder, home)
    try:
        return models_in(folder)
    except InputError:
        if not is_packed:
            raise
        raise InputError("no .onnx file in this archive", where=shown_source(path)) from None


def with_models(spec: DagSpec, home: Path, model: str | Path | None = None) -> DagSpec:
    """The DAG with the models of the folder or archive that is its model, or that `model` names instead.

    Raises:
        ConfigError: the folder or archive has no models, or not several where the DAG connects them.
    """
    path = str(model or spec.model_path or "")
    if not path or not holds_models(path):
        return spec
    try:
        models = models_of(path, home)
    except InputError as error:
        if model is not None:
            raise
        raise spec.error(("model",), error.what, error.remedy) from None
    value: Json = {**models}
    if len(models) == 1:
        (value,) = models.values()
    assert isinstance(spec.document.value, dict), "a DAG is a mapping"
    return load_dag(Document({**spec.document.value, "model": value}, spec.source))


def unpacked(archive: str, home: Path) -> Path:
    """The folder with the files of an archive, a path or URL, which is unpacked once for each content.

    Raises:
        InputError: it cannot be fetched or unpacked.
    """
    file = fetch(archive, home / "downloads")
    if not file.is_file():
        raise InputError("no such file", where=shown_source(archive))
    folder = home / "unpacked" / digest_file(file)
    _fill(folder, folder.parent, "autoopt.model.packaged_models:unpack", file, UNPACK_SECONDS)
    return folder


def exported(checkpoint: Path, home: Path) -> Path:
    """The folder with the ONNX models of a Hugging Face model, which is exported once for each content.

    Raises:
        InputError: Optimum is not installed, or cannot export the model.
    """
    files = sorted(path for path in checkpoint.iterdir() if path.name == CONFIG or path.suffix == ".safetensors")
    content = [[path.name, digest_file(path)] for path in files]
    exports = home / EXPORTED
    folder = exports / digest_json([content, *map(library_version, EXPORTERS)]) / checkpoint.absolute().name
    _fill(folder, exports, "autoopt.model.packaged_models:export", checkpoint.absolute(), EXPORT_SECONDS)
    os.utime(folder.parent)  # `store gc` removes what has not been used for a week
    return folder


def _fill(folder: Path, scratch_parent: Path, function: str, source: Path, limit: float) -> None:
    """Let a worker make a folder with the models of `source`, unless it exists."""
    if folder.is_dir():
        return
    from autoopt.workers import call_once  # plans of other models start no worker

    with working_folder(scratch_parent) as scratch:
        new = scratch / folder.name
        new.mkdir()
        made = call_once(function, {"source": str(source), "dest": str(new)}, timeout=limit)
        if not made.outcome.good:
            raise made.to_exception()
        folder.parent.mkdir(exist_ok=True)
        if not folder.exists():  # another process may have made the same meanwhile
            new.rename(folder)
