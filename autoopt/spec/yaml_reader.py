"""YAML 1.2 (core schema) with line numbers. Aliases, anchors, tags and second documents are refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from autoopt.errors import ConfigError, one_line
from autoopt.spec.document import Builder, Json, check_number, check_text, parse_integer
from autoopt.spec.source import Place

if TYPE_CHECKING:
    from ruamel.yaml.events import DocumentStartEvent, Event, NodeEvent, ScalarEvent

_CONSTANTS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGERS: Final = (
    (re.compile(r"[-+]?[0-9]+\Z"), 10, ""),
    (re.compile(r"0x[0-9a-fA-F]+\Z"), 16, "0x"),
    (re.compile(r"0o[0-7]+\Z"), 8, "0o"),
)
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_NOT_FINITE: Final = re.compile(r"([-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))\Z")


def read_yaml(text: str, file: str) -> tuple[Json, dict[Place, int]]:
    """Return the one document in `text`, and the line of each of its fields.

    Raises:
        ConfigError: malformed, or with features that configuration files may not use.
    """
    from ruamel.yaml import events

    build = Builder(file)
    documents = 0
    for event in _parse(text, build):
        line = event.start_mark.line + 1
        if isinstance(event, events.NodeEvent):
            _check_node(event, build, line)
        if isinstance(event, events.DocumentStartEvent):
            documents += 1
            _check_document(event, documents, build, line)
        elif isinstance(event, events.MappingStartEvent):
            build.begin({}, line)
        elif isinstance(event, events.SequenceStartEvent):
            build.begin([], line)
        elif isinstance(event, events.MappingEndEvent | events.SequenceEndEvent):
            build.end()
        elif isinstance(event, events.ScalarEvent):
            _add_scalar(event, build, line)
    if not documents:
        raise build.fail("is empty", 1)
    return build.root, build.lines


def _parse(text: str, build: Builder) -> Iterator[Event]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        yield from YAML(typ="safe", pure=True).parse(text)
    except ConfigError:
        raise
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        reason = " ".join(part for part in (error.context, error.problem) if part)
        raise build.fail(f"is not YAML: {one_line(reason)}", line) from error
    except YAMLError as error:
        line = text.count("\n", 0, getattr(error, "position", 0)) + 1
        reason = getattr(error, "reason", "") or "malformed"
        raise build.fail(f"is not YAML: {one_line(reason)}", line) from error
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, AssertionError, NotImplementedError) as error:
        # The parser itself fails on some malformed files.
        raise build.fail("is not YAML: malformed", 1) from error


def _check_document(event: DocumentStartEvent, number: int, build: Builder, line: int) -> None:
    if number > 1:
        raise build.fail("holds a second document", line, remedy="write one document per file")
    if event.version and tuple(event.version) != (1, 2):
        raise build.fail("must be YAML 1.2", line, remedy="remove the %YAML line")
    if event.tags:
        raise build.fail("tags are not allowed", line, remedy="remove the %TAG line")


def _check_node(event: NodeEvent, build: Builder, line: int) -> None:
    from ruamel.yaml import events

    if isinstance(event, events.AliasEvent):
        raise build.fail("aliases are not allowed", line, remedy="write the value out")
    if event.anchor is not None:
        raise build.fail("anchors are not allowed", line, remedy="write the value out where it is needed")
    tag = getattr(event, "tag", None)
    if tag is not None:
        raise build.fail("tags are not allowed", line, remedy=f"remove {one_line(str(tag))}")


def _add_scalar(event: ScalarEvent, build: Builder, line: int) -> None:
    if not build.wants_key:
        parse = _parse_plain if event.implicit[0] else check_text
        build.scalar(parse, event.value, line)
    elif event.value == "<<" and not event.style:
        raise build.fail("merge keys are not allowed", line, remedy="write the values out")
    else:
        build.key(event.value, line)


def _parse_plain(text: str) -> Json:
    """Parse a plain (unquoted) scalar by the core schema."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    for pattern, base, prefix in _INTEGERS:
        if pattern.match(text):
            return parse_integer(text.removeprefix(prefix), base)
    if _FLOAT.match(text):
        return check_number(float(text))
    if _NOT_FINITE.match(text):
        return check_number(float("inf"))
    return check_text(text)
