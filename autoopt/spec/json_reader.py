"""JSON with line numbers: the standard reader checks the syntax, and a second pass finds the lines."""

from __future__ import annotations

import json
import re
from typing import Final

from autoopt.spec.document import Builder, Json, check_number, check_text, parse_integer
from autoopt.spec.source import Place

_TOKEN: Final = re.compile(r'\n|"(?:\\.|[^"\\])*"|[{}\[\]:,]|[^\s{}\[\]:,"]+')
_CONSTANTS: Final[dict[str, Json]] = {"true": True, "false": False, "null": None}


def read_json(text: str, file: str) -> tuple[Json, dict[Place, int]]:
    """Return the value in `text`, and the line of each of its fields.

    Raises:
        ConfigError: malformed, duplicate keys, too deep, or not a finite number.
    """
    build = Builder(file)
    _check_syntax(text, build)
    line = 1
    for token in _TOKEN.findall(text):
        if token == "\n":
            line += 1
        elif token == "{":
            build.begin({}, line)
        elif token == "[":
            build.begin([], line)
        elif token in "}]":
            build.end()
        elif token in ":,":
            continue
        elif build.wants_key:
            build.key(json.loads(token), line)
        else:
            build.scalar(_parse_scalar, token, line)
    return build.root, build.lines


def _check_syntax(text: str, build: Builder) -> None:
    try:
        json.loads(text, parse_int=str, parse_constant=_refuse_constant)
    except RecursionError:
        pass  # the builder refuses such a depth, and names its line
    except json.JSONDecodeError as error:
        raise build.fail(f"is not JSON: {error.msg[:1].lower()}{error.msg[1:]}", error.lineno) from error
    except ValueError as error:
        raise build.fail(f"is not JSON: {error}", 1) from error


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _parse_scalar(token: str) -> Json:
    if token[0] == '"':
        return check_text(json.loads(token))
    if token in _CONSTANTS:
        return _CONSTANTS[token]
    if token.lstrip("-").isdigit():
        return parse_integer(token)
    return check_number(float(token))
