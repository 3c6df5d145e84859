"""Options that name data, and say how to read that of `--data` and `--calibration`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal, TypeAlias

import typer

from autoopt.errors import InputError
from autoopt.json_codec import without_nulls

if TYPE_CHECKING:
    from autoopt.data.folder import FolderLoader
    from autoopt.json_codec import JsonValue

    Config: TypeAlias = str | dict[str, JsonValue] | None
    """A path, or a data configuration; None without data."""

Layout = Literal["NCHW", "NHWC"]
DATA: Final = "Data"
IMAGE_OPTIONS: Final = ("image_size", "layout", "grayscale")
Data = Annotated[
    str | None,
    typer.Option(
        metavar="PATH",
        help="Evaluation data (.npz, .csv, folder of images or WAV files, ...); labels optional. 'autoopt data --help' "
        "lists more options.",
        rich_help_panel=DATA,
    ),
]
Calibration = Annotated[
    str | None,
    typer.Option(metavar="PATH", help="Calibration data [default: the evaluation data].", rich_help_panel=DATA),
]
DataRoot = Annotated[
    str | None,
    typer.Option(
        metavar="PATH",
        help="Folder or URL that relative data paths start from [default: AUTOOPT_DATA_ROOT].",
        rich_help_panel=DATA,
    ),
]


@dataclass(frozen=True)
class DataOptions:
    """Options that say how to read data; None for those that are not given."""

    panel: ClassVar = DATA
    hidden: ClassVar = ("label", "grayscale", "scale", "mean", "std", "layout", "sample_rate")
    """Only `autoopt data --help` lists them."""

    label: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Column or array of --data with the labels [default: label, target, y, ...]; for a folder of images "
            "or WAV files, a CSV file of name and class [default: the sub-folders].",
        ),
    ] = None
    inputs: Annotated[
        str | None,
        typer.Option(metavar="A,B,...", help="Columns or arrays of --data that are the input [default: all others]."),
    ] = None
    classes: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...", help="All labels in the order of the model's outputs [default: names in sorted order]."
        ),
    ] = None
    image_size: Annotated[
        str | None,
        typer.Option(
            metavar="HxW",
            help="Resize images to this height and width, such as 224x224; without data, the size of generated images.",
        ),
    ] = None
    grayscale: Annotated[
        bool | None, typer.Option("--grayscale", help="Read images with one channel instead of three.")
    ] = None
    scale: Annotated[
        float | None,
        typer.Option(help="Factor for the values of images [default: 1/255, to 0..1], WAV files (-1..1) or arrays."),
    ] = None
    mean: Annotated[
        str | None, typer.Option(metavar="X or R,G,B", help="Subtracted after --scale, for all or for each channel.")
    ] = None
    std: Annotated[
        str | None, typer.Option(metavar="X or R,G,B", help="Divided by after --mean, for all or for each channel.")
    ] = None
    layout: Annotated[Layout | None, typer.Option("--layout", help="Axes of images [default: NCHW].")] = None
    sample_rate: Annotated[
        int | None, typer.Option(metavar="HZ", min=1, help="Resample WAV files to this rate [default: as they are].")
    ] = None

    def apply(self, path: str | None) -> Config:
        """The data configuration of a path with these options; the path itself without any.

        Raises:
            InputError: There is no path, or an option is malformed or does not apply to this kind of data.
        """
        options = [field.name for field in fields(self) if getattr(self, field.name) is not None]
        if not options:
            return path
        from autoopt.data.csv_files import loader_of_list
        from autoopt.data.folder import folder_loader

        if path is None:
            raise InputError("needs --data", where=f"--{options[0].replace('_', '-')}")
        config: dict[str, JsonValue] = {"path": path}
        columns = _names(self.inputs)
        if columns is not None:
            config["input_cols"] = [*columns]
        if self.classes is not None:
            config["classes"] = [*(_names(self.classes) or ())]
        folder = Path(path)
        if folder.is_dir():
            labels: dict[str, JsonValue] = without_nulls({"labels": self.label})
            return {**config, **self._files(path, folder_loader(folder), labels)}
        if self.label is not None:
            config["label_col"] = self.label
        loader = loader_of_list(folder, columns)
        if loader is not None:
            return {**config, **self._files(path, loader, {})}
        self._refuse(IMAGE_OPTIONS, path, "images")
        self._refuse(["sample_rate"], path, "WAV files")
        values = self._values()
        if values:
            config["pre_process"] = {"type": "normalize", "params": values}
        return config

    def apply_to_both(self, data: str | None, calibration: str | None) -> tuple[Config, Config]:
        """The configurations of the evaluation data and of the calibration data, if there are any.

        Raises:
            InputError: as for `apply`.
        """
        return self.apply(data), replace(self, classes=None).apply(calibration) if calibration else None

    def generated_size(self) -> dict[str, JsonValue]:
        """The setting of the measurement for the size of generated images; empty without --image-size.

        Raises:
            InputError: The size is malformed.
        """
        return without_nulls({"image_size": _size(self.image_size)})

    def _refuse(self, names: Iterable[str], path: str, kind: str) -> None:
        """Refuse options for data that is not of this kind."""
        for name in names:
            if getattr(self, name) is None:
                continue
            if "://" not in path and not Path(path).exists():
                raise InputError("no such data file or folder", where=path)
            raise InputError(f"applies to {kind}", where=f"--{name.replace('_', '-')}")

    def _files(self, path: str, loader: FolderLoader, labels: dict[str, JsonValue]) -> dict[str, JsonValue]:
        """The loader of a folder or list with its parameters; empty without any.

        Raises:
            InputError: An option is malformed or is for another kind of files.
        """
        if loader == "sounds":
            self._refuse((*IMAGE_OPTIONS, "mean", "std"), path, "images, not to WAV files")
            sounds: dict[str, JsonValue] = {"scale": self.scale, "sample_rate": self.sample_rate}
            params: dict[str, JsonValue] = labels | without_nulls(sounds)
        else:
            self._refuse(["sample_rate"], path, "WAV files")
            params = labels | self._images()
        return {"load_dataset": {"type": loader, "params": params}} if params else {}

    def _images(self) -> dict[str, JsonValue]:
        """Parameters of the loader of images."""
        params: dict[str, JsonValue] = {
            "size": _size(self.image_size),
            "scale": self.scale,
            "mean": _numbers("--mean", self.mean),
            "std": _numbers("--std", self.std),
            "layout": self.layout,
        }
        if self.grayscale:
            params["mode"] = "L"
        return without_nulls(params)

    def _values(self) -> dict[str, JsonValue]:
        """Parameters of `normalize`, which has no scale: both numbers are divided by it instead."""
        if self.scale is None and self.mean is None and self.std is None:
            return {}
        scale = 1.0 if self.scale is None else self.scale
        if not scale:
            raise InputError("must not be 0", where="--scale")
        mean = _numbers("--mean", self.mean) or [0.0]
        std = _numbers("--std", self.std) or [1.0]
        return {"mean": [value / scale for value in mean], "std": [value / scale for value in std]}


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",")]


def _size(text: str | None) -> list[JsonValue] | None:
    """Height and width in pixels; None if the option is not given."""
    if text is None:
        return None
    from autoopt.measure.settings import MOST_PIXELS

    parts = text.lower().split("x")
    if len(parts) == 1:
        parts *= 2
    sides = [int(part) if part.isdecimal() and len(part) <= len(str(MOST_PIXELS)) else 0 for part in parts]
    if len(sides) != 2 or not all(1 <= side <= MOST_PIXELS for side in sides):
        reason = f"must be HEIGHTxWIDTH of at most {MOST_PIXELS} pixels, not {text[:40]!r}"
        raise InputError(reason, where="--image-size", remedy="write 224x224")
    return list(sides)


def _numbers(option: str, text: str | None) -> list[float] | None:
    """The numbers of an option; None if it is not given."""
    if text is None:
        return None
    try:
        return list(map(float, text.split(",")))
    except ValueError:
        remedy = "write one number, or one for each channel: 0.485,0.456,0.406"
        raise InputError(f"must be numbers, not {text!r}", where=option, remedy=remedy) from None
