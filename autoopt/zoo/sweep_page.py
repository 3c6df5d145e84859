"""The pages of a sweep: one of its models and what moved, and those of its runs in a folder beside it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from autoopt.engine.tools.run_report import run_report
from autoopt.errors import writing
from autoopt.report.pages import render, write_page
from autoopt.report.words.formatting import day_text, plural, short
from autoopt.report.words.markup import shell_word
from autoopt.results import RunResult, SweepEntry, SweepResult
from autoopt.store import Store
from autoopt.zoo.sweep_text import change_lines, headline, models_table, summary, sweep_title

FOLDER = "reports"
MOST_PAGES = 100
"""Pages that one sweep adds; each takes 0.4 s of CPU and 80 kB. `autoopt report RUN` writes any other."""
RUN_ID: Final = re.compile("[0-9a-f]{12}")
LIBRARIES = ("autoopt", "onnxruntime", "onnx", "numpy")
"""Libraries whose versions stand at the top."""


def sweep_html(result: SweepResult, pages: Mapping[str, str] = MappingProxyType({}), begun: float = 0.0) -> str:
    """Render the page of a sweep.

    `pages` are the paths of the pages of runs, relative to this one, by the run's id; `begun` is the beginning of the
    sweep, in seconds since 1970, 0 if it is not known.
    """
    changes = [f"{entry.name}: {line}" for entry in result.models for line in change_lines(entry)]
    others = [entry for entry in result.models if entry.run and entry.run not in pages]
    return render(
        "sweep.html",
        package="autoopt.zoo",
        title=sweep_title(result),
        headline=headline(result),
        lines=[*_circumstances(result, begun), *summary(result)],
        models=models_table(result),
        pages={entry.name: pages[entry.run] for entry in result.models if entry.run in pages},
        changes=changes,
        commands="\n".join(f"autoopt report {short(one.run)} -o {shell_word(f'{one.name}.html')}" for one in others),
    )


def _circumstances(result: SweepResult, begun: float) -> list[str]:
    """The time, machine and versions of the measurements, and a line for a busy machine."""
    parts = []
    if begun:
        parts.append(day_text(begun))
    environments = [entry.environment for entry in result.models if entry.environment]
    if environments:
        parts += [str(environments[-1].get(name, "")) for name in ("host", "os", "python")]
        libraries = environments[-1].get("libraries")
        if isinstance(libraries, Mapping):
            parts += [f"{name} {libraries[name]}" for name in LIBRARIES if name in libraries]
    lines = [", ".join(filter(None, parts))]
    busy = sum(entry.best is not None and entry.best.measured.busy for entry in result.models)
    if busy:
        lines.append(f"The machine was busy or unsteady during the measurements of {plural(busy, 'model')}.")
    return list(filter(None, lines))


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
