"""Data as users give them: a path or another configuration with options, or models and data in memory.

Those in memory become files named by their content, so that equal ones are one.
"""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, runtime_checkable

from autoopt.data.files import FolderLoader, folder_loader, loader_of_list
from autoopt.errors import InputError
from autoopt.json_codec import to_json, without_nulls
from autoopt.option_names import option
from autoopt.working_folder import replacing

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Json: TypeAlias = dict[str, Any]
Config: TypeAlias = str | Json | None
"""A path, or a data configuration; None without data."""
Preprocess = Literal["imagenet", "unit", "bytes"]
PREPROCESSED: Final[Mapping[Preprocess, Json]] = {
    "imagenet": {"scale": 1 / 255, "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]},
    "unit": {"scale": 1 / 255},
    "bytes": {"scale": 1.0},
}
"""Values of pixels from 0 to 255: torchvision's, 0 to 1, and as they are."""
COLUMN_OPTIONS: Final = {"label": "label_col", "inputs": "input_cols", "ignore": "ignore_cols", "classes": "classes"}
"""Options with the field of a data configuration that says the same."""
IMAGE_OPTIONS: Final = ("image_size", "layout", "grayscale")
TEXTS: Final = (".txt", ".jsonl", ".csv", ".tsv", ".parquet")
"""Suffixes of files that a tokenizer beside the model is for."""


@dataclass(frozen=True)
class Reading:
    """Options that say how to read data; None for those that are not given."""

    label: str | None = None
    """The column or array with the labels; for a folder, a CSV file of name and class."""
    inputs: Sequence[str] | Mapping[str, str] | None = None
    """The columns or arrays that are the input, or the one of each input of the model."""
    ignore: Sequence[str] | None = None
    """Columns or arrays that are left out."""
    classes: Sequence[str] | None = None
    """All labels in the order of the model's outputs."""
    tokenizer: str | None = None
    """A tokenizer.json; by default the one beside the model."""
    length: int | None = None
    """Tokens of a text; by default as many as the model takes, or 128."""
    image_size: Sequence[int] | None = None
    """Height and width in pixels."""
    preprocess: Preprocess | None = None
    grayscale: bool | None = None
    scale: float | None = None
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    layout: Literal["NCHW", "NHWC"] | None = None
    sample_rate: int | None = None

    def config(self, data: object, model: object = None) -> Config:
        """The configuration of a path, or of another configuration, with these options; `data` itself without any.

        `model` is the path of the model, beside which a tokenizer or a `preprocessor_config.json` is looked for.

        Raises:
            InputError: There are no data, or an option is wrong or does not apply to this kind of data.
        """
        given = [field.name for field in fields(self) if getattr(self, field.name) is not None]
        if data is None:
            if given:
                raise InputError(f"needs {option('data')}", where=option(given[0]))
            return None
        config: Json = to_json({COLUMN_OPTIONS[name]: getattr(self, name) for name in given if name in COLUMN_OPTIONS})
        if isinstance(data, Mapping):
            self._refuse([name for name in given if name not in COLUMN_OPTIONS], "", "a path, not to a configuration")
            return {**data, **config}
        path = str(data)
        components = self._components(path, model, config)
        return {"path": path, **config, **components} if config or components else path

    def configs(self, data: object, calibration: object, model: object) -> tuple[Config, Config]:
        """The configurations of the evaluation data and of the calibration data, whose labels nobody reads."""
        other = None if calibration is None else replace(self, classes=None).config(calibration, model)
        return self.config(data, model), other

    def _components(self, path: str, model: object, config: Json) -> Json:
        """The loader or the step with the other options; takes the fields of `config` that the loader takes itself."""
        if Path(path).is_dir():
            labels = without_nulls({"labels": config.pop("label_col", None)})
            return self._loader(path, folder_loader(Path(path)), labels, model)
        columns = list(self.inputs.values()) if isinstance(self.inputs, Mapping) else self.inputs
        loader = loader_of_list(Path(path), columns)
        if loader is not None:
            return self._loader(path, loader, {}, model)
        self._refuse(IMAGE_OPTIONS, path, "images")
        self._refuse(["sample_rate"], path, "WAV files")
        values = self._normalized()
        tokenizer = self.tokenizer
        if tokenizer is None and not values and path.lower().endswith(TEXTS):
            tokenizer = _beside(model, "tokenizer.json")
        if tokenizer is not None:
            params = without_nulls({"tokenizer": tokenizer, "length": self.length})
            return {"pre_process": {"type": "tokenize", "params": params}}
        self._refuse(["length"], path, f"texts with {option('tokenizer')}")
        return {"pre_process": {"type": "normalize", "params": values}} if values else {}

    def _loader(self, path: str, loader: FolderLoader, labels: Json, model: object) -> Json:
        """The loader of a folder or list with its parameters; empty without any."""
        self._refuse(("tokenizer", "length"), path, "texts")
        if loader == "sounds":
            self._refuse((*IMAGE_OPTIONS, "preprocess", "mean", "std"), path, "images, not to WAV files")
            params = {**labels, "scale": self.scale, "sample_rate": self.sample_rate}
        else:
            self._refuse(["sample_rate"], path, "WAV files")
            size = None if self.image_size is None else list(self.image_size)
            params = {**labels, "size": size, **self._values(), "layout": self.layout}
            if self.grayscale:
                params["mode"] = "L"
            if self.scale is None and self.mean is None and self.std is None and self.preprocess is None:
                params["preprocessor"] = _beside(model, "preprocessor_config.json")
        params = without_nulls(params)
        return {"load_dataset": {"type": loader, "params": params}} if params else {}

    def _values(self) -> Json:
        """The scale, mean and standard deviation that are given; numbers take precedence over `preprocess`."""
        mean = None if self.mean is None else list(self.mean)
        std = None if self.std is None else list(self.std)
        numbers = without_nulls({"scale": self.scale, "mean": mean, "std": std})
        if self.preprocess is None:
            return numbers
        if self.preprocess not in PREPROCESSED:
            raise InputError(f"is {', '.join(PREPROCESSED)}, not {self.preprocess!r}", where=option("preprocess"))
        return {**PREPROCESSED[self.preprocess], **numbers}

    def _normalized(self) -> Json:
        """Parameters of `normalize`, which has no scale: both numbers are divided by it instead."""
        values = self._values()
        if not values:
            return {}
        scale = values.get("scale", 1.0)
        if not scale:
            raise InputError("must not be 0", where=option("scale"))
        defaults = {"mean": [0.0], "std": [1.0]}
        return {name: [value / scale for value in values.get(name, default)] for name, default in defaults.items()}

    def _refuse(self, names: Iterable[str], path: str, kind: str) -> None:
        """Refuse options for data that is not of this kind."""
        for name in names:
            if getattr(self, name) is None:
                continue
            if path and "://" not in path and not Path(path).exists():
                raise InputError("no such data file or folder", where=path)
            raise InputError(f"applies to {kind}", where=option(name))


def _beside(model: object, name: str) -> str | None:
    """A file in the folder of a local model, or in the one above, as folders of Hugging Face's models have it."""
    if not isinstance(model, str | Path) or not Path(model).is_file():
        return None
    for folder in Path(model).absolute().parents[:2]:
        if (folder / name).is_file():
            return str(folder / name)
    return None


FOLDER: Final = "inputs"
"""Folder of the home for models and data that came from memory."""


@runtime_checkable
class Serializable(Protocol):
    """A model in memory, such as `onnx.ModelProto`."""

    def SerializeToString(self) -> bytes: ...


Model: TypeAlias = str | Path | Serializable
"""A path, a URL or a model in memory."""


def model_file(model: Model, home: Path) -> str | Path:
    """The path or URL of a model; one in memory is written below `home`.

    Raises:
        InputError: the model cannot be serialised.
    """
    if not isinstance(model, Serializable):
        return model
    try:
        content = model.SerializeToString()
    except Exception as error:  # protobuf's own types; models above 2 GB cannot be serialised
        remedy = "save it with onnx.save_model(..., save_as_external_data=True) and name the file"
        raise InputError(f"cannot serialise the model ({error})", where="model", remedy=remedy) from None
    graph = getattr(model, "graph", None)
    name = re.sub(r"[^\w.-]+", "_", str(getattr(graph, "name", "")))[:60].strip("._") or "model"
    return write_once(content, home, f"{name}.onnx")


def write_once(content: bytes, home: Path, name: str) -> Path:
    """Write a file into a folder named by its content, unless it is there; return its path."""
    file = home.absolute() / FOLDER / hashlib.sha256(content).hexdigest()[:16] / name
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        with replacing(file) as new:
            new.write_bytes(content)
    return file


@runtime_checkable
class DataFrame(Protocol):
    """A table in memory, such as `pandas.DataFrame`."""

    def to_csv(self, *, index: bool) -> str: ...


Data: TypeAlias = "str | Path | Mapping[str, object] | Mapping[str, ArrayLike] | DataFrame"
"""A path, a data configuration, arrays by the name of the model's input or `labels`, or a table."""


def data_file(data: Data, home: Path) -> object:
    """The path or the configuration of data; those in memory are written below `home`.

    Raises:
        InputError: an array holds Python objects, or the data are something else.
    """
    if isinstance(data, DataFrame):
        return write_once(data.to_csv(index=False).encode(), home, "data.csv")
    if isinstance(data, Mapping) and data and all(map(_is_array, data.values())):
        # Equal arrays give equal bytes: entries without a time of writing.
        import numpy as np

        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for name, value in data.items():
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as stream:
                    try:
                        np.lib.format.write_array(stream, np.asarray(value), allow_pickle=False)
                    except ValueError as error:
                        raise InputError(f"array {name!r}: {error}", where="data") from None
        return write_once(buffer.getvalue(), home, "data.npz")
    if not isinstance(data, str | Path | Mapping):
        reason = f"must be a path, a mapping of arrays or a data frame, not {type(data).__name__}"
        raise InputError(reason, where="data")
    return data


def _is_array(value: object) -> bool:
    """True for an array or a list; a configuration has other values too."""
    return hasattr(value, "__array__") or isinstance(value, list | tuple)
