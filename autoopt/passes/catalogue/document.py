"""Passes described for readers: as the JSON of `autoopt passes list`, and as the tables of docs/passes.md.

`python -m autoopt.passes.catalogue.document docs/passes.md` writes that page anew.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from autoopt.registry import REQUIRED, Failure, ParameterInfo, PassInfo, registry
from autoopt.registry.compat import answers
from autoopt.space import IGNORED, INVALID, Conditional, ConditionalDefault

FAMILIES: Final[dict[str, str]] = {
    "convert": "Bring a model into the form that the other passes take.",
    "composed": "Passes made of passes.",
    "cleanup": "Remove and merge what computes nothing.",
    "shape": "Find out shapes, and fix them.",
    "fusion": "Merge operators into fewer, larger ones.",
    "precision": "Compute in shorter floats.",
    "quantize": "Store and compute in integers, float8 or 4 bits.",
    "structure": "Cut, join and dress models, and choose the form in which they are stored.",
    "check": "Look at a model without changing it; the reports stand in `apply` and `lineage`.",
    "runtime": "Tell the runtime how to run the model.",
}


HEAD: Final = """# Passes

Made from the code by `python -m autoopt.passes.catalogue.document docs/passes.md`; a test checks that it is up to date.

A parameter is searched with `params: search` where *search* lists values; any parameter is searched with
`{search: [...]}`. "with *a* = x: ..." are conditions: what no case lists keeps its default, unless it is *not allowed*.
Tolerance is what a pass promises of its outputs: `lossless` the same bits, `equal` up to rounding, `lossy` it changes
them on purpose. A pass that *needs* another one has it inserted before it where the chain lacks it.
"""


def to_document(info: PassInfo) -> dict[str, Any]:
    """One entry of `autoopt passes list --json`."""
    return {
        "name": info.name,
        "family": info.family,
        "summary": info.summary,
        "parameters": [_parameter(parameter) for parameter in info.parameters],
        "requires": list(info.requires),
        "conflicts": list(info.conflicts),
        "accelerators": list(info.accelerators),
        "available": info.available,
        "aliases": list(info.aliases),
        "missing": info.missing,
        "tolerance": info.tolerance,
        "needs_data": info.needs_data,
        "needs_ops": list(info.needs_ops),
        "libraries": list(info.libraries),
        "origin": info.origin,
    }


def broken(failure: Failure) -> dict[str, Any]:
    """The entry of a plug-in that could not be loaded."""
    entry = to_document(PassInfo(failure.origin, "plug-in", "could not be loaded", missing=failure.reason))
    return {**entry, "origin": failure.origin}


def _parameter(parameter: ParameterInfo) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "type": parameter.type,
        "default": _branch(parameter.default) if parameter.default is not REQUIRED else None,
        "search": _branch(parameter.search) if parameter.search is not None else None,
        "required": parameter.default is REQUIRED,
        "description": parameter.description,
        "unit": parameter.unit,
        "category": parameter.category,
    }


def _branch(value: Any) -> Any:
    """A value, the list of a search parameter's values, or its cases where they depend on other parameters."""
    if value is INVALID or value is IGNORED:
        return repr(value).lower()
    if isinstance(value, (Conditional, ConditionalDefault)):
        cases = [{"values": list(values), "then": _branch(branch)} for values, branch in value.support]
        return {"parents": list(value.parents), "cases": cases, "otherwise": _branch(value.default)}
    return list(value.values()) if hasattr(value, "values") and not isinstance(value, dict) else value


def page() -> str:
    """docs/passes.md: built-in passes by family, and what does here what PopRT and Olive do."""
    known = registry()
    infos = [known.info(name) for name in known.dotted]
    parts = [HEAD]
    for family, text in FAMILIES.items():
        members = [info for info in infos if info.family == family]
        parts.append(f"## {family}\n\n{text}\n")
        parts += [_section(info) for info in members]
    parts.append(_compat())
    return "\n".join(parts)


def _section(info: PassInfo) -> str:
    facts = [f"tolerance `{info.tolerance}`", f"library {', '.join(info.libraries) or 'none'}"]
    for label, names in (
        ("needs", info.requires),
        ("conflicts with an earlier", info.conflicts),
        ("only for", info.accelerators),
        ("also called", info.aliases),
    ):
        if names:
            facts.append(f"{label} {', '.join(f'`{name}`' for name in names)}")
    if info.needs_data:
        facts.append("needs calibration data")
    if info.needs_ops:
        facts.append(f"for models with {', '.join(f'`{op}`' for op in info.needs_ops)}")
    lines = [f"### {info.name}", "", info.summary, "", f"{'; '.join(facts)}.", ""]
    if info.parameters:
        lines += ["| parameter | type | default | search | |", "|---|---|---|---|---|"]
        lines += [_row(parameter) for parameter in info.parameters]
        lines.append("")
    return "\n".join(lines)


def _row(parameter: ParameterInfo) -> str:
    default = "required" if parameter.default is REQUIRED else shown(_branch(parameter.default))
    search = "" if parameter.search is None else shown(_branch(parameter.search), listed=True)
    unit = f" ({parameter.unit})" if parameter.unit else ""
    cells = [f"`{parameter.name}`", f"`{parameter.type}`", default, search, parameter.description + unit]
    return _line(cells)


def _line(cells: list[str]) -> str:
    """A row of a Markdown table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def shown(value: Any, listed: bool = False) -> str:
    """A default or the search values, as `_branch` gives them, in Markdown."""
    if isinstance(value, dict) and "cases" in value:
        names = value["parents"]
        cases = []
        for case in value["cases"]:
            given = ", ".join(f"*{n}* = {json.dumps(v)}" for n, v in zip(names, case["values"], strict=True))
            cases.append(f"with {given}: {shown(case['then'], listed)}")
        rest = {"invalid": "else not allowed", "ignored": ""}.get(str(value["otherwise"]))
        cases.append(f"else {shown(value['otherwise'], listed)}" if rest is None else rest)
        return "; ".join(case for case in cases if case)
    if value == "invalid":
        return "not allowed"
    if listed and isinstance(value, list):
        return ", ".join(f"`{json.dumps(item)}`" for item in value)
    return f"`{json.dumps(value)}`"


def _compat() -> str:
    lines = ["## Names from elsewhere", "", "What `autoopt passes compat NAME` answers.", ""]
    for product in ("PopRT", "Olive"):
        lines += [f"| {product} | here |", "|---|---|"]
        rows = [answer for answer in answers().values() if answer.product == product]
        lines += [_line([f"`{answer.name}`", answer.text]) for answer in rows]
        lines.append("")
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    """Write the page to the file named."""
    Path(arguments[0]).write_text(page())


if __name__ == "__main__":
    main(sys.argv[1:])
