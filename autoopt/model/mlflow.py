"""Models that MLflow packaged: which file of the folder holds the model. Nothing is unpickled, MLflow is not needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from autoopt.errors import InputError, one_line
from autoopt.outcome import Outcome

MLMODEL: Final = "MLmodel"
LARGEST: Final = 1 << 20
"""Bytes of an MLmodel file; real ones have a few thousand."""


class NotPackaged(InputError):
    """The folder holds no model that can be taken from it safely."""

    outcome = Outcome.REFUSED


def is_packaged(path: Path) -> bool:
    """Whether `path` is a folder as MLflow saves models."""
    return (path / MLMODEL).is_file()


def packaged_model(folder: Path) -> Path:
    """The model's file in a folder of MLflow: that of the onnx flavour, else the exported program (`.pt2`) of the
    pytorch flavour.

    Raises:
        NotPackaged: neither is there, or the model is pickled; the text says how to save it instead.
    """
    flavors = _flavors(folder)
    if "onnx" in flavors:
        return _inside(folder, str(flavors["onnx"].get("data", "model.onnx")))
    if "pytorch" not in flavors:
        known = ", ".join(sorted(flavors)) or "none"
        reason = f"an MLflow model of another flavour ({known})"
        raise NotPackaged(reason, where=str(folder), remedy="save it with mlflow.onnx.save_model")
    data = str(flavors["pytorch"].get("model_data", "data"))
    program = folder / data / "model.pt2"
    if not program.is_file():
        remedy = "save it again: mlflow.pytorch.save_model(..., serialization_format='pt2'), or mlflow.onnx.save_model"
        raise NotPackaged("its PyTorch model is pickled, and never unpickled here", where=str(folder), remedy=remedy)
    return _inside(folder, f"{data}/model.pt2")


def _flavors(folder: Path) -> dict[str, dict[str, Any]]:
    from ruamel.yaml import YAML

    file = folder / MLMODEL
    try:
        if file.stat().st_size > LARGEST:
            raise NotPackaged(f"more than {LARGEST} bytes", where=str(file))
        found = YAML(typ="safe", pure=True).load(file.read_text(encoding="utf-8"))["flavors"]
        return {str(name): dict(flavor or {}) for name, flavor in found.items()}
    except NotPackaged:
        raise
    except Exception as error:  # of a parser on any text
        raise NotPackaged(one_line(f"no MLmodel file of MLflow ({error})"), where=str(file)) from error


def _inside(folder: Path, name: str) -> Path:
    """The file `name` of the folder; links out of it are not followed."""
    file = folder / name
    if not file.is_file() or not file.resolve().is_relative_to(folder.resolve()):
        raise NotPackaged(f"its MLmodel file names {name!r}, which is not in it", where=str(folder))
    return file
