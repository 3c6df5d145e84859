"""YAML 1.2 (core schema) to JSON values with line numbers. No aliases, anchors, tags or second documents."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from autoopt.errors import ConfigError, one_line
from autoopt.spec.document import Builder, Json, check_number, check_text, integer
from autoopt.spec.source import Place

_NULL: Final = frozenset(("", "~", "null", "Null", "NULL"))
_BOOL: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER: Final = re.compile(r"[-+]?[0-9]+\Z")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_SPECIAL: Final = re.compile(r"([-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))\Z")


def read_yaml(text: str, file: str) -> tuple[Json, dict[Place, int]]:
    """The one document in `text`, and the line of each of its fields.

    Raises:
        ConfigError: malformed, or uses what configuration files may not.
    """
    build = Builder(file)
    documents = 0
    for event, kind, line in _events(text, build):
        if kind == "DocumentStartEvent":
            documents += 1
            _check_document(event, documents, build, line)
        elif kind == "AliasEvent":
            raise build.fail("aliases are not allowed", line, remedy="write the value out")
        elif kind == "ScalarEvent":
            _check_node(event, build, line)
            if build.wants_key:
                if event.value == "<<" and event.style in (None, ""):
                    raise build.fail("merge keys are not allowed", line, remedy="write the values out")
                build.key(event.value, line)
            else:
                build.scalar(_plain if event.implicit[0] else check_text, event.value, line)
        elif kind in ("MappingStartEvent", "SequenceStartEvent"):
            _check_node(event, build, line)
            build.begin({} if kind == "MappingStartEvent" else [], line)
        elif kind in ("MappingEndEvent", "SequenceEndEvent"):
            build.end()
    if not documents:
        raise build.fail("is empty", 1)
    return build.root, build.lines


def _events(text: str, build: Builder) -> Iterator[tuple[Any, str, int]]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        for event in YAML(typ="safe", pure=True).parse(text):
            yield event, type(event).__name__, event.start_mark.line + 1
    except ConfigError:
        raise
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = " ".join(part for part in (error.context, error.problem) if part)
        raise build.fail(f"is not YAML: {one_line(reason)}", mark.line + 1 if mark else 1) from error
    except YAMLError as error:
        line = text.count("\n", 0, getattr(error, "position", 0)) + 1
        raise build.fail(f"is not YAML: {one_line(getattr(error, 'reason', '') or 'malformed')}", line) from error
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, AssertionError, NotImplementedError) as error:
        raise build.fail("is not YAML: malformed", 1) from error  # the parser itself stumbled over it


def _check_document(event: Any, number: int, build: Builder, line: int) -> None:
    if number > 1:
        raise build.fail("holds a second document", line, remedy="write one document per file")
    if event.version and tuple(event.version) != (1, 2):
        raise build.fail("must be YAML 1.2", line, remedy="remove the %YAML line")
    if event.tags:
        raise build.fail("tags are not allowed", line, remedy="remove the %TAG line")


def _check_node(event: Any, build: Builder, line: int) -> None:
    if event.anchor is not None:
        raise build.fail("anchors are not allowed", line, remedy="write the value out where it is needed")
    if event.tag is not None:
        raise build.fail("tags are not allowed", line, remedy=f"remove {one_line(str(event.tag))}")


def _plain(text: str) -> Json:
    """A plain (unquoted) scalar by the core schema."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _INTEGER.match(text):
        return integer(text)
    if text[:2] in ("0x", "0o") and re.match(r"0x[0-9a-fA-F]+\Z|0o[0-7]+\Z", text):
        return integer(text[2:], 16 if text[1] == "x" else 8)
    if _FLOAT.match(text):
        return check_number(float(text))
    if _SPECIAL.match(text):
        return check_number(float("inf"))
    return check_text(text)
