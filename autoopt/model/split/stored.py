"""Split artifacts: single models and model sets alike.

The main file of a single model is its graph, that of a set its description.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final, TypeAlias

from autoopt.model.files import MODEL, digest_of_contents, files_in
from autoopt.model.model_set import MODEL_SET
from autoopt.model.split import splitting
from autoopt.model.split.graphs import GRAPH, ORIGINAL, graph_path, remove_graph
from autoopt.model.split.joining import files_of_graph
from autoopt.model.split.references import weights_in
from autoopt.model.split.sets import (
    SETS,
    SetDraft,
    description_path,
    files_of_set,
    graphs_of_set,
    remove_set,
    split_set,
)
from autoopt.model.split.splitting import Draft, split_folder
from autoopt.model.weight_files import Piece, WeightFiles, total_size

DIGITS: Final = 64
"""Length of a digest."""
AnyDraft: TypeAlias = Draft | SetDraft


def may_be_split(source: Path) -> bool:
    """True if the folder `source` has a model or a set that is large enough to look at."""
    return any(splitting.may_be_split(source, main) for main in (MODEL, MODEL_SET))


def split_artifact(source: Path, folder: Path, *, replace: bool = False) -> AnyDraft | None:
    """Split the model or the set in the folder `source` into a folder of split models; None if it stays as it is.

    With `replace`, weights that exist are written again.
    """
    if (source / MODEL_SET).is_file():
        return split_set(source, folder, replace=replace)
    return split_folder(source, folder, replace=replace)


def main_file(folder: Path, digest: str) -> Path:
    """The main file of an artifact in a folder of split models, which may not exist."""
    description = description_path(folder, digest)
    return description if description.exists() else graph_path(folder, digest)


def main_files(folder: Path) -> Iterator[Path]:
    """The main files of all artifacts in a folder of split models."""
    yield from (graph for graph in folder.glob(f"[0-9a-f]*{GRAPH}") if len(graph.stem) == DIGITS)
    yield from folder.glob(f"{SETS}/[0-9a-f]*/{MODEL_SET}")


def strays(folder: Path) -> Iterator[Path]:
    """Yield unfinished sets and graphs: of killed writers, or still being written."""
    yield from folder.glob(f"{SETS}/.*")
    yield from (place for place in folder.glob(f"{SETS}/[0-9a-f]*") if not (place / MODEL_SET).exists())
    for graph in folder.glob(f"[0-9a-f]*-*{GRAPH}"):
        if not description_path(folder, graph.stem[:DIGITS]).exists():
            yield from (path for path in (graph, graph.with_suffix(ORIGINAL)) if path.exists())


def digest_of_artifact(main: Path) -> str:
    """The digest of the files of an artifact, by its name."""
    return main.parent.name if main.name == MODEL_SET else main.stem


def files_of(main: Path) -> dict[str, list[Piece]]:
    """The files of a split artifact, by name, as they were before.

    Raises:
        NotSplit: The artifact is damaged.
        FileNotFoundError: A file is missing.
    """
    return files_of_set(main) if main.name == MODEL_SET else files_of_graph(main)


def own_files(main: Path) -> list[Path]:
    """The files of a split artifact apart from its weights."""
    graphs = graphs_of(main)
    originals = [graph.with_suffix(ORIGINAL) for graph in graphs]
    files = [*graphs, *(path for path in originals if path.exists())]
    if main.name == MODEL_SET:
        files += files_in(main.parent).values()
    return files


def graphs_of(main: Path) -> list[Path]:
    """The graphs of a split artifact."""
    return graphs_of_set(main) if main.name == MODEL_SET else [main]


def weights_of(main: Path) -> set[str]:
    """The digests of the weights of a split artifact."""
    return {weight for graph in graphs_of(main) for weight in weights_in(graph)}


def digest_files(main: Path) -> str:
    """Compute the digest of the files of a split artifact, as `digest_folder` does. Reads all weights.

    Raises:
        NotSplit: The artifact is damaged.
        FileNotFoundError: A file is missing.
    """
    weights = _weights_beside(main)
    return digest_of_contents({name: weights.read(pieces) for name, pieces in files_of(main).items()})


def write_files(main: Path, folder: Path) -> None:
    """Write the files of a split artifact, as they were before, into a folder.

    Raises:
        NotSplit: The artifact is damaged.
        FileNotFoundError: A file is missing.
    """
    weights = _weights_beside(main)
    for name, pieces in files_of(main).items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            weights.write(pieces, file)


def sizes_of(main: Path) -> dict[str, int]:
    """The bytes of each file of a split artifact, as they were before, by name."""
    return dict(_sizes(str(main), main.stat().st_mtime_ns))


@lru_cache(maxsize=256)
def _sizes(main: str, modified: int) -> Mapping[str, int]:  # the time tells versions of the file apart
    return {name: total_size(pieces) for name, pieces in files_of(Path(main)).items()}


def remove(main: Path) -> None:
    """Remove a split artifact, but not its weights."""
    if main.name == MODEL_SET:
        remove_set(main)
    else:
        remove_graph(main)


def _weights_beside(main: Path) -> WeightFiles:
    return WeightFiles(main.parents[2] if main.name == MODEL_SET else main.parent)
