"""Folders of images or sounds, distinguished by the suffixes of their files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Final, Literal, TypeAlias

FolderLoader: TypeAlias = Literal["images", "sounds"]
IMAGES: Final = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")
SOUNDS: Final = (".wav",)


def folder_loader(path: Path) -> FolderLoader:
    """The loader for the first image or sound below a folder; the loader of images if there is neither."""
    for file in path.rglob("*"):
        loader = loader_of_suffix(file.name)
        if loader is not None:
            return loader
    return "images"


def loader_of_suffix(name: str) -> FolderLoader | None:
    """The loader for a file with this name; None if it is neither an image nor a sound."""
    suffix = PurePath(name).suffix.lower()
    if suffix in SOUNDS:
        return "sounds"
    return "images" if suffix in IMAGES else None


def files_below(root: Path, suffixes: Sequence[str]) -> list[Path]:
    """The files below a folder that have one of the suffixes, sorted by path."""
    return sorted(file for file in root.rglob("*") if file.suffix.lower() in suffixes and file.is_file())
