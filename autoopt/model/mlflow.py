"""Models packaged by MLflow: finds the file that holds the model. Unpickles nothing and does not need MLflow."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from autoopt.errors import InputError, one_line
from autoopt.outcome import Outcome

MLMODEL: Final = "MLmodel"
LARGEST: Final = 1 << 20
"""Bytes of an MLmodel file; real ones have a few thousand."""


class NotPackaged(InputError):
    """The folder holds no model that can be taken from it safely."""

    outcome = Outcome.REFUSED


def is_packaged(path: Path) -> bool:
    """True if `path` is a folder in MLflow's format."""
    return (path / MLMODEL).is_file()


def packaged_model(folder: Path) -> Path:
    """Find the model's file: the onnx flavour's, else the exported program (`.pt2`) of the pytorch flavour.

    Raises:
        NotPackaged: there is neither, or the model is pickled; the message says how to save it instead.
    """
    flavors = _flavors(folder)
    if "onnx" in flavors:
        return _inside(folder, str(flavors["onnx"].get("data", "model.onnx")))
    if "pytorch" not in flavors:
        names = ", ".join(sorted(flavors)) or "none"
        reason = f"an MLflow model of another flavour ({names})"
        raise NotPackaged(reason, where=str(folder), remedy="save it with mlflow.onnx.save_model")
    data = str(flavors["pytorch"].get("model_data", "data"))
    if not (folder / data / "model.pt2").is_file():
        remedy = "save it again: mlflow.pytorch.save_model(..., serialization_format='pt2'), or mlflow.onnx.save_model"
        raise NotPackaged("its PyTorch model is pickled, which is unsafe to load", where=str(folder), remedy=remedy)
    return _inside(folder, f"{data}/model.pt2")


def _flavors(folder: Path) -> dict[str, dict[str, object]]:
    from ruamel.yaml import YAML

    file = folder / MLMODEL
    if file.stat().st_size > LARGEST:
        raise NotPackaged(f"more than {LARGEST} bytes", where=str(file))
    try:
        flavors = YAML(typ="safe", pure=True).load(file.read_text(encoding="utf-8"))["flavors"]
        return {str(name): dict(flavor or {}) for name, flavor in flavors.items()}
    except Exception as error:  # a parser may raise anything on foreign text
        raise NotPackaged(one_line(f"not an MLmodel file of MLflow ({error})"), where=str(file)) from error


def _inside(folder: Path, name: str) -> Path:
    """Return the file `name` of the folder; links out of it are not followed."""
    file = folder / name
    if not file.is_file() or not file.resolve().is_relative_to(folder.resolve()):
        raise NotPackaged(f"its MLmodel file names {name!r}, which is not in it", where=str(folder))
    return file
