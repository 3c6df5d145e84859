"""Files (YAML 1.2, JSON), Python mappings and `--set` assignments as documents with line numbers.

YAML is the core schema; aliases, anchors, tags and second documents are refused. The standard reader checks the syntax
of JSON, and a second pass finds the lines.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Final

from autoopt.errors import ConfigError, InputError, one_line
from autoopt.settings import without_password
from autoopt.spec.document import Builder, Document, Json, check_number, check_text, parse_integer
from autoopt.spec.source import FieldError, Place, Source, dotted

if TYPE_CHECKING:
    from ruamel.yaml.events import DocumentStartEvent, Event, NodeEvent, ScalarEvent

MAX_BYTES: Final = 512 * 1024
DATA_SUFFIXES: Final = (".npz", ".npy", ".csv", ".tsv", ".parquet")
EXPORT_COMMAND: Final = "optimum-cli export onnx --model FOLDER --task TASK OUT"
_URL: Final = re.compile(r"([a-z][a-z0-9+.-]+):/+(?!/)", re.IGNORECASE)
OPTION: Final = "--set"
_TOKEN: Final = re.compile(r'\n|"(?:\\.|[^"\\])*"|[{}\[\]:,]|[^\s{}\[\]:,"]+')
_JSON_CONSTANTS: Final[dict[str, Json]] = {"true": True, "false": False, "null": None}
_YAML_CONSTANTS: Final[dict[str, bool | None]] = {
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


def read_document(given: str | Path | Mapping[str, object]) -> Document:
    """Read a YAML or JSON file, or copy a Python mapping.

    Raises:
        ConfigError: the file is missing, too large or malformed; the mapping holds values that JSON does not have.
    """
    if isinstance(given, Mapping):
        build = Builder("<dict>")
        _copy(given, build)
        return Document(build.root, Source("<dict>"))
    if _URL.match(str(given)):  # a Path turns :// into :/
        address = without_password(_URL.sub(r"\1://", str(given)))
        raise ConfigError("is an address, not a file", file=address, line=0, remedy="download it first")
    path = Path(given)
    text = _read_text(path)
    if path.suffix == ".json":
        value, lines = read_json(text, str(given))
    else:
        value, lines = read_yaml(text, str(given))
    return Document(value, Source(str(given), path.absolute().parent, lines))


def _read_text(path: Path) -> str:
    file = str(path)
    try:
        if path.is_dir():
            raise ConfigError("is a folder, not a file", file=file, line=0)
        with open(path, "rb", opener=_open_at_once) as stream:
            content = stream.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise ConfigError(
            "cannot be read (no such file or directory)", file=file, line=0, remedy=_similar_file(path)
        ) from error
    except OSError as error:
        raise ConfigError(f"cannot be read ({(error.strerror or 'not a path').lower()})", file=file, line=0) from error
    except ValueError as error:
        raise ConfigError("cannot be read (not a path)", file=file, line=0) from error
    if path.suffix.lower() in DATA_SUFFIXES:
        remedy = f"name it behind the model: autoopt run model.onnx --data {shlex.quote(path.name)}"
        raise ConfigError("is data, not a model or a YAML file", file=file, remedy=remedy)
    if path.suffix.lower() == ".safetensors":
        remedy = f"export the folder of a Hugging Face model to ONNX: {EXPORT_COMMAND}"
        raise ConfigError("has weights without a model", file=file, remedy=remedy)
    if len(content) > MAX_BYTES:
        raise ConfigError(f"is larger than {MAX_BYTES // 1024} KiB", file=file)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError("is not UTF-8 text", file=file, line=line) from error


def _open_at_once(path: str, flags: int) -> int:
    """Open a file without waiting: a pipe that nobody writes to is empty."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)  # a writer may still need time to write
    return descriptor


def _similar_file(path: Path) -> str:
    """A hint at a file of the same folder with a similar name; empty if there is none."""
    with suppress(OSError):  # there may be no such folder
        near = get_close_matches(path.name, [file.name for file in path.parent.iterdir()], n=1, cutoff=0.8)
        if near:
            return f"did you mean {near[0]!r}?"
    return ""


def _copy(value: object, build: Builder) -> None:
    """Copy a Python value as JSON: tuples become lists, paths become text."""
    if isinstance(value, Mapping):
        build.begin({}, 1)
        for key, item in value.items():
            if not isinstance(key, str):
                raise build.fail(f"key {key!r} must be text", 1, build.place)
            build.key(key, 1)
            _copy(item, build)
        build.end()
    elif isinstance(value, list | tuple):
        build.begin([], 1)
        for item in value:
            _copy(item, build)
        build.end()
    else:
        build.scalar(_plain_scalar, value, 1)


def _plain_scalar(value: object) -> Json:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str | Path):
        return check_text(str(value))
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return check_number(float(value))
    raise FieldError(f"must be a JSON value, not {type(value).__name__}")


def read_json(text: str, file: str) -> tuple[Json, dict[Place, int]]:
    """Return the value in `text`, and the line of each of its fields.

    Raises:
        ConfigError: malformed, duplicate keys, too deep, or not a finite number.
    """
    build = Builder(file)
    _check_json(text, build)
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
            build.scalar(_parse_json, token, line)
    return build.root, build.lines


def _check_json(text: str, build: Builder) -> None:
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


def _parse_json(token: str) -> Json:
    if token[0] == '"':
        return check_text(json.loads(token))
    if token in _JSON_CONSTANTS:
        return _JSON_CONSTANTS[token]
    if token.lstrip("-").isdigit():
        return parse_integer(token)
    return check_number(float(token))


def read_yaml(text: str, file: str) -> tuple[Json, dict[Place, int]]:
    """Return the one document in `text`, and the line of each of its fields.

    Raises:
        ConfigError: malformed, or with features that configuration files may not use.
    """
    from ruamel.yaml import events

    build = Builder(file)
    documents = 0
    for event in _yaml_events(text, build):
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


def _yaml_events(text: str, build: Builder) -> Iterator[Event]:
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
    if text in _YAML_CONSTANTS:
        return _YAML_CONSTANTS[text]
    for pattern, base, prefix in _INTEGERS:
        if pattern.match(text):
            return parse_integer(text.removeprefix(prefix), base)
    if _FLOAT.match(text):
        return check_number(float(text))
    if _NOT_FINITE.match(text):
        return check_number(float("inf"))
    return check_text(text)


def parse_fields(assignments: Sequence[str], option: str = OPTION) -> dict[str, Json]:
    """Read `["search.seed=7", "chains=[[a, b]]"]` as `{"search.seed": 7, "chains": [["a", "b"]]}`.

    Raises:
        InputError: there is no `=`, a name is given twice, or a list or mapping is malformed.
    """
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
        holder, place = _holder_of(name, value, document.source)
        holder[str(place[-1])] = given
        lines = {each: line for each, line in lines.items() if each[: len(place)] != place}
        lines[place] = 0
    return Document(value, replace(document.source, lines=lines))


def _holder_of(name: str, holder: dict[str, Json], source: Source) -> tuple[dict[str, Json], Place]:
    """The mapping below `holder` that holds a field, made if it is missing, and the field's place."""
    place: Place = ()
    while "." in name:
        # Names of nodes may have dots.
        known = [key for key in holder if name.startswith(f"{key}.")]
        key = max(known, key=len) if known else name.partition(".")[0]
        place, name = (*place, key), name[len(key) + 1 :]
        inner = holder.setdefault(key, {})
        if inner is None:
            inner = holder[key] = {}
        if not isinstance(inner, dict):
            remedy = f"set it as a whole: {OPTION} {dotted(place)}=..."
            raise source.error(place, "is no mapping of fields", remedy)
        holder = inner
    return holder, (*place, name)
