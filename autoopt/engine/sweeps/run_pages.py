"""The pages of a sweep's runs, in a folder beside the page of the sweep. A page stays for the nights that follow."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from autoopt.engine.tools.run_report import run_report
from autoopt.errors import writing
from autoopt.report.html import write_page
from autoopt.results import RunResult
from autoopt.results.sweep import SweepEntry
from autoopt.store import Store

FOLDER = "reports"


def write_run_pages(store: Store, entries: Iterable[SweepEntry], out: Path) -> dict[str, str]:
    """Write the page of each run that has none yet in `out`.

    Returns:
        The path of each page there, relative to `out`, by the run's id.

    Raises:
        InputError: The folder cannot be written.
    """
    folder = out / FOLDER
    with writing(folder, "cannot write the reports"):
        folder.mkdir(parents=True, exist_ok=True)
        for entry in entries:
            page = folder / f"{entry.run}.html"
            if not entry.run or page.exists():
                continue
            record = store.runs.get(entry.run)
            if record.result is not None:
                write_page(page, run_report(store, record, RunResult.from_json(record.result)))
        return {page.stem: f"{FOLDER}/{page.name}" for page in folder.glob("*.html")}
