"""The YAML files that commands write, and the JSON Schemas with which editors complete and check them."""

from __future__ import annotations

import json
import os
from pathlib import Path

from autoopt.errors import InputError, writing
from autoopt.settings import settings


def dag_schema(*, with_passes: bool = True) -> str:
    """The JSON Schema of dag.yaml as text; if wanted, with the passes of this installation."""
    from autoopt.measure.settings import SETTINGS
    from autoopt.registry import registry
    from autoopt.spec.dag import DagSpec
    from autoopt.spec.json_schema import json_schema

    infos = []
    if with_passes:
        passes = registry()
        infos = list(map(passes.info, passes.names()))
    return _text(json_schema(DagSpec, infos, SETTINGS))


def zoo_schema() -> str:
    """The JSON Schema of zoo.yaml as text."""
    from autoopt.spec.json_schema import json_schema
    from autoopt.spec.zoo import ZooSpec

    return _text(json_schema(ZooSpec))


def _text(document: object) -> str:
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def schema_line(folder: Path = Path()) -> str:
    """Write both schemas next to the store; returns the comment that names that of dag.yaml for a file in `folder`."""
    home = settings().home
    home.mkdir(parents=True, exist_ok=True)
    file = home / "dag.schema.json"
    write_file(file, dag_schema(), force=True)
    write_file(home / "zoo.schema.json", zoo_schema(), force=True)
    return f"# yaml-language-server: $schema={path_in_file(str(file), folder)}"


def path_in_file(path: str, folder: Path = Path()) -> str:
    """A path to write into a file in `folder`: relative if it lies below the current folder, absolute elsewhere."""
    if "://" in path:
        return path
    absolute = Path(path).expanduser().absolute()
    if absolute.is_relative_to(Path.cwd()):
        return os.path.relpath(absolute, folder)
    return str(absolute)


def write_file(file: Path, text: str, force: bool) -> None:
    """Write a file; overwrite an existing one only with `force`.

    Raises:
        InputError: the file exists, or the folder cannot be written.
    """
    with writing(file):
        if file.exists() and not force:
            raise InputError("already exists", where=str(file), remedy="use --force to overwrite it")
        file.write_text(text, encoding="utf-8")
