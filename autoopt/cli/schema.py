"""`autoopt schema`: the JSON Schema of dag.yaml and zoo.yaml, with which editors complete and check these files."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from autoopt.errors import InputError


class FileKind(StrEnum):
    """The files that have a schema."""

    dag = "dag"
    zoo = "zoo"


def schema(
    kind: Annotated[FileKind, typer.Argument(help="dag for dag.yaml, zoo for zoo.yaml.")] = FileKind.dag,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write a file, not standard output.")] = None,
) -> None:
    """Print the JSON Schema of dag.yaml or zoo.yaml.

    Editors with a YAML language server read its path from the first line of a file:
    # yaml-language-server: $schema=dag.schema.json
    """
    text = schema_text(kind)
    if out is None:
        typer.echo(text, nl=False)
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot be written ({error.strerror})", where=str(out)) from None
    typer.echo(f"wrote {out}")


def schema_text(kind: FileKind = FileKind.dag) -> str:
    """The schema as JSON text, with the passes of this installation."""
    from autoopt.measure.settings import SETTINGS
    from autoopt.registry import registry
    from autoopt.spec.dag import DagSpec
    from autoopt.spec.json_schema import json_schema
    from autoopt.spec.zoo import ZooSpec

    if kind is FileKind.zoo:
        document = json_schema(ZooSpec)
    else:
        passes = registry()
        document = json_schema(DagSpec, [passes.info(name) for name in passes.names()], SETTINGS)
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"
