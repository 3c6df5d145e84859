"""`autoopt examples`: copy the DAGs that autoopt ships."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

import autoopt
from autoopt.cli.output import AsJson, print_result
from autoopt.errors import InputError, writing

EXAMPLES = Path(autoopt.__file__).parent / "dags"


def examples(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to create.")] = Path("dags"),
    as_json: AsJson = False,
) -> None:
    """Copy the example DAGs into a new folder, with a small CNN for handwritten digits and its labelled data."""
    if out.exists():
        raise InputError("already exists", where=str(out), remedy="name another folder with -o")
    with writing(out):
        shutil.copytree(EXAMPLES, out)
    files = sorted(map(str, out.glob("*.yaml")))
    text = "\n".join([*(f"wrote {file}" for file in files), f"next: autoopt run {out / 'quickstart.yaml'}"])
    print_result({"folder": str(out), "files": files}, text, as_json)
