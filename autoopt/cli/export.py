"""`autoopt export`: write any model of a run as a package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autoopt.cli.output import AsJson, print_result
from autoopt.cli.store_access import RunName, TargetName, existing_store


def export(
    run: RunName = "latest",
    trial: Annotated[
        int | None, typer.Argument(min=0, metavar="TRIAL", help="Number of a trial [default: the best model].")
    ] = None,
    target: TargetName = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder, or a .zip file.")] = Path("out"),
    as_json: AsJson = False,
) -> None:
    """Write the best model of a run, or that of a trial, with all that it takes to use it.

    Works during a run and after a cancelled one too.
    """
    from autoopt.engine.run.export import export_to
    from autoopt.engine.tools.measured_model import package_of
    from autoopt.report.verdict import gains

    with existing_store() as store:
        package = package_of(store, store.runs.get(run), trial, target)
        path = export_to(store, package, out)
    place, model = f"{out}/" if out.is_dir() else str(out), package.model
    text = f"wrote {place}: {model.short_chain}: {', '.join(gains(package.result, model)) or 'no figures'}"
    document = {"run": package.run.id, "trial": trial, "path": str(path.absolute()), "artifact": model.artifact}
    print_result(document, text, as_json)
