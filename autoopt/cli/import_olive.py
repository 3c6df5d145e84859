"""`autoopt import-olive`: convert a configuration of Microsoft Olive into a dag.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autoopt.cli.output import AsJson, print_json
from autoopt.cli.yaml_files import schema_line, write_file


def import_olive(
    config: Annotated[
        Path,
        typer.Argument(metavar="CONFIG", help="Olive's configuration (JSON or YAML).", exists=True, dir_okay=False),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File to write [default: the name in the configuration].")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if it exists.")] = False,
    as_json: AsJson = False,
) -> None:
    """Convert an Olive configuration into a dag.yaml, and list what has no equivalent.

    Converts passes, search values and strategy, the goals of the evaluator, data configs and systems.
    """
    from autoopt.dag.proposal.dag_yaml import document_yaml
    from autoopt.olive import convert
    from autoopt.report.words.markup import shell_word

    folder = out.parent if out is not None else Path()
    conversion = convert(config, folder)
    file = out or Path(f"{conversion.dag['name']}.yaml")
    head = [schema_line(folder), f"# Converted from Olive's {config.name}."]
    head += [f"# {remark}" for remark in conversion.remarks]
    write_file(file, "\n".join(head) + "\n" + document_yaml(conversion.dag), force)
    if as_json:
        print_json({"file": str(file), "dag": conversion.dag, "remarks": list(conversion.remarks)})
        return
    for remark in conversion.remarks:
        typer.echo(remark)
    typer.echo(f"wrote {file}; next: autoopt plan {shell_word(file)}")
