"""`autoopt report`: a run as an HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autoopt.cli.output import AsJson, print_json
from autoopt.cli.runs import RunName
from autoopt.cli.store_access import existing_store, result_of
from autoopt.errors import InputError

if TYPE_CHECKING:
    from autoopt.report.document import Trial
    from autoopt.store import Store


def report(
    run: RunName = "latest",
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")] = Path("report.html"),
    as_json: AsJson = False,
) -> None:
    """Write a finished run as one HTML page: result, plots, lineage, every trial."""
    from autoopt.cli.lineage import best_of
    from autoopt.report.document import RunDocument
    from autoopt.report.html import html_report

    with existing_store() as store:
        record = store.runs.get(run)
        result = result_of(record)
        steps = store.lineage.trace(best_of(store, record.id)).to_json() if result.get("best") else None
        document = RunDocument.from_json(result)
        parts = {t.name: trials_of(store, t.document.run) for t in document.targets}
        page = html_report(document, trials_of(store, record.id), lineage=steps, name=record.name, target_trials=parts)
    try:
        out.write_text(page, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write the report ({error.strerror})", where=str(out)) from error
    if as_json:
        print_json({"run": record.id, "path": str(out.absolute())})
    else:
        typer.echo(f"wrote {out}")


def trials_of(store: Store, run: str) -> list[Trial]:
    """The trials of a run as reports take them, by number, with their chains' readable names."""
    from dataclasses import asdict

    from autoopt.report.document import Trial

    names = {chain.id: chain.name for chain in store.runs.chains(run)}
    rows: list[dict[str, Any]] = [asdict(trial) for trial in store.trials.all(run) if trial.status == "done"]
    return [Trial.from_json({**row, "chain": names.get(row["chain"], row["chain"])}) for row in rows]
