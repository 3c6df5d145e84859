"""Images of a folder or a list: classes by sub-folder, by a file of labels, by a column, or none. Needs Pillow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from autoopt.data.csv_files import IMAGES
from autoopt.data.dataset import Array, Choose, DataSet, class_ids
from autoopt.data.sources.file_labels import find_files
from autoopt.errors import InputError
from autoopt.json_codec import read_object

if TYPE_CHECKING:
    from PIL.Image import Image

Values: TypeAlias = float | Sequence[float]
"""One number for all channels, or one per channel."""
FORMATS: Final = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF")
"""Formats by Pillow's names. It goes by the content of a file, and for others it may start programs (Ghostscript)."""


@dataclass(frozen=True)
class ImageOptions:
    """The way from images to a model's input: `(value * scale - mean) / std` as float32."""

    size: Sequence[int] | None = None
    """(height, width) that all images are resized to; without it they must have one size."""
    mode: str = "RGB"
    """The mode as Pillow names it, such as `L` for grey with one channel."""
    layout: str = "NCHW"
    """NCHW or NHWC."""
    scale: float = 1 / 255
    mean: Values = 0.0
    std: Values = 1.0

    def pixels_of(self, image: Image, where: str) -> Array:
        """A Pillow image as (height, width, channels).

        Raises:
            InputError: The size is not a pair.
        """
        if self.size is not None and (not isinstance(self.size, list | tuple) or len(self.size) != 2):
            raise InputError(f"size must be [height, width], not {self.size!r}", where=where)
        converted = image.convert(self.mode)
        if self.size is not None:
            height, width = self.size
            converted = converted.resize((int(width), int(height)))
        array = np.asarray(converted)
        return array[..., np.newaxis] if array.ndim == 2 else array

    def stack(self, pictures: list[Array], where: str) -> Array:
        """Stack pictures of shape (height, width, channels) to one array.

        Raises:
            InputError: Pictures of several sizes, or options that do not fit them.
        """
        if self.layout not in ("NCHW", "NHWC"):
            raise InputError(f"layout must be NCHW or NHWC, not {self.layout!r}", where=where)
        if len({picture.shape for picture in pictures}) > 1:
            raise InputError("the images differ in size", where=where, remedy="give size: [height, width]")
        images: Array = np.stack(pictures).astype(np.float32) * np.float32(self.scale)
        channels = images.shape[-1]
        for name, values in (("mean", self.mean), ("std", self.std)):
            if np.size(values) not in (1, channels):
                raise InputError(f"{name} has {np.size(values)} numbers for {channels} channels", where=where)
        images = (images - np.asarray(self.mean, np.float32)) / np.asarray(self.std, np.float32)
        if self.layout == "NCHW":
            images = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
        return images.astype(np.float32)


def load(  # noqa: PLR0913  one argument for each parameter in dag.yaml
    path: str,
    *,
    size: Sequence[int] | None = None,
    mode: str = "RGB",
    layout: str = "NCHW",
    scale: float = 1 / 255,
    mean: Values = 0.0,
    std: Values = 1.0,
    preprocessor: str | None = None,
    labels: str | None = None,
    label_col: str | None = None,
    input_cols: Sequence[str] | None = None,
    choose: Choose | None = None,
) -> DataSet:
    """Load images; `ImageOptions` explains size to std, `find_files` the path and its labels.

    A `preprocessor` file (`preprocessor_config.json`) of Hugging Face says scale, mean, std and, by default, the size.

    Raises:
        InputError: Pillow is missing, there are no images, an image cannot be read or has no label.
    """
    found = find_files(path, IMAGES, labels=labels, label_col=label_col, input_cols=input_cols)
    if not found.files:
        remedy = "name a folder with such files, or convert them"
        raise InputError(f"holds no images ({', '.join(IMAGES)}) and no sounds (.wav)", where=path, remedy=remedy)
    truth, names = found.classes, found.names
    if found.texts is not None:
        truth, names = class_ids(found.texts)
    data = DataSet({"file": np.array(found.files, object)}, truth, name=path, reading=found.reading, classes=names)
    if choose is not None:
        data = data.take(choose(len(data)))
    options = ImageOptions(size, mode, layout, scale, mean, std)
    if preprocessor is not None:
        options = _as_stated(preprocessor, options)
        reading = f"size and values of images as {Path(preprocessor).name} says"
        data = replace(data, reading="; ".join(filter(None, [data.reading, reading])))
    pictures = [_read(file, options, path) for file in data.columns["file"]]
    return replace(data, columns={"image": options.stack(pictures, path)})


def _as_stated(file: str, options: ImageOptions) -> ImageOptions:
    """The options with the values, and the size unless there is one, of a `preprocessor_config.json`.

    Raises:
        InputError: The file is not readable as such.
    """
    stated = read_object(Path(file))
    crop = stated.get("crop_size") if stated.get("do_center_crop", True) else None
    size = options.size or _sides(crop) or _sides(stated.get("size"))
    mean, std = stated.get("image_mean", 0.0), stated.get("image_std", 1.0)
    if not stated.get("do_normalize", True):
        mean, std = 0.0, 1.0
    scale = stated.get("rescale_factor", 1 / 255) if stated.get("do_rescale", True) else 1.0
    try:
        values = [list(map(float, np.ravel(value))) for value in (mean, std)]
        return replace(options, size=size, scale=float(scale), mean=values[0], std=values[1])
    except (TypeError, ValueError) as error:
        raise InputError(f"not a preprocessor configuration ({error})", where=file) from error


def _sides(size: object) -> list[int] | None:
    """Height and width of a size in such a file; None if only one side of it is fixed."""
    if isinstance(size, int):
        return [size, size]
    if not isinstance(size, dict):
        return None
    height, width = size.get("height"), size.get("width")
    if not isinstance(height, int) or not isinstance(width, int):
        return None
    return [height, width]


def _read(file: Path, options: ImageOptions, where: str) -> Array:
    try:
        from PIL import Image
    except ImportError as error:
        raise InputError("images need Pillow", where=str(file), remedy="pip install 'autoopt[images]'") from error
    try:
        with Image.open(file, formats=FORMATS) as image:
            return options.pixels_of(image, where)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise InputError(f"not a readable image ({error})", where=str(file)) from error
