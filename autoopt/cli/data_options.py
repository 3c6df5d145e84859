"""Options that name data, and say how to read that of `--data` and `--calibration`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal

import typer

from autoopt.errors import InputError
from autoopt.json_codec import without_nulls

if TYPE_CHECKING:
    from autoopt.data.reading import Reading
    from autoopt.problem.run_request import RunRequest

Layout = Literal["NCHW", "NHWC"]
DATA: Final = "Data"
INPUTS_REMEDY: Final = "write --inputs input_ids=ids,attention_mask=mask"
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
    hidden: ClassVar = (
        *("label", "ignore", "length", "grayscale", "preprocess", "scale", "mean", "std", "layout", "sample_rate"),
    )
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
        typer.Option(
            metavar="A,B,...",
            help="Columns or arrays of --data that are the input [default: all others], or the one of each input of "
            "the model: input_ids=ids,attention_mask=mask.",
        ),
    ] = None
    ignore: Annotated[
        str | None,
        typer.Option(metavar="A,B,...", help="Columns or arrays to leave out [default: one that numbers the rows]."),
    ] = None
    tokenizer: Annotated[
        str | None,
        typer.Option(
            metavar="PATH", help="A tokenizer.json that turns texts into tokens [default: the one beside the model]."
        ),
    ] = None
    length: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Cut or pad texts to this number of tokens [default: the model's, or 128]."
        ),
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
    preprocess: Annotated[
        Literal["imagenet", "unit", "bytes"] | None,
        typer.Option(
            help="Values of pixels: with ImageNet's mean and standard deviation, 0..1, or 0..255 [default: as in "
            "preprocessor_config.json beside the model, or unit]."
        ),
    ] = None
    scale: Annotated[
        float | None,
        typer.Option(metavar="X", help="Factor for the values of images (of 0..255), WAV files (-1..1) or arrays."),
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

    def reading(self) -> Reading:
        """The options as the engine takes them.

        Raises:
            InputError: An option is malformed.
        """
        # Imported only now, because --help does not need it.
        from autoopt.data.reading import Reading

        parsed = {
            "inputs": _inputs(self.inputs),
            "ignore": _names(self.ignore),
            "classes": _names(self.classes),
            "image_size": _size(self.image_size),
            "grayscale": self.grayscale or None,
            "mean": _numbers("--mean", self.mean),
            "std": _numbers("--std", self.std),
        }
        return Reading(**{**vars(self), **parsed})


def _inputs(text: str | None) -> list[str] | dict[str, str] | None:
    """Names of columns, or the column of each of the model's inputs: `A,B` or `x=A,y=B`."""
    names = _names(text)
    if names is None or not any("=" in name for name in names):
        return names
    pairs = {}
    for name in names:
        given, equals, column = map(str.strip, name.partition("="))
        if not (given and equals and column) or given in pairs:
            raise InputError(f"{name!r} is no pair of a new input and a column", where="--inputs", remedy=INPUTS_REMEDY)
        pairs[given] = column
    return pairs


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",")]


def _size(text: str | None) -> list[int] | None:
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
    return sides


def _numbers(option: str, text: str | None) -> list[float] | None:
    """The numbers of an option; None if it is not given."""
    if text is None:
        return None
    try:
        return list(map(float, text.split(",")))
    except ValueError:
        remedy = "write one number, or one for each channel: 0.485,0.456,0.406"
        raise InputError(f"must be numbers, not {text!r}", where=option, remedy=remedy) from None


def request_of(
    models: Sequence[str], reading: DataOptions, data: str | None, calibration: str | None, model: str | None = None
) -> RunRequest:
    """The request for a run of a DAG or of these models, with data that are read with the options `reading`.

    Raises:
        InputError: there are no such models, or an option is malformed or does not apply.
    """
    from autoopt.problem.load import read_models
    from autoopt.problem.run_request import RunRequest
    from autoopt.settings import settings
    from autoopt.spec.proposal_options import names_model

    (first, parts), given = read_models(models, settings().home), reading.reading()
    if data is None and calibration is None and names_model(first):
        measurement = without_nulls({"image_size": given.image_size})  # of generated images
        evaluation = replace(given, image_size=None).config(None)
        return RunRequest(first, model=model, parts=parts, data=evaluation, measurement=measurement)
    evaluation, other = given.configs(data, calibration, model or first)
    return RunRequest(first, model=model, parts=parts, data=evaluation, calibration=other)
