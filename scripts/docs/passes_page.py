"""The page of all passes in the site, made from the registry."""

from __future__ import annotations

from typing import Final

from autoopt.passes.catalogue import parameter_texts
from autoopt.registry import ParameterInfo, PassInfo, registry
from autoopt.registry.compat import answers

FAMILIES: Final[dict[str, str]] = {
    "convert": "Convert models into a form that other passes accept.",
    "composed": "Combine other passes.",
    "cleanup": "Remove or merge what computes nothing.",
    "shape": "Infer shapes, and fix open dimensions.",
    "fusion": "Merge operators into fewer, larger ones.",
    "precision": "Compute in shorter floats.",
    "quantize": "Store and compute in integers, float8 or 4 bits.",
    "structure": "Split, join and extend models, and choose how they are stored.",
    "check": "Analyze a model without changing it. `autoopt apply` and `autoopt lineage` show the reports.",
    "runtime": "Configure how the runtime executes the model.",
}
HEAD: Final = """# Passes

`params: search` searches every parameter that lists values under *search*; `{search: [...]}` searches any parameter.
"with *a* = x: ..." gives values for one case. In all other cases the parameter keeps its default, unless it is
*not allowed*. Tolerance is what a pass promises about its outputs: `lossless` (the same bits), `equal` (equal up to
rounding) or `lossy` (changed on purpose). If a chain lacks a pass that another one *needs*, it is inserted.
"""


def page() -> str:
    """Built-in passes by family, then the equivalents of other products' passes."""
    passes = registry()
    infos = list(map(passes.info, passes.dotted))
    parts = [HEAD]
    for family, text in FAMILIES.items():
        parts.append(f"## {family}\n\n{text}\n")
        parts.extend(_section(info) for info in infos if info.family == family)
    parts.append(_compat_section())
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
            facts.append(f"{label} {_code_list(names)}")
    if info.needs_data:
        facts.append("needs calibration data")
    if info.needs_ops:
        facts.append(f"for models with {_code_list(info.needs_ops)}")
    if info.refuses_ops:
        facts.append(f"not for models with {_code_list(info.refuses_ops)}")
    lines = [f"### {info.name}", "", info.summary, "", f"{'; '.join(facts)}.", ""]
    if info.parameters:
        lines += ["| parameter | type | default | search | |", "|---|---|---|---|---|"]
        lines += list(map(_parameter_row, info.parameters))
        lines.append("")
    return "\n".join(lines)


def _code_list(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _parameter_row(parameter: ParameterInfo) -> str:
    default, search = parameter_texts(parameter)
    description = parameter.description
    if parameter.unit:
        description += f" ({parameter.unit})"
    return _table_row([f"`{parameter.name}`", f"`{parameter.type}`", default, search, description])


def _table_row(cells: list[str]) -> str:
    escaped = [cell.replace("|", "\\|") for cell in cells]
    return f"| {' | '.join(escaped)} |"


def _compat_section() -> str:
    lines = ["## Passes of other products", "", "The answers of `autoopt passes show NAME`.", ""]
    for product in ("PopRT", "Olive", "Olive surgery"):
        lines += [f"| {product} | autoopt |", "|---|---|"]
        for answer in answers().values():
            if answer.product == product:
                lines.append(_table_row([f"`{answer.name}`", answer.text]))
        lines.append("")
    return "\n".join(lines)
