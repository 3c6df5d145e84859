"""How an artifact came to be, from the source model on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TextIO

from autoopt.errors import one_line
from autoopt.report.formatting import params_text, short, value_text
from autoopt.report.table import write_lines


def write_lineage(document: Mapping[str, Any], stream: TextIO) -> None:
    """Write the lineage document `{"artifact", "source", "steps"}` as a list of steps."""
    write_lines(lineage_lines(document), stream)


def lineage_lines(document: Mapping[str, Any]) -> list[str]:
    """One line for the source, then for each step what it did and, where it is not the last one's, its environment."""
    lines = [f"source    {short(str(document.get('source', '')))}"]
    environment: Any = None
    if document.get("converted"):
        lines.append(_step("converted by", document["converted"]))
        lines += _reports(document["converted"])
    for number, step in enumerate(document.get("steps") or (), start=1):
        if step.get("environment") and step["environment"] != environment:
            environment = step["environment"]
            lines.append(f"  with {_environment(environment)}")
        lines.append(_step(number, step))
        lines += [
            f"     gave up {_params(a)}: {one_line(str(a.get('reason', '')))}" for a in step.get("attempts") or ()
        ]
        lines += _reports(step)
    for step in document.get("analyses") or ():
        lines.append(f"  {one_line(str(step.get('pass', '')))} of {short(str(step.get('input', '')))}")
        lines += _reports(step)
    lines.append(f"artifact  {one_line(str(document.get('artifact', '')))}")
    return lines


def _reports(step: Mapping[str, Any]) -> list[str]:
    return [f"     {one_line(name)}: {value_text(report)}" for name, report in (step.get("reports") or {}).items()]


def _params(step: Mapping[str, Any]) -> str:
    return params_text({"": step.get("params") or {}}).removeprefix(": ")


def _step(number: int | str, step: Mapping[str, Any]) -> str:
    name = one_line(str(step.get("pass", "")))
    params = _params(step)
    made = f"{short(str(step.get('input', '')))} -> {short(str(step.get('output', '')))}"
    place = f"{number}." if isinstance(number, int) else number
    text = f"  {place} {name}  {made}  {step.get('outcome', '')}, {float(step.get('seconds') or 0):.2f} s"
    return f"{text}  {params}" if params else text


def _environment(environment: Any) -> str:
    if not isinstance(environment, Mapping):
        return short(str(environment))
    parts = []
    for name, value in environment.items():
        if isinstance(value, Mapping):
            value = f"({_environment(value)})"
        if value not in (None, "", "()"):
            parts.append(f"{one_line(str(name))} {value_text(value)}")
    return ", ".join(parts)
