"""`autoopt schema`: the JSON Schema of dag.yaml and zoo.yaml, with which editors complete and check these files."""

from __future__ import annotations

import json
import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from autoopt.errors import InputError, writing
from autoopt.settings import settings


class FileKind(StrEnum):
    """The files that have a schema."""

    dag = "dag"
    zoo = "zoo"


def schema(
    kind: Annotated[
        FileKind, typer.Argument(metavar="dag|zoo", help="dag for dag.yaml, zoo for zoo.yaml.")
    ] = FileKind.dag,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write a file, not standard output.")] = None,
    passes: Annotated[bool, typer.Option(help="Describe the passes of this installation.")] = True,
) -> None:
    """Print the JSON Schema of dag.yaml or zoo.yaml.

    Editors with a YAML language server read its path from the first line of a file:
    # yaml-language-server: $schema=dag.schema.json
    """
    text = schema_text(kind, passes)
    if out is None:
        typer.echo(text, nl=False)
        return
    write_file(out, text, force=True)
    typer.echo(f"wrote {out}")


def schema_text(kind: FileKind = FileKind.dag, with_passes: bool = True) -> str:
    """The schema as JSON text; if wanted, that of dag.yaml with the passes of this installation."""
    from autoopt.measure.settings import SETTINGS
    from autoopt.registry import registry
    from autoopt.spec.dag import DagSpec
    from autoopt.spec.json_schema import json_schema
    from autoopt.spec.zoo import ZooSpec

    if kind is FileKind.zoo:
        document = json_schema(ZooSpec)
    else:
        infos = []
        if with_passes:
            passes = registry()
            infos = list(map(passes.info, passes.names()))
        document = json_schema(DagSpec, infos, SETTINGS)
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def schema_line(folder: Path = Path()) -> str:
    """Write the schema of dag.yaml next to the store; returns the comment that names it in a dag.yaml in `folder`."""
    file = settings().home / "dag.schema.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    write_file(file, schema_text(), force=True)
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
