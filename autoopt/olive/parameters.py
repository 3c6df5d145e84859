"""Parameters of Olive's passes by the names and values of autoopt's passes.

`parameters.txt` is the table; its head says what a line means.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from autoopt.errors import InputError
from autoopt.json_codec import JsonValue
from autoopt.olive.config import Remarks, Section, section
from autoopt.registry import PassInfo
from autoopt.spec.source import Place

_TABLE: Final = Path(__file__).with_name("parameters.txt")
_SILENT: Final = ("data_config", "evaluator", "host", "disable_search", "quant_mode", "quant_preprocess", "output_name")
"""Parameters that other parts of the conversion read."""
_OWN_SEARCH: Final = "SEARCHABLE_VALUES"
_OWN_DEFAULT: Final = "DEFAULT_VALUE"


@dataclass(frozen=True)
class _Line:
    """One line of the table."""

    name: str
    values: Mapping[str, JsonValue]
    reason: str = ""
    """The reason for which autoopt has no such parameter, if it has none."""


@lru_cache(maxsize=1)
def _lines() -> Mapping[str, _Line]:
    lines = {}
    rows = [row for row in _TABLE.read_text(encoding="utf-8").splitlines() if row and not row.startswith("#")]
    for row in rows:
        olive, name, rest = (part.strip() for part in f"{row} ".split(" | "))
        if name == "-":
            lines[olive] = _Line("", {}, rest)
        else:
            lines[olive] = _Line(name, json.loads(rest or "{}"))
    return lines


def parameters(info: PassInfo, params: Section, place: Place, remarks: Remarks) -> dict[str, JsonValue]:
    """Return the parameters of autoopt's pass for those of Olive's; a remark for each that it does not have."""
    result: dict[str, JsonValue] = {}
    names = [parameter.name for parameter in info.parameters]
    fields = dict(params)
    extra = section(fields.pop("extra_options", None))
    for name, value in {**fields, **extra}.items():
        if value is None or name in _SILENT:
            continue
        line = _lines().get(name, _Line(name, {}))
        here = (*place, name)
        if line.reason:
            if value:
                remarks.add(here, "is left out", line.reason)
            continue
        if line.name not in names:
            remarks.add(
                here, f"is left out: {info.name} has no such parameter", f"see 'autoopt passes show {info.name}'"
            )
            continue
        try:
            result[line.name] = _setting(info, line, value)
        except InputError as error:
            remarks.add(here, f"is left out: {error.what}", error.remedy)
    return result


def _setting(info: PassInfo, line: _Line, value: JsonValue) -> JsonValue:
    """A parameter as dag.yaml writes it.

    Raises:
        InputError: the parameter cannot have this value.
    """
    if value == _OWN_SEARCH:
        return "search"
    if value == _OWN_DEFAULT:
        return "default"
    values = _search_values(info, line, value)
    if values is None:
        return _value(info, line, value)
    converted = [_value(info, line, item) for item in values]
    if len(converted) == 1:
        return converted[0]
    return {"search": converted}


def _search_values(info: PassInfo, line: _Line, value: JsonValue) -> Sequence[JsonValue] | None:
    """The values to search; None if the value is a single one."""
    fields = section(value)
    if fields.get("olive_parameter_type") == "SearchParameter":
        support = fields.get("support")
        if fields.get("type") != "Categorical" or not isinstance(support, Sequence):
            raise InputError(f"searches {fields.get('type')} values", remedy="write {search: [...]} in dag.yaml")
        return support
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        return None
    if info.parameter(line.name).check(value) is None:
        return None  # the parameter itself is a list
    return value


def _value(info: PassInfo, line: _Line, value: JsonValue) -> JsonValue:
    """One value of a parameter."""
    parameter = info.parameter(line.name)
    converted = value
    if isinstance(value, str):
        converted = line.values.get(value, value)
    elif isinstance(value, int):
        converted = line.values.get(json.dumps(value), value)
    reason = parameter.check(converted)
    if reason:
        raise InputError(f"{line.name} {reason}")
    return converted
