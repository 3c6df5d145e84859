"""An estimate of the memory that a pass needs, so that a model that is too large is refused before hours of work."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from autoopt.memory import free_memory, return_unused
from autoopt.model.split import is_split, sizes_of
from autoopt.passes.base import Pass, Refused
from autoopt.passes.execution.current_model import KEPT_FILES, CurrentModel
from autoopt.passes.onnx_tools.graphs import EXTERNAL_DATA_BYTES
from autoopt.passes.request import TOO_LARGE
from autoopt.registry import form_of

ESTIMATED_BYTES: Final = 128 << 20
"""Memory is estimated for models of more bytes."""
WHOLE_FACTOR: Final = 5.5
"""Memory that a pass with all weights and the check of its result take, as a multiple of the model's bytes: 5.0 with
2.4 GB, 1 of them where libraries get the model as bytes."""
LAZY_FACTOR: Final = 2.5
"""The same where the weights stay in their files: 1.1 to 2.0 in transformers of 0.5 to 4.4 GB."""
LIBRARIES: Final = 200 << 20
"""Bytes for the libraries that passes import late."""


def refuse_too_large(pass_: Pass, model: CurrentModel) -> None:
    """Compare what a pass will need for a model with what this process may still allocate.

    Raises:
        Refused: it needs more.
    """
    form = form_of(type(pass_))
    if form in ("source", "options"):
        return
    size = _size_of(model.path)
    if size <= ESTIMATED_BYTES:
        return
    return_unused()
    room = free_memory()
    if room is None:
        return
    if model.loaded is not None:
        room += size
    may_stay = form != "proto" and not model.is_small
    in_files = size > EXTERNAL_DATA_BYTES or form == "ir"
    needed = int(size * (LAZY_FACTOR if may_stay and in_files else WHOLE_FACTOR)) + LIBRARIES
    if needed > room:
        raise Refused(
            f"{TOO_LARGE}: a model of {_gigabytes(size)} needs about {_gigabytes(needed)}, and {_gigabytes(room)} are "
            "free; raise limits.memory, leave the pass out, or use a machine with more memory"
        )


def _size_of(model: Path) -> int:
    """Bytes of a model and its external data."""
    if is_split(model):
        return sum(sizes_of(model).values())
    files = [file for file in model.parent.iterdir() if file.is_file()]
    if len(files) > KEPT_FILES:  # not the folder of an artifact
        files = [model]
    return sum(file.stat().st_size for file in files)


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB"
