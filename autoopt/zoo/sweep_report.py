"""The result of a sweep as text, Markdown, HTML pages, JUnit XML, and annotations of GitHub Actions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from types import MappingProxyType
from typing import Final, TextIO
from xml.etree import ElementTree

from autoopt.engine.tools.run_report import run_report
from autoopt.errors import one_line, writing
from autoopt.metrics import Estimate, is_ratio_metric
from autoopt.report.pages import render, write_page
from autoopt.report.table import Table, markdown, write_lines
from autoopt.report.words.change import ratio_change
from autoopt.report.words.formatting import day_text, first_names, metric_text, plural, short
from autoopt.report.words.markup import markdown_text, shell_word
from autoopt.report.words.steps import steps_text
from autoopt.report.words.verdict import gains, verdict_lines
from autoopt.results import MetricChange, RunResult, SweepEntry, SweepResult
from autoopt.results.sweep import OK
from autoopt.store import Store
from autoopt.working_folder import check_own

MOST_LINES = 5
"""Largest number of regressions, and of causes, in a message."""
MOST_REASON = 200
"""Longest reason of a failure in a message, in characters."""
TONIGHT = "figures are those of this measurement alone; a run's own report pools them with earlier ones"
WIDTH = 76
"""Characters of a line of passes."""
FOLDER = "reports"
MOST_PAGES = 100
"""Pages that one sweep adds; each takes 0.4 s of CPU and 80 kB. `autoopt report RUN` writes any other."""
RUN_ID: Final = re.compile("[0-9a-f]{12}")
LIBRARIES = ("autoopt", "onnxruntime", "onnx", "numpy")
"""Libraries whose versions stand at the top."""
SUITE = "autoopt "
"""Opens the name of every test suite."""


def write_sweep(result: SweepResult, stream: TextIO) -> None:
    """Write what each model gained, in the words of its run, and what moved since; then the summary and the outcome."""
    lines = [sweep_title(result)]
    for entry in result.models:
        answer, passes = _answer(entry), _passes(entry, WIDTH)
        lines.append(f"{one_line(entry.name)} ({entry.compared.verdict}): {answer}")
        lines += [f"  {line}" for line in (passes, *change_lines(entry)) if line]
    write_lines([*lines, *summary(result), headline(result)], stream)


def models_table(result: SweepResult) -> Table:
    """One row for each model: how it compares with earlier, and what its run gained."""
    rows = []
    for entry in result.models:
        run = short(entry.run or entry.failed_run)
        rows.append((entry.name, entry.compared.verdict, _answer(entry), _passes(entry), run))
    return Table(("model", "since last good", "result", "passes", "run"), tuple(rows))


def _answer(entry: SweepEntry) -> str:
    """The result of a model's run; the reason where the sweep decided otherwise."""
    if entry.result is None or (entry.status != OK and entry.reason):
        return f"{entry.status}: {one_line(entry.reason or '-')}"
    return verdict_lines(entry.result)[0]


def _passes(entry: SweepEntry, width: int = 0) -> str:
    if entry.best is None or entry.best.is_source:
        return ""
    return steps_text(entry.best.short_chain, entry.best.point, width)


def change_lines(entry: SweepEntry) -> Iterator[str]:
    """The metrics that moved beyond their intervals."""
    for change in entry.compared.changes:
        before, after = _change_text(change, change.before), _change_text(change, change.after)
        yield f"{change.verdict}: {change.metric} of the {change.what} {before} -> {after}"


def _change_text(change: MetricChange, estimate: Estimate | None) -> str:
    if estimate is None:
        return "-"
    if change.as_ratio:
        return ratio_change(change.metric, estimate)
    value = metric_text(change.metric, estimate.value)
    if estimate.low == estimate.high:
        return value
    if is_ratio_metric(change.metric) and not estimate.decided:
        return "undecided"
    return f"{value} ({metric_text(change.metric, estimate.low)}..{metric_text(change.metric, estimate.high)})"


def summary(result: SweepResult) -> list[str]:
    """Counts, possible causes and caveats, a line each."""
    counts = Counter(entry.status for entry in result.models)
    statuses = ", ".join(f"{count} {status}" for status, count in counts.items()) or "none"
    lines = [f"{plural(len(result.models), 'model')}: {statuses}"]
    if result.nightly:
        lines.append(TONIGHT)
    if result.not_run:
        lines.append(f"not run: {first_names(result.not_run)}; the next sweep begins with them")
    if result.regressions and result.improvements:
        lines.append(f"improvements: {', '.join(result.improvements)}")
    lines += _environment_lines(result)
    lines += _lines_on_models(result.models)
    if result.regressions and result.accepted:
        lines.append("accepted: this sweep is the new baseline, regressions included")
    return lines


def _models_by_cause(entries: Sequence[SweepEntry]) -> dict[str, list[str]]:
    """The names of the models that each possible cause concerns."""
    models: dict[str, list[str]] = {}
    for entry in entries:
        for cause in entry.compared.causes:
            models.setdefault(cause, []).append(entry.name)
    return models


def _environment_lines(result: SweepResult) -> list[str]:
    """Changes of the environment: those that changed models have seen, then the others since the last sweep."""
    changed = [entry for entry in result.models if entry.compared.regressed or entry.compared.improved]
    models_by_cause = _models_by_cause(changed)
    possible = []
    for cause, names in models_by_cause.items():
        if len(names) < len(changed):
            possible.append(f"{cause} ({first_names(names)})")
        else:
            possible.append(cause)
    others = [change for change in result.environment_changes if change not in models_by_cause]
    lines = []
    if possible:
        lines.append(f"possible cause, the environment changed: {'; '.join(possible)}")
    if others:
        lines.append(f"the environment changed since the last sweep: {'; '.join(others)}")
    return lines


def _lines_on_models(entries: Sequence[SweepEntry]) -> list[str]:
    """The models with other inputs than before, then the caveats of the best models."""
    lines: list[str] = []
    models_by_caveats: dict[str, list[str]] = {}
    released = [f"{entry.name} {entry.compared.release}" for entry in entries if entry.compared.release]
    if released:
        lines.append(f"compared with what is released: {', '.join(released)}")
    for entry in entries:
        if entry.compared.other_inputs:
            lines.append(f"possible cause, {entry.name} has other inputs: {'; '.join(entry.compared.other_inputs)}")
        if entry.best is not None and entry.best.flags:
            models_by_caveats.setdefault("; ".join(entry.best.flags), []).append(entry.name)
    return lines + [f"* {', '.join(names)}: {one_line(caveats)}" for caveats, names in models_by_caveats.items()]


def sweep_markdown(result: SweepResult, pages: Mapping[str, str] = MappingProxyType({})) -> str:
    """The sweep as Markdown, for artifacts of flow runs; `pages` are the addresses of runs by their id."""
    links = {entry.name: pages[entry.run] for entry in result.models if entry.run in pages}
    parts = [f"**{markdown_text(headline(result))}**", markdown(models_table(result), links)]
    changes = [f"{entry.name}: {line}" for entry in result.models for line in change_lines(entry)]
    return "\n\n".join([*parts, *map(markdown_text, (*changes, *summary(result)))])


def sweep_title(result: SweepResult) -> str:
    """Name and short id of a sweep; a check of a single model has no id."""
    return f"sweep {result.name} {short(result.sweep)}" if result.sweep else f"check of {result.name}"


def message(result: SweepResult) -> str:
    """The outcome of a night for people who read it on a phone: a sentence, then a line for each regression."""
    lines = [headline(result)]
    regressed = [entry for entry in result.models if entry.compared.regressed]
    lines += list(map(_regression_line, regressed[:MOST_LINES]))
    if len(regressed) > MOST_LINES:
        lines.append(f"... and {len(regressed) - MOST_LINES} more.")
    changes = list(dict.fromkeys(cause for entry in regressed for cause in entry.compared.causes))
    if changes:
        lines.append(f"Changed since: {'; '.join(changes[:MOST_LINES])}.")
    return "\n".join(lines)


def _regression_line(entry: SweepEntry) -> str:
    """The change for the worse: `cnn: latency_p50 of the best model 0.310x (...) -> 0.620x (...)`, or why it fails."""
    changes = [line.removeprefix("worse: ") for line in change_lines(entry) if line.startswith("worse: ")]
    if not changes:
        return f"{entry.name} {entry.compared.verdict}: {one_line(entry.reason)[:MOST_REASON]}"
    line = f"{entry.name}: {changes[0]}."
    if entry.compared.other_inputs:
        line += f" Its inputs changed: {'; '.join(entry.compared.other_inputs)}."
    return line


def headline(result: SweepResult) -> str:
    """The outcome of a sweep in a sentence."""
    models = plural(len(result.models), "model")
    if result.regressions:
        return f"{len(result.regressions)} of {models} regressed: {first_names(result.regressions)}."
    missing = [entry.name for entry in result.models if entry.status != OK]
    if len(missing) == len(result.models):
        return "No model has a result."
    line = f"No regression in {models}"
    if missing:
        line += f"; without a result: {first_names(missing)}"
    if result.improvements:
        line += f"; better: {first_names(result.improvements)}"
    if result.not_run:
        line += f"; no time for {plural(len(result.not_run), 'model')}"
    return f"{line}."


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
    environments = [entry.environment for entry in result.models if entry.environment]
    parts = [day_text(begun) if begun else "", *_environment_texts(environments[-1] if environments else {})]
    lines = [", ".join(filter(None, parts))]
    busy = sum(entry.best is not None and entry.best.measured.busy for entry in result.models)
    if busy:
        lines.append(f"The machine was busy or unsteady during the measurements of {plural(busy, 'model')}.")
    return list(filter(None, lines))


def _environment_texts(environment: Mapping[str, object]) -> list[str]:
    """The host, the system, and the versions of the main libraries."""
    texts = [str(environment.get(name, "")) for name in ("host", "os", "python")]
    libraries = environment.get("libraries")
    if isinstance(libraries, Mapping):
        texts += [f"{name} {libraries[name]}" for name in LIBRARIES if name in libraries]
    return texts


def write_run_pages(store: Store, entries: Sequence[SweepEntry], out: Path, in_use: Set[str]) -> dict[str, str]:
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
                write_page(folder / f"{record.id}.html", page)
        pages = {page.stem: page for page in folder.glob("*.html")}
        for run in pages.keys() - in_use:
            if RUN_ID.fullmatch(run):
                pages.pop(run).unlink()
        return {run: f"{FOLDER}/{page.name}" for run, page in pages.items()}


def check_junit(file: Path) -> None:
    """Check that JUnit XML may be written to this file; raises like `check_own`."""
    check_own(file, f'<testsuite name="{SUITE}')


def junit_xml(result: SweepResult) -> str:
    """One test case for each model: a failure on a regression, an error for a model without a result."""
    root = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(root, "testsuite", name=f"{SUITE}{result.name}", time=f"{result.seconds:.3f}")
    for entry in result.models:
        _add_test_case(suite, result, entry)
    suite.set("tests", str(len(result.models)))
    suite.set("failures", str(len(suite.findall("*/failure"))))
    suite.set("errors", str(len(suite.findall("*/error"))))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _add_test_case(suite: ElementTree.Element, result: SweepResult, entry: SweepEntry) -> None:
    attributes = {"classname": result.name, "name": one_line(entry.name), "time": f"{entry.seconds:.3f}"}
    case = ElementTree.SubElement(suite, "testcase", attributes)
    if entry.compared.regressed:
        ElementTree.SubElement(case, "failure", message=problem_text(entry))
    elif entry.status != OK:
        ElementTree.SubElement(case, "error", message=problem_text(entry))
    elif entry.result is not None and entry.best is not None:
        text = ", ".join(gains(entry.result, entry.best)) or entry.best.short_chain
        ElementTree.SubElement(case, "system-out").text = one_line(text)


def github_annotations(result: SweepResult, file: str) -> list[str]:
    """Workflow commands of GitHub Actions: an error on each regression, a warning for each model without a result."""
    lines = []
    for entry in result.models:
        if entry.compared.regressed or entry.status != OK:
            level = "error" if entry.compared.regressed else "warning"
            text = problem_text(entry).replace("%", "%25")
            lines.append(f"::{level} file={file},title=autoopt {one_line(entry.name)}::{text}")
    return lines


def problem_text(entry: SweepEntry) -> str:
    """Description of a model's problem: its verdict, what moved, the reason, the possible causes."""
    state = entry.compared.verdict if entry.compared.regressed else entry.status
    parts = list(change_lines(entry)) or [state]
    if entry.reason:
        parts.append(entry.reason)
    causes = (*entry.compared.causes, *entry.compared.other_inputs)
    if causes:
        parts.append(f"possible cause: {', '.join(causes)}")
    return one_line("; ".join(parts))
