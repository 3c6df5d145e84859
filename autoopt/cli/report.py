"""`autoopt report`: a run as an HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autoopt.cli.output import AsJson, print_json
from autoopt.cli.runs import RunName
from autoopt.cli.store_access import existing_store, result_of
from autoopt.errors import InputError


def report(
    run: RunName = "latest",
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")] = Path("report.html"),
    as_json: AsJson = False,
) -> None:
    """Write a finished run as one HTML page: result, plots, lineage, every trial."""
    from autoopt.report.html import html_report
    from autoopt.store.finished import finished_trials

    with existing_store() as store:
        record = store.runs.get(run)
        result = result_of(record)
        lineage = store.lineage.trace(result.best.candidate).to_json() if result.best else None
        page = html_report(
            result,
            finished_trials(store, record.id),
            lineage=lineage,
            name=record.name,
            target_trials={target.name: finished_trials(store, target.result.run) for target in result.targets},
        )
    try:
        out.write_text(page, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write the report ({error.strerror})", where=str(out)) from error
    if as_json:
        print_json({"run": record.id, "path": str(out.absolute())})
    else:
        typer.echo(f"wrote {out}")
