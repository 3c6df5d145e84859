"""Fields of a configuration file that a command overrides by their dotted names, as `--set search.order=joint` does."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace

from autoopt.errors import InputError
from autoopt.spec.document import Document, Json
from autoopt.spec.source import Place, dotted

OPTION = "--set"


def parse_fields(assignments: Sequence[str], option: str = OPTION) -> dict[str, Json]:
    """Read `["search.seed=7", "chains=[[a, b]]"]` as `{"search.seed": 7, "chains": [["a", "b"]]}`.

    Raises:
        InputError: there is no `=`, a name is given twice, or a list or mapping is malformed.
    """
    from autoopt.spec.yaml_reader import read_yaml

    fields: dict[str, Json] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals or not name:
            raise InputError(f"must be NAME=VALUE, not {assignment!r}", where=option)
        if name in fields:
            raise InputError(f"{name!r} is given twice", where=option)
        try:
            fields[name] = json.loads(text)
        except (ValueError, RecursionError):
            fields[name] = read_yaml(text, option)[0] if text.startswith(("[", "{")) else text
    return fields


def overridden(document: Document, fields: Mapping[str, Json]) -> Document:
    """Return the document with other values of some fields. Errors at these fields name no line of the file.

    Raises:
        ConfigError: a field is said to be below one that holds no mapping.
    """
    if not fields or not isinstance(document.value, dict):
        return document
    value, lines = deepcopy(document.value), dict(document.source.lines)
    for name, given in fields.items():
        holder, rest = value, name
        place: Place = ()
        while "." in rest:
            # Names of nodes may have dots.
            known = [key for key in holder if rest.startswith(f"{key}.")]
            key = max(known, key=len) if known else rest.partition(".")[0]
            place, rest = (*place, key), rest[len(key) + 1 :]
            inner = holder.setdefault(key, {})
            if inner is None:
                inner = holder[key] = {}
            if not isinstance(inner, dict):
                raise document.source.error(
                    place, "is no mapping of fields", f"set it as a whole: {OPTION} {dotted(place)}=..."
                )
            holder = inner
        holder[rest] = given
        place = (*place, rest)
        lines = {each: line for each, line in lines.items() if each[: len(place)] != place}
        lines[place] = 0
    return Document(value, replace(document.source, lines=lines))
