"""The parts of a model set: several models that belong together, by name."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Final

from autoopt.errors import InputError
from autoopt.spec.reader import EXPORT_COMMAND
from autoopt.spec.source import FieldError
from autoopt.spec.strict_model import check_name

MERGED: Final = "decoder_model_merged"
IN_MERGED: Final = ("decoder_model", "decoder_with_past_model")
"""Models of a folder whose work `MERGED` does too."""
VARIANT: Final = re.compile(r"_(fp16|quantized|u?int8|q4f16|q4|q8|bnb4|optimized|O[1-4]|qu?int8_.+)$")
"""End of the name of a model that was made from another one of the folder."""


def check_parts(names: Collection[str]) -> None:
    """Check the names of the parts of a set.

    Raises:
        FieldError: there is only one, or a name cannot stand before the dot of `part.input`.
    """
    if len(names) < 2:
        raise FieldError("names one model", remedy="give its path alone, or a second model")
    for name in names:
        check_name(name)
        if "." in name:
            raise FieldError(f"{name!r} has a dot", place=(name,), remedy="use letters, digits, '_', '-'")


def is_part(argument: str) -> bool:
    """True for `NAME=MODEL`, false for a path or URL with a `=` further on."""
    name, equals, path = argument.partition("=")
    return bool(name and equals and path) and not {"/", ":"}.intersection(name)


def parse_parts(arguments: Iterable[str]) -> dict[str, str]:
    """Read `encoder=a.onnx decoder=b.onnx`.

    Raises:
        InputError: an argument is not `NAME=PATH`, or a name is not valid or given twice.
    """
    parts: dict[str, str] = {}
    for number, argument in enumerate(arguments, 1):
        name, _, path = argument.partition("=")
        # The address of a model may hold a secret, so errors do not repeat it.
        if not is_part(argument):
            raise InputError("is not NAME=MODEL, as each of several models must be", where=f"model {number}")
        if name in parts:
            raise InputError(f"two models are named {name!r}", remedy="give each a name of its own")
        parts[name] = path
    try:
        check_parts(parts)
    except FieldError as error:
        raise InputError(error.reason, where=", ".join(parts), remedy=error.remedy) from None
    return parts


def parse_models(arguments: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Read the DAG or the model that a command names, or several models: `NAME=MODEL` each, or a folder.

    Returns:
        The DAG or the first model, and the models by name if there are several.

    Raises:
        InputError: several arguments are not all `NAME=MODEL`, or a folder has no model.
    """
    if len(arguments) > 1 or (is_part(arguments[0]) and not Path(arguments[0]).exists()):
        parts = parse_parts(arguments)
    elif Path(arguments[0]).is_dir():
        parts = models_in(Path(arguments[0]))
    else:
        return arguments[0], {}
    return next(iter(parts.values())), parts if len(parts) > 1 else {}


def models_in(folder: Path) -> dict[str, str]:
    """Find the models of a folder as exporters write it, by name.

    They are in the folder or in its folder `onnx`, or each in a folder of its name, as autoopt writes them. Optimum
    exports some decoders twice: merged, which is taken, and as one for prompts and one for further tokens. Hubs have
    models in several precisions; the plain one is taken.

    Raises:
        InputError: there is no model.
    """
    files = _files_in(folder)
    if not files:
        remedy = ""
        if any(folder.glob("*.safetensors")):
            remedy = f"export it to ONNX first: {EXPORT_COMMAND}"
        raise InputError("no .onnx file in this folder or its folder onnx", where=str(folder), remedy=remedy)
    models = {name: str(file) for name, file in files.items() if not _is_repeated(name, files)}
    if len(models) == 1:
        return models
    # `decoder_model_merged` is `decoder`, `decoder_with_past_model` is `decoder_with_past`.
    return {
        name.removesuffix("_merged").removesuffix("_model").replace(".", "_"): path for name, path in models.items()
    }


def _files_in(folder: Path) -> dict[str, Path]:
    """The files of models by name, those that repeat others included."""
    for pattern in ("*.onnx", "onnx/*.onnx"):
        files = sorted(folder.glob(pattern))
        if files:
            return {file.stem: file for file in files}
    files = sorted(folder.glob("*/model.onnx"))
    folders = list(filter(Path.is_dir, folder.iterdir()))
    if not files and len(folders) == 1:
        return _files_in(folders[0])  # archives often hold one folder with everything
    return {file.parent.name: file for file in files}


def _is_repeated(name: str, names: Collection[str]) -> bool:
    """True if another model of the folder does the same."""
    if name in IN_MERGED and MERGED in names:
        return True
    base = VARIANT.sub("", name)
    return base != name and base in names
