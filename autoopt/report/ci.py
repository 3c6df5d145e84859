"""A sweep for continuous integration: JUnit XML and annotations of GitHub Actions."""

from __future__ import annotations

from xml.etree import ElementTree

from autoopt.errors import one_line
from autoopt.report.sweep import changes_table
from autoopt.report.verdict import gains
from autoopt.results import SweepEntry, SweepResult
from autoopt.results.sweep import OK


def junit_xml(result: SweepResult) -> str:
    """One test case for each model: a failure on a regression, an error for a model without a result."""
    regressed = [entry for entry in result.models if entry.compared.regressed]
    broken = [entry for entry in result.models if entry.status != OK and not entry.compared.regressed]
    counts = {"tests": len(result.models), "failures": len(regressed), "errors": len(broken)}
    attributes = {"name": f"autoopt {result.name}", "time": f"{result.seconds:.3f}"}
    attributes |= {name: str(count) for name, count in counts.items()}
    suite = ElementTree.Element("testsuite", attributes)
    for entry in result.models:
        case = {"classname": result.name, "name": one_line(entry.name), "time": f"{entry.seconds:.3f}"}
        element = ElementTree.SubElement(suite, "testcase", case)
        if entry in regressed:
            ElementTree.SubElement(element, "failure", message=problem_text(result, entry))
        elif entry in broken:
            ElementTree.SubElement(element, "error", message=problem_text(result, entry))
        elif entry.result is not None and entry.best is not None:
            text = ", ".join(gains(entry.result, entry.best)) or entry.best.short_chain
            ElementTree.SubElement(element, "system-out").text = one_line(text)
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def github_annotations(result: SweepResult, file: str) -> list[str]:
    """Workflow commands of GitHub Actions: an error on each regression, a warning for each model without a result."""
    lines = []
    for entry in result.models:
        if entry.compared.regressed or entry.status != OK:
            level = "warning"
            if entry.compared.regressed:
                level = "error"
            text = problem_text(result, entry).replace("%", "%25")
            lines.append(f"::{level} file={file},title=autoopt {one_line(entry.name)}::{text}")
    return lines


def problem_text(result: SweepResult, entry: SweepEntry) -> str:
    """Description of a model's problem: its verdict, what moved, the reason, the possible causes."""
    parts = [entry.compared.verdict if entry.compared.regressed else entry.status]
    for name, what, metric, before, after, verdict in changes_table(result).rows:
        if name == entry.name:
            parts.append(f"{what} {metric} {before} -> {after} ({verdict})")
    if entry.reason:
        parts.append(entry.reason)
    causes = (*entry.compared.causes, *entry.compared.other_inputs)
    if causes:
        parts.append(f"possible cause: {', '.join(causes)}")
    return one_line("; ".join(parts))
