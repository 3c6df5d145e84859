"""A folder of images: class by sub-folder, or by a file of labels, or none. Needs Pillow."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autoopt.data.dataset import Array, Choose, DataSet
from autoopt.errors import InputError

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")


def load(
    path: str,
    size: Sequence[int] | None = None,
    mode: str = "RGB",
    layout: str = "NCHW",
    scale: float = 1 / 255,
    mean: float | Sequence[float] = 0.0,
    std: float | Sequence[float] = 1.0,
    labels: str | None = None,
    choose: Choose | None = None,
) -> DataSet:
    """Images below a folder, in the order of their paths, as float32 `(value * scale - mean) / std`.

    `size` is (height, width), to which all are resized; without it all must have one size. `layout` is NCHW or NHWC,
    `mode` as Pillow names it (`L`: grey, no channels but one). `labels` is a CSV file of name and class; without it
    the sub-folders' names, sorted, are the classes. `choose` says which images are read.

    Raises:
        InputError: Pillow is missing, no images, an image that cannot be read, or one without a label.
    """
    root = Path(path)
    files = sorted(f for f in root.rglob("*") if f.suffix.lower() in SUFFIXES)
    if not files:
        raise InputError(f"holds no images ({', '.join(SUFFIXES)})", where=path)
    truth = _labels(root, files, labels)
    if choose is not None:
        numbers = choose(len(files))
        files, truth = [files[i] for i in numbers], None if truth is None else truth[numbers]
    images = to_array((_read(file, size, mode, path) for file in files), path, layout, scale, mean, std)
    return DataSet({"image": images}, truth, name=path)


def to_array(
    pictures: Iterable[Array],
    where: str,
    layout: str = "NCHW",
    scale: float = 1 / 255,
    mean: float | Sequence[float] = 0.0,
    std: float | Sequence[float] = 1.0,
) -> Array:
    """Pictures of shape (height, width, channels) as one float32 array; parameters as for `load`.

    Raises:
        InputError: pictures of several sizes, or parameters that do not fit them.
    """
    if layout not in ("NCHW", "NHWC"):
        raise InputError(f"layout must be NCHW or NHWC, not {layout!r}", where=where)
    pixels = list(pictures)
    if len({p.shape for p in pixels}) > 1:
        raise InputError("the images differ in size", where=where, remedy="give size: [height, width]")
    images: Array = np.stack(pixels).astype(np.float32) * np.float32(scale)
    for name, value in (("mean", mean), ("std", std)):
        if np.size(value) not in (1, images.shape[-1]):
            raise InputError(f"{name} has {np.size(value)} numbers for {images.shape[-1]} channels", where=where)
    images = (images - np.asarray(mean, np.float32)) / np.asarray(std, np.float32)
    if layout == "NCHW":
        images = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    return images.astype(np.float32)


def _read(file: Path, size: Sequence[int] | None, mode: str, where: str) -> Array:
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise InputError("images need Pillow", where=str(file), remedy="pip install 'autoopt[data]'") from error
    try:
        with Image.open(file) as image:
            return pixels_of(image, where, size, mode)
    except (UnidentifiedImageError, OSError, ValueError) as error:
        raise InputError(f"not a readable image ({error})", where=str(file)) from error


def pixels_of(image: Any, where: str, size: Sequence[int] | None = None, mode: str = "RGB") -> Array:
    """A Pillow image as (height, width, channels); parameters as for `load`.

    Raises:
        InputError: a size that is none.
    """
    if size is not None and (not isinstance(size, list | tuple) or len(size) != 2):
        raise InputError(f"size must be [height, width], not {size!r}", where=where)
    converted = image.convert(mode)
    if size is not None:
        converted = converted.resize((int(size[1]), int(size[0])))
    array = np.asarray(converted)
    return array[..., np.newaxis] if array.ndim == 2 else array


def _labels(root: Path, files: Sequence[Path], labels: str | None) -> Array | None:
    if labels is None:
        folders = [file.parent.relative_to(root).as_posix() for file in files]
        names = sorted(set(folders))
        return np.array([names.index(f) for f in folders], np.int64) if len(names) > 1 else None
    with open(labels, newline="", encoding="utf-8") as stream:
        known = {row[0]: row[1] for row in csv.reader(stream) if len(row) >= 2}
    found: list[str] = []
    for file in files:
        name = file.relative_to(root).as_posix()
        if name not in known:
            raise InputError(f"no label for {name}", where=labels)
        found.append(known[name])
    if all(text.lstrip("-").isdecimal() for text in found):
        return np.array([int(text) for text in found], np.int64)
    names = sorted(set(found))
    return np.array([names.index(text) for text in found], np.int64)
