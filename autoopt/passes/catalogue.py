"""Passes described to readers, and new ones written from a template: `autoopt passes list` and `autoopt passes new`."""

from __future__ import annotations

import json
import keyword
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Final

from autoopt.errors import InputError
from autoopt.registry import REQUIRED, ParameterInfo, PassInfo, registry
from autoopt.space import IGNORED, INVALID, Conditional, ConditionalDefault


def pass_entry(info: PassInfo) -> dict[str, object]:
    """Make one entry of `autoopt passes list --json`."""
    return {
        "name": info.name,
        "family": info.family,
        "summary": info.summary,
        "parameters": list(map(_parameter_entry, info.parameters)),
        "requires": list(info.requires),
        "conflicts": list(info.conflicts),
        "accelerators": list(info.accelerators),
        "available": info.available,
        "aliases": list(info.aliases),
        "missing": info.missing,
        "tolerance": info.tolerance,
        "needs_data": info.needs_data,
        "needs_ops": list(info.needs_ops),
        "refuses_ops": list(info.refuses_ops),
        "libraries": list(info.libraries),
        "origin": info.origin,
    }


def _parameter_entry(parameter: ParameterInfo) -> dict[str, object]:
    """Make the entry of one parameter."""
    required = parameter.default is REQUIRED
    entry: dict[str, object] = {
        "name": parameter.name,
        "type": parameter.type,
        "default": None,
        "search": None,
        "required": required,
        "description": parameter.description,
        "unit": parameter.unit,
        "category": parameter.category,
    }
    if not required:
        entry["default"] = _values_entry(parameter.default)
    if parameter.search is not None:
        entry["search"] = _values_entry(parameter.search)
    return entry


def _values_entry(value: object) -> object:
    """Turn a default or a search parameter into JSON: a value, a list of values, or the cases that decide on them."""
    if value is INVALID or value is IGNORED:
        return repr(value).lower()
    if isinstance(value, (Conditional, ConditionalDefault)):
        cases = [{"values": list(values), "then": _values_entry(branch)} for values, branch in value.support]
        return {"parents": list(value.parents), "cases": cases, "otherwise": _values_entry(value.default)}
    values = getattr(value, "values", None)
    if values is None or isinstance(value, dict):
        return value
    return list(values())


def parameter_texts(parameter: ParameterInfo) -> tuple[str, str]:
    """Render the default and the search values of a parameter in Markdown; the latter are empty if there are none."""
    default, search = "required", ""
    if parameter.default is not REQUIRED:
        default = _format_values(_values_entry(parameter.default))
    if parameter.search is not None:
        search = _format_values(_values_entry(parameter.search), listed=True)
    return default, search


def _format_values(value: object, listed: bool = False) -> str:
    """Render an entry's default or search values; `listed`: a list is one of values to choose from, not one value."""
    if isinstance(value, dict) and "cases" in value:
        return _format_cases(value, listed)
    if value == "invalid":
        return "not allowed"
    if listed and isinstance(value, list):
        return ", ".join(f"`{json.dumps(item)}`" for item in value)
    return f"`{json.dumps(value)}`"


def _format_cases(conditional: Mapping[str, list[dict[str, list[object]]]], listed: bool) -> str:
    parts = []
    for case in conditional["cases"]:
        conditions = []
        for parent, parent_value in zip(conditional["parents"], case["values"], strict=True):
            conditions.append(f"*{parent}* = {json.dumps(parent_value)}")
        parts.append(f"with {', '.join(conditions)}: {_format_values(case['then'], listed)}")
    otherwise: object = conditional["otherwise"]
    if otherwise != "ignored":
        parts.append(f"else {_format_values(otherwise, listed)}")
    return "; ".join(parts)


TEMPLATES: Final = {"$name.py": "pass_template.txt", "test_$name.py": "pass_test_template.txt"}
"""Name of a new file -> its template, beside this module."""


def new_pass(name: str, folder: Path) -> list[Path]:
    """Write `NAME.py` and `test_NAME.py` into `folder`; returns both files.

    Raises:
        InputError: the name is not a lower-case Python name or belongs to a pass, the folder does not exist, or a file
            of that name does.
    """
    if not name.isidentifier() or not name.islower() or keyword.iskeyword(name):
        raise InputError(f"{name!r} cannot name a pass file", remedy="use lower-case letters, digits and _")
    if name in registry().names():
        raise InputError(f"pass {name!r} already exists", remedy="choose another name")
    if not folder.is_dir():
        raise InputError("no such folder", where=str(folder))
    values = {"name": name, "class_name": "".join(part.capitalize() for part in name.split("_"))}
    files = {folder / Template(file).substitute(values): template for file, template in TEMPLATES.items()}
    taken = next(filter(Path.exists, files), None)
    if taken is not None:
        raise InputError("already exists", where=str(taken), remedy="choose another name or folder")
    for path, template in files.items():
        path.write_text(Template(Path(__file__).with_name(template).read_text()).substitute(values))
    return list(files)
