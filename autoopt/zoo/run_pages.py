"""The pages of a sweep's runs in a folder beside the page of the sweep."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from autoopt.engine.tools.run_report import run_report
from autoopt.errors import writing
from autoopt.report.pages import write_page
from autoopt.results import RunResult, SweepEntry
from autoopt.store import Store

FOLDER = "reports"
MOST_PAGES = 100
"""Pages that one sweep adds; each takes 0.4 s of CPU and 80 kB. `autoopt report RUN` writes any other."""
RUN_ID: Final = re.compile("[0-9a-f]{12}")


def write_run_pages(store: Store, entries: Sequence[SweepEntry], out: Path, in_use: Collection[str]) -> dict[str, str]:
    """Write the pages of runs that have none yet in `out`: at most `MOST_PAGES`, of changed models before others.

    Then delete those of runs that are not `in_use`.

    Returns:
        The path of each page, relative to `out`, by the run's id.

    Raises:
        InputError: The folder cannot be written.
    """
    folder = out / FOLDER
    with writing(folder, "cannot write the reports"):
        folder.mkdir(parents=True, exist_ok=True)
        new = [entry for entry in entries if entry.run and not (folder / f"{entry.run}.html").exists()]
        new.sort(key=lambda entry: not (entry.compared.regressed or entry.compared.improved))
        for entry in new[:MOST_PAGES]:
            record = store.runs.get(entry.run)
            if record.result:
                page = run_report(store, record, RunResult.from_json(record.result))
                write_page(folder / f"{entry.run}.html", page)
        for old in folder.glob("*.html"):
            if RUN_ID.fullmatch(old.stem) and old.stem not in in_use:
                old.unlink()
        return {old.stem: f"{FOLDER}/{old.name}" for old in folder.glob("*.html")}
