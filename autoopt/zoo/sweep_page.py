"""A sweep as one HTML page: its models, what moved, and where the pages of its runs are."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from autoopt.report.pages import render
from autoopt.report.words.formatting import day_text, plural, short
from autoopt.report.words.markup import shell_word
from autoopt.results import SweepResult
from autoopt.zoo.sweep_text import change_lines, models_table, outcome, summary, sweep_title

LIBRARIES = ("autoopt", "onnxruntime", "onnx", "numpy")
"""Libraries whose versions stand at the top."""


def sweep_html(result: SweepResult, pages: Mapping[str, str] = MappingProxyType({}), begun: float = 0.0) -> str:
    """Render the page of a sweep.

    `pages` are the paths of the pages of runs, relative to this one, by the run's id; `begun` is the beginning of the
    sweep, in seconds since 1970, 0 if it is not known.
    """
    lines = summary(result)
    verdict = outcome(result)
    changes = [f"{entry.name}: {line}" for entry in result.models for line in change_lines(entry)]
    others = [entry for entry in result.models if entry.run and entry.run not in pages]
    return render(
        "sweep.html",
        package="autoopt.zoo",
        title=sweep_title(result),
        headline=verdict[:1].upper() + verdict[1:],
        lines=[*_circumstances(result, begun), *(line for line in lines if line != verdict)],
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
