"""Files and Python mappings as documents."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from autoopt.errors import ConfigError
from autoopt.settings import without_password
from autoopt.spec.document import Builder, Document, Json, check_number, check_text
from autoopt.spec.source import FieldError, Source

MAX_BYTES: Final = 512 * 1024
DATA_SUFFIXES: Final = (".npz", ".npy", ".csv", ".tsv", ".parquet")
EXPORT_COMMAND: Final = "optimum-cli export onnx --model FOLDER --task TASK OUT"
_URL: Final = re.compile(r"([a-z][a-z0-9+.-]+):/+(?!/)", re.IGNORECASE)


def read_document(given: str | Path | Mapping[str, object]) -> Document:
    """Read a YAML or JSON file, or copy a Python mapping.

    Raises:
        ConfigError: the file is missing, too large or malformed; the mapping holds values that JSON does not have.
    """
    if isinstance(given, Mapping):
        build = Builder("<dict>")
        _copy(given, build)
        return Document(build.root, Source("<dict>"))
    if _URL.match(str(given)):  # a Path turns :// into :/
        address = without_password(_URL.sub(r"\1://", str(given)))
        raise ConfigError("is an address, not a file", file=address, line=0, remedy="download it first")
    path = Path(given)
    text = _read_text(path)
    if path.suffix == ".json":
        from autoopt.spec.json_reader import read_json

        value, lines = read_json(text, str(given))
    else:
        from autoopt.spec.yaml_reader import read_yaml

        value, lines = read_yaml(text, str(given))
    return Document(value, Source(str(given), path.absolute().parent, lines))


def _read_text(path: Path) -> str:
    file = str(path)
    try:
        if path.is_dir():
            raise ConfigError("is a folder, not a file", file=file, line=0)
        with open(path, "rb", opener=_open_at_once) as stream:
            content = stream.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise ConfigError(
            "cannot be read (no such file or directory)", file=file, line=0, remedy=_similar_file(path)
        ) from error
    except OSError as error:
        raise ConfigError(f"cannot be read ({(error.strerror or 'not a path').lower()})", file=file, line=0) from error
    except ValueError as error:
        raise ConfigError("cannot be read (not a path)", file=file, line=0) from error
    if path.suffix.lower() in DATA_SUFFIXES:
        remedy = f"name it behind the model: autoopt run model.onnx --data {shlex.quote(path.name)}"
        raise ConfigError("is data, not a model or a YAML file", file=file, remedy=remedy)
    if path.suffix.lower() == ".safetensors":
        remedy = f"export the folder of a Hugging Face model to ONNX: {EXPORT_COMMAND}"
        raise ConfigError("has weights without a model", file=file, remedy=remedy)
    if len(content) > MAX_BYTES:
        raise ConfigError(f"is larger than {MAX_BYTES // 1024} KiB", file=file)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError("is not UTF-8 text", file=file, line=line) from error


def _open_at_once(path: str, flags: int) -> int:
    """Open a file without waiting: a pipe that nobody writes to is empty."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)  # a writer may still need time to write
    return descriptor


def _similar_file(path: Path) -> str:
    """A hint at a file of the same folder with a similar name; empty if there is none."""
    with suppress(OSError):  # there may be no such folder
        near = get_close_matches(path.name, [file.name for file in path.parent.iterdir()], n=1, cutoff=0.8)
        if near:
            return f"did you mean {near[0]!r}?"
    return ""


def _copy(value: object, build: Builder) -> None:
    """Copy a Python value as JSON: tuples become lists, paths become text."""
    if isinstance(value, Mapping):
        build.begin({}, 1)
        for key, item in value.items():
            if not isinstance(key, str):
                raise build.fail(f"key {key!r} must be text", 1, build.place)
            build.key(key, 1)
            _copy(item, build)
        build.end()
    elif isinstance(value, list | tuple):
        build.begin([], 1)
        for item in value:
            _copy(item, build)
        build.end()
    else:
        build.scalar(_plain_scalar, value, 1)


def _plain_scalar(value: object) -> Json:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str | Path):
        return check_text(str(value))
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return check_number(float(value))
    raise FieldError(f"must be a JSON value, not {type(value).__name__}")
