"""JSON to values with line numbers. The standard reader checks the syntax; a second walk finds the lines."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from autoopt.spec.document import MAX_DEPTH, Builder, Json, check_number, check_text, integer
from autoopt.spec.source import Place

_TOKEN: Final = re.compile(r'\n|"(?:\\.|[^"\\])*"|[{}\[\]:,]|[^\s{}\[\]:,"]+')


def read_json(text: str, file: str) -> tuple[Json, dict[Place, int]]:
    """The value in `text`, and the line of each of its fields.

    Raises:
        ConfigError: malformed, duplicate keys, too deep, not a finite number.
    """
    build = Builder(file)
    _check_syntax(text, build)
    line = 1
    for token in _TOKEN.findall(text):
        if token == "\n":
            line += 1
        elif token in "{[":
            build.begin({} if token == "{" else [], line)
        elif token in "}]":
            build.end()
        elif token in ":,":
            continue
        elif build.wants_key:
            build.key(json.loads(token), line)
        else:
            build.scalar(_scalar, token, line)
    return build.root, build.lines


def _check_syntax(text: str, build: Builder) -> None:
    depth = 0
    line = 1
    for token in _TOKEN.findall(text):
        line += token == "\n"
        depth += (token in ("{", "[")) - (token in ("}", "]"))
        if depth > MAX_DEPTH:
            raise build.fail(f"is nested deeper than {MAX_DEPTH} levels", line)
    try:
        json.loads(text, parse_int=str, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise build.fail(f"is not JSON: {error.msg[:1].lower()}{error.msg[1:]}", error.lineno) from error
    except ValueError as error:
        raise build.fail(f"is not JSON: {error}", 1) from error


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _scalar(token: str) -> Json:
    if token[0] == '"':
        return check_text(json.loads(token))
    if token in ("true", "false", "null"):
        return json.loads(token)
    if token.lstrip("-").isdigit():
        return integer(token)
    return check_number(float(token))
