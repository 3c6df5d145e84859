"""Model sets whose models share their weights with all split models.

<folder>/sets/<digest>/model_set.json            the description, in which split models are the graphs below
<folder>/sets/<digest>/model_set.json.original   the description as it was
<folder>/sets/<digest>/<model>/...               the files of models that stay as they are
<folder>/<digest>-<number>.onnx                  the graph of a split model
"""

from __future__ import annotations

import json
import mmap
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Final

from autoopt.model.files import MODEL, digest_of_contents, files_in
from autoopt.model.model_set import MODEL_SET, ModelSet
from autoopt.model.split.graphs import FOLDER, GRAPH, ORIGINAL, is_split, remove_graph
from autoopt.model.split.joining import files_of_graph
from autoopt.model.split.splitting import Draft, copied_graph, may_be_split, split_folder
from autoopt.model.weight_files import FileBytes, NotSplit, Piece, WeightFiles, chunks_of, sync_folder, write_durably

SETS: Final = "sets"
_AS_IT_WAS: Final = f"{MODEL_SET}{ORIGINAL}"


@dataclass(frozen=True)
class SetDraft:
    """A split set under a name for the time being."""

    folder: Path
    """Everything apart from split models and weights."""
    models: Mapping[str, Draft]
    """The split models, by their folder in the set."""

    def digest(self) -> str:
        """The digest of the files of the set. Reads all weights."""
        files = _files_of(self.folder, {folder: draft.graph for folder, draft in self.models.items()})
        weights = WeightFiles(self.folder.parents[1])
        return digest_of_contents({name: weights.read(pieces) for name, pieces in files.items()})

    def publish(self, digest: str) -> Path:
        """Name the set by the digest of its files; returns the path of its description."""
        description = description_path(self.folder.parents[1], digest)
        for name, path in files_in(self.folder).items():
            target = description.parent / name
            target.parent.mkdir(parents=True, exist_ok=True)
            path.replace(target)
            sync_folder(target.parent)
        places: dict[str, str] = {}
        for number, (folder, draft) in enumerate(sorted(self.models.items())):
            graph = draft.publish(f"{digest}-{number}")
            places[f"{folder}/{MODEL}"] = f"../../{graph.name}"
        before = read_description(description)
        parts = {}
        for name, part in before.parts.items():
            parts[name] = replace(part, file=places.get(part.file, part.file))
        # The description is last: without it, there is no set.
        write_durably(description, [json.dumps(replace(before, parts=parts).to_json()).encode()])
        sync_folder(description.parents[1])
        shutil.rmtree(self.folder, ignore_errors=True)
        return description

    def discard(self) -> None:
        """Remove the set. Weights stay, because others may use them by now."""
        for draft in self.models.values():
            draft.discard()
        shutil.rmtree(self.folder, ignore_errors=True)


def description_path(folder: Path, digest: str) -> Path:
    """The description of the split set with this digest in a folder of split models."""
    return folder / SETS / digest / MODEL_SET


def is_split_set(model: str | os.PathLike[str]) -> bool:
    """True if this is the description of a split set."""
    *_, folder, sets, _, name = ("", "", "", *Path(model).parts)
    return (folder, sets, name) == (FOLDER, SETS, MODEL_SET)


def read_description(path: Path) -> ModelSet:
    """Read the description of a set; that of a split one as it was before."""
    return ModelSet.read(path.with_name(_AS_IT_WAS) if is_split_set(path) else path)


def split_set(source: Path, folder: Path, *, replace: bool = False) -> SetDraft | None:
    """Split the models of the set in the folder `source`; None if all of them stay as they are.

    With `replace`, weights that exist are written again.
    """
    files = files_in(source)
    if _AS_IT_WAS in files:
        return None
    try:
        description = ModelSet.read(source / MODEL_SET)
    except (ValueError, KeyError, TypeError):
        return None
    models: dict[str, Draft] = {}
    for model in sorted({_folder_of(part.file) for part in description.parts.values() if _is_alone(part.file)}):
        if may_be_split(source / model):
            split = split_folder(source / model, folder, replace=replace)
            if split is not None:
                models[model] = split
    if not models:
        return None
    draft = _new_draft(folder, models)
    for name, path in files.items():
        if not any(name.startswith(f"{model}/") for model in models):
            _copy(path, draft.folder / (_AS_IT_WAS if name == MODEL_SET else name))
    return draft


def make_set(description: bytes, models: Mapping[str, Path], folder: Path) -> SetDraft | None:
    """A set of models, each in a folder of its own; None if none of them is split.

    Args:
        description: The content of its `model_set.json`.
        models: The folder of each model's files, or its graph in the folder of split models, by its folder in the set.
        folder: The folder of split models.
    """
    split: dict[str, Draft] = {}
    for name, model in models.items():
        if is_split(model):
            split[name] = copied_graph(model)
            continue
        new = split_folder(model, folder) if may_be_split(model) else None
        if new is not None:
            split[name] = new
    if not split:
        return None
    draft = _new_draft(folder, split)
    for name in models.keys() - split.keys():
        for file, path in files_in(models[name]).items():
            _copy(path, draft.folder / name / file)
    draft.folder.mkdir(parents=True, exist_ok=True)
    write_durably(draft.folder / _AS_IT_WAS, [description])
    return draft


def _new_draft(folder: Path, models: Mapping[str, Draft]) -> SetDraft:
    return SetDraft(folder / SETS / f".{os.urandom(8).hex()}", models)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with source.open("rb") as file:
        data = FileBytes(file.fileno())
        write_durably(target, chunks_of(data, 0, len(data)))


def files_of_set(description: Path) -> dict[str, list[Piece]]:
    """The files of a split set, by name, as they were before.

    Raises:
        NotSplit: The set is damaged.
        FileNotFoundError: A file is missing.
    """
    try:
        before, now = read_description(description), ModelSet.read(description)
        places = {_folder_of(before.parts[name].file): part.file for name, part in now.parts.items()}
    except (ValueError, KeyError, TypeError):
        raise NotSplit("its description is damaged") from None
    graphs = {}
    for folder, place in places.items():
        if place.startswith("../"):
            graphs[folder] = description.parents[2] / PurePosixPath(place).name
    return _files_of(description.parent, graphs)


def graphs_of_set(description: Path) -> list[Path]:
    """The graphs of a split set."""
    return sorted(description.parents[2].glob(f"{description.parent.name}-*{GRAPH}"))


def remove_set(description: Path) -> None:
    """Remove a split set, but not its weights."""
    description.unlink(missing_ok=True)
    for graph in graphs_of_set(description):
        remove_graph(graph)
    shutil.rmtree(description.parent, ignore_errors=True)


def _is_alone(file: str) -> bool:
    """True if this is the place of a model in a folder of its own in the set."""
    parts = PurePosixPath(file).parts
    return len(parts) > 1 and parts[-1] == MODEL and ".." not in parts


def _folder_of(file: str) -> str:
    return str(PurePosixPath(file).parent)


def _files_of(folder: Path, graphs: Mapping[str, Path]) -> dict[str, list[Piece]]:
    """The files of a set: those in the folder, and those of split models by their folder in the set."""
    files: dict[str, list[Piece]] = {MODEL_SET: [(folder / _AS_IT_WAS).read_bytes()]}
    for name, path in files_in(folder).items():
        if name not in (MODEL_SET, _AS_IT_WAS):
            files[name] = [_mapped(path)]
    for model, graph in graphs.items():
        for name, pieces in files_of_graph(graph).items():
            files[f"{model}/{name}"] = pieces
    return files


def _mapped(path: Path) -> bytes | memoryview:
    """The content of a file, read where it is used."""
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return b""
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
