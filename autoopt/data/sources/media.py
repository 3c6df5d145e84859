"""Images and WAV files of a folder or a list; labels by sub-folder, by a file of labels, by a column, or none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from autoopt.data.dataset import Array, Choose, DataSet, class_ids, text_array
from autoopt.data.files import IMAGES, SOUNDS, LabelledFiles, find_files
from autoopt.data.fit import InputSpec
from autoopt.data.sources.synthetic import ModelInputs, read_inputs
from autoopt.errors import InputError, one_line
from autoopt.json_codec import read_object
from autoopt.model.roles import Kind, Role, names_with
from autoopt.option_names import option
from autoopt.tuning import KINDS

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


def load_images(  # noqa: PLR0913  one argument for each parameter in dag.yaml
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
    pictures = [_read_image(file, options, path) for file in data.columns["file"]]
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


def _read_image(file: Path, options: ImageOptions, where: str) -> Array:
    try:
        from PIL import Image
    except ImportError as error:
        raise InputError("images need Pillow", where=str(file), remedy="pip install 'autoopt[images]'") from error
    try:
        with Image.open(file, formats=FORMATS) as image:
            return options.pixels_of(image, where)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise InputError(f"not a readable image ({error})", where=str(file)) from error


HIGHEST_RATE: Final = 768_000
"""Hz. Only broken files and typing errors have higher ones, and resampling to one would fill the memory."""


@dataclass(frozen=True)
class WaveformInput:
    """The form in which a model takes a sound."""

    name: str = "audio"
    shape: tuple[int | None, ...] = (1, None)
    """With the batch, if there is one; None is an open size."""
    axis: int = 1
    """The axis of the samples."""

    @property
    def samples(self) -> int | None:
        return self.shape[self.axis]

    @property
    def channels(self) -> int:
        count = 1
        for axis, size in enumerate(self.shape):
            if axis not in (0, self.axis):
                count *= size or 1
        return count

    def of_length(self, samples: int) -> WaveformInput:
        """This form with a fixed number of samples."""
        shape = list(self.shape)
        shape[self.axis] = samples
        return replace(self, shape=tuple(shape))

    def fitted(self, sound: Array) -> Array:
        """An array of samples and channels, cut or padded with zeros to the number of samples, if that is fixed."""
        if self.samples is None:
            return sound
        return np.pad(sound[: self.samples], ((0, max(0, self.samples - len(sound))), (0, 0)))

    def item(self, sound: Array) -> Array:
        """An array of samples, or of samples and channels, as the complete input of one inference."""
        sizes = [size or 1 for size in self.shape]
        sizes[0] = 1
        sizes[self.axis] = len(sound)
        is_last = self.axis == len(sizes) - 1
        return np.ascontiguousarray(sound.T if is_last else sound).reshape(sizes)


def load_sounds(  # noqa: PLR0913  one argument for each parameter in dag.yaml
    path: str,
    *,
    sample_rate: int | None = None,
    samples: int | None = None,
    scale: float = 1.0,
    labels: str | None = None,
    label_col: str | None = None,
    input_cols: Sequence[str] | None = None,
    model: str | None = None,
    roles: Mapping[str, Kind] | None = None,
    choose: Choose | None = None,
) -> DataSet:
    """Load the WAV files of a folder or a list: values from -1 to 1, times `scale`. `find_files` explains the labels.

    Args:
        path: The folder, or a CSV file that lists them.
        sample_rate: Rate in Hz that files of another rate are resampled to; without it they must have one rate.
        samples: Length to cut or pad to; by default that of the model's input, or each file's own if that is open.
        scale: Factor on the values; 32768 for a model that takes 16-bit samples.
        labels: A CSV file of name and label, for a folder.
        label_col: The column with the labels, for a list.
        input_cols: The column with the names of the files, for a list.
        model: The model whose input decides on the channels and the name; without one, mono as `audio`.
        roles: Kinds of its inputs where names and shapes tell the wrong ones.
        choose: Selects the files to read.

    Raises:
        InputError: There are no WAV files, one cannot be read, they do not fit the model, or the model takes no sound.
    """
    if sample_rate is not None and not 0 < sample_rate <= HIGHEST_RATE:
        raise InputError(f"sample_rate must be 1 to {HIGHEST_RATE} Hz, not {sample_rate}", where=path)
    found = find_files(path, SOUNDS, labels=labels, label_col=label_col, input_cols=input_cols)
    data = _files(path, found)
    if choose is not None:
        data = data.take(choose(len(data)))
    inputs = ModelInputs(()) if model is None else read_inputs(model, roles)
    target = WaveformInput() if model is None else _waveform_input(inputs.specs, inputs.roles, path)
    if samples is not None:
        target = target.of_length(samples)
    sounds, rate = _read_all(list(data.columns["file"]), sample_rate, target.channels, path)
    lengths = list(map(len, sounds))
    sounds = list(map(target.fitted, sounds))
    items = [target.item(sound * np.float32(scale)) for sound in sounds]
    reading = _reading(target, lengths, rate, is_resampled=sample_rate is not None)
    reading = "; ".join(filter(None, [found.reading, reading]))
    data = _with_items(replace(data, columns={}, reading=reading), target, items)
    told = {"sample rate": rate, "length": list(map(len, sounds))}
    columns = dict(data.columns)
    for spec in inputs.specs:
        kind = inputs.roles[spec.name].kind
        if kind in told:
            columns[spec.name] = np.array(told[kind], spec.dtype)
    return replace(data, columns=columns)


def _files(path: str, found: LabelledFiles) -> DataSet:
    """WAV files as a column `file`, with their labels."""
    if not found.files:
        raise InputError("holds no WAV files", where=path, remedy="convert others: ffmpeg -i a.flac a.wav")
    truth = found.classes
    if found.texts is not None:
        is_number = all(text.lstrip("-").isdecimal() for text in found.texts)
        # Names of classes stay text, as transcripts do.
        truth = class_ids(found.texts)[0] if is_number else text_array(found.texts)
    return DataSet({"file": np.array(found.files, object)}, truth, name=path, classes=found.names)


def _waveform_input(specs: Sequence[InputSpec], roles: Mapping[str, Role], path: str) -> WaveformInput:
    """The input of a model that takes the sounds: the one that looks like a waveform, or the only one that can."""
    states = names_with("state", roles)
    if states:
        message = f"the model takes a sound piece by piece, with its state in {one_line(states[0])!r}"
        raise InputError(
            message, where=path, remedy="give the pieces as arrays in an .npz file, and state: in the data"
        )
    axes = {name: role.axes[0] for name, role in roles.items() if role.kind == "sound"} or _long_axes(specs)
    if len(axes) != 1:
        shapes = ", ".join(f"{one_line(spec.name)} {_shape_text(spec)}" for spec in specs)
        raise InputError(
            f"holds WAV files, but {len(axes) or 'no'} inputs of the model look like a waveform ({shapes})",
            where=path,
            remedy="compute what it takes, such as a spectrum, and give an .npz file or a load_dataset of your own",
        )
    ((name, axis),) = axes.items()
    (spec,) = [spec for spec in specs if spec.name == name]
    return WaveformInput(name, spec.fixed_sizes, axis)


def _long_axes(specs: Sequence[InputSpec]) -> dict[str, int]:
    """The inputs that can be a sound by their shapes alone, and the axis of its samples."""
    axes = {}
    for spec in specs:
        axis = _long_axis(spec)
        if axis is not None:
            axes[spec.name] = axis
    return axes


def _long_axis(spec: InputSpec) -> int | None:
    """The last axis of floats if all others are batch and channels and it is open or long; else None."""
    *others, size = spec.dims or (0,)
    if not spec.is_float or len(others) > 2 or (len(others) == 2 and others[1] != 1):
        return None
    if isinstance(size, int) and size < KINDS.shortest_piece:
        return None
    return len(others)


def _shape_text(spec: InputSpec) -> str:
    return "x".join("?" if size is None else str(size) for size in spec.dims)


def _read_all(files: Sequence[Path], sample_rate: int | None, channels: int, path: str) -> tuple[list[Array], int]:
    """The samples of files with this number of channels, and their rate."""
    sounds, rates = [], []
    for file in files:
        rate, sound = _read_sound(file)
        rates.append(rate)
        sound = _with_channels(sound, channels, file)
        if sample_rate is not None and sample_rate != rate:
            import soxr

            sound = np.asarray(soxr.resample(sound, rate, sample_rate), np.float32)
        sounds.append(sound)
    if sample_rate is not None:
        return sounds, sample_rate
    if len(set(rates)) > 1:
        low, high = min(rates), max(rates)
        remedy = (
            f"add {option('sample_rate', low)} (sample_rate in dag.yaml), or the rate that the model was trained with"
        )
        raise InputError(f"the files have sample rates from {low} to {high} Hz", where=path, remedy=remedy)
    return sounds, rates[0]


def _read_sound(file: Path) -> tuple[int, Array]:
    """The rate of a WAV file, and its samples from -1 to 1: (samples, channels)."""
    try:
        import soundfile
    except ImportError as error:
        raise InputError("sounds need soundfile", where=str(file), remedy="pip install 'autoopt[sounds]'") from error
    try:
        samples, rate = soundfile.read(file, dtype="float32", always_2d=True)
    except (soundfile.SoundFileError, OSError) as error:
        raise InputError(f"not a readable WAV file ({error or type(error).__name__})", where=str(file)) from error
    if samples.size == 0 or not 0 < rate <= HIGHEST_RATE:
        raise InputError(f"not a readable WAV file ({len(samples)} samples at {rate} Hz)", where=str(file))
    return int(rate), samples


def _with_channels(sound: Array, channels: int, file: Path) -> Array:
    """The sound with this number of channels; one is the mean of all."""
    if channels == 1:
        return np.asarray(sound.mean(axis=1, keepdims=True), np.float32)
    if sound.shape[1] != channels:
        raise InputError(f"has {sound.shape[1]} channels, the model takes {channels}", where=str(file))
    return sound


def _with_items(data: DataSet, target: WaveformInput, items: list[Array]) -> DataSet:
    """The data with the items: stacked if they have one shape."""
    if len({item.shape for item in items}) > 1:
        return replace(data, uneven={target.name: items})
    stacked = np.stack(items)
    has_batch = target.axis > 0
    return replace(data, columns={target.name: stacked[:, 0] if has_batch else stacked})


def _reading(target: WaveformInput, lengths: Sequence[int], rate: int, *, is_resampled: bool) -> str:
    """The way the files were read, in words."""
    channels = "mixed to mono" if target.channels == 1 else f"{target.channels} channels"
    shortest, longest = f"{min(lengths) / rate:.3g}", f"{max(lengths) / rate:.3g}"
    seconds = f"{longest} s" if shortest == longest else f"{shortest} to {longest} s"
    if target.samples is None:
        length = f"at their own length of {seconds}"
    else:
        length = f"cut or padded with zeros from {seconds} to {target.samples} samples ({target.samples / rate:.3g} s)"
        if set(lengths) == {target.samples}:
            length = f"{target.samples} samples ({target.samples / rate:.3g} s)"
    remedy = "" if is_resampled else "; if the model expects another rate, give the option sample_rate"
    return f"WAV files at {rate} Hz, {channels}, {length}, as input {one_line(target.name)!r}{remedy}"
