"""A sweep for continuous integration: JUnit XML, annotations of GitHub Actions."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from autoopt.errors import one_line
from autoopt.report.words.verdict import gains
from autoopt.results import SweepEntry, SweepResult
from autoopt.results.sweep import OK
from autoopt.working_folder import check_own
from autoopt.zoo.sweep_text import change_lines

SUITE = "autoopt "
"""Opens the name of every test suite."""


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
