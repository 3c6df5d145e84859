"""Typed records as JSON and back: the one place that converts dataclasses.

Every record that crosses a process, a file or a database is a frozen dataclass; `to_json` writes it and `from_json`
reads it. Only the standard library is used, because worker interpreters may have nothing else.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from numbers import Integral
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, Union, overload

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

JsonValue: TypeAlias = Union[bool, int, float, str, Sequence["JsonValue"], Mapping[str, "JsonValue"], None]  # noqa: UP007
JsonObject: TypeAlias = Mapping[str, JsonValue]

_ANY_JSON = Union[bool, int, float, str, Sequence[object], Mapping[str, object], None]  # noqa: UP007
"""`JsonValue` as type hints resolve it."""

T = TypeVar("T")
Reader: TypeAlias = Callable[[Any, str], object]
"""Reads a JSON value as some type; the text is the place of the value, for errors."""
_JSON_SCALARS = frozenset({bool, int, float, str, types.NoneType})
_MAX_BYTES = 16 << 20
"""The largest file that `read_object` reads."""


class JsonTypeError(ValueError):
    """A JSON value does not fit the type it is read as. The message names the place: `candidate.path: expected str`."""


@overload
def to_json(value: DataclassInstance) -> dict[str, JsonValue]: ...
@overload
def to_json(value: object) -> Any: ...  # noqa: ANN401  the caller knows what it passed
def to_json(value: object) -> Any:
    """Convert a record to JSON values.

    Handles dataclasses, enums, paths, mappings, sequences and sets; sets are sorted.

    Raises:
        TypeError: a value of another type.
    """
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str | PurePath):
        return str(value)
    kind: type = type(value)
    if dataclasses.is_dataclass(kind):
        return {key: to_json(getattr(value, name)) for key, (name, _) in _field_types(kind).items()}
    if isinstance(value, enum.Enum):
        return to_json(value.value)
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    return _collection_to_json(value)


def without_nulls(fields: Mapping[str, T | None]) -> dict[str, T]:
    """The fields that are not null."""
    return {name: value for name, value in fields.items() if value is not None}


def read_object(file: Path) -> dict[str, Any]:
    """Read a JSON object from a file that anyone may have written; empty if there is none that can be read."""
    try:
        if not file.is_file() or file.stat().st_size > _MAX_BYTES:  # neither wait for a pipe nor fill the memory
            return {}
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    if isinstance(document, dict):
        return document
    return {}


def from_json(kind: type[T], value: object) -> T:
    """Read JSON values as a record of type `kind`.

    Missing fields take their defaults; unknown fields are ignored, so that older code reads newer records.

    Raises:
        JsonTypeError: a value of the wrong type, or a missing field without a default.
    """
    return typing.cast(T, _reader(kind)(value, ""))


@functools.cache
def _field_types(kind: type) -> dict[str, tuple[str, object]]:
    """Names and resolved types of the init fields of a dataclass, by JSON key.

    The key is the field's name, unless its metadata has another: `field(metadata={"json": "pass"})`.
    """
    # JsonValue refers to itself, and its name is not known in the module of the dataclass.
    hints = typing.get_type_hints(kind, localns={"JsonValue": object})
    return {f.metadata.get("json", f.name): (f.name, hints[f.name]) for f in dataclasses.fields(kind) if f.init}


@functools.cache
def _field_readers(kind: type) -> dict[str, tuple[str, Reader]]:
    """Names and readers of the init fields of a dataclass, by JSON key."""
    return {key: (name, _reader(field_type)) for key, (name, field_type) in _field_types(kind).items()}


def _collection_to_json(value: object) -> list[Any]:
    if isinstance(value, bytes) or not isinstance(value, Collection):
        raise TypeError(f"{type(value).__name__} has no JSON form")
    items: list[Any] = list(map(to_json, value))
    if isinstance(value, Set):
        items.sort()
    return items


def _reader(kind: Any) -> Reader:  # noqa: ANN401  a type hint may be any object
    """Choose the function that reads values of a type."""
    # Not cached: types that differ only in the order of their alternatives are equal, but are read differently.
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind in (Any, object, _ANY_JSON):
        return _read_anything
    if origin in (Union, types.UnionType):
        return _union_reader(arguments)
    if origin is Literal:
        return functools.partial(_read_literal, arguments)
    if origin is not None:
        return _collection_reader(origin, arguments)
    if dataclasses.is_dataclass(kind):
        return functools.partial(_read_dataclass, kind)
    return functools.partial(_read_scalar, kind)


def _read_anything(value: object, place: str) -> object:
    return value


def _union_reader(alternatives: tuple[object, ...]) -> Reader:
    if _JSON_SCALARS.issubset(alternatives):  # JsonValue: a union that refers to itself, so everything fits
        return _read_anything
    readers = [_reader(alternative) for alternative in alternatives if alternative is not types.NoneType]
    return functools.partial(_read_union, readers, types.NoneType in alternatives)


def _read_union(readers: Sequence[Reader], optional: bool, value: object, place: str) -> object:
    """The first alternative that fits."""
    if optional and value is None:
        return None
    problem = ""
    for read in readers:
        try:
            return read(value, place)
        except JsonTypeError as error:
            problem = str(error)
    raise JsonTypeError(problem)


def _read_literal(choices: tuple[object, ...], value: object, place: str) -> object:
    if value not in choices:
        raise _mismatch(f"one of {', '.join(map(repr, choices))}", place)
    return value


def _read_float(value: object, place: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _mismatch("a number", place)
    try:
        return float(value)
    except OverflowError:
        raise _mismatch("a number that is not so large", place) from None


def _read_scalar(kind: Any, value: Any, place: str) -> object:  # noqa: ANN401
    if kind is float:
        return _read_float(value, place)
    if kind is int and isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)  # also one of numpy
    if kind in (str, int, bool):
        if kind is int or not isinstance(value, kind):
            raise _mismatch(kind.__name__, place)
        return value
    try:
        return kind(value)
    except (TypeError, ValueError) as error:
        raise JsonTypeError(f"{place or 'value'}: expected {kind.__name__}: {error}") from None


def _collection_reader(origin: type, arguments: tuple[object, ...]) -> Reader:
    if issubclass(origin, Mapping):
        return functools.partial(_read_mapping, _reader(arguments[1]))
    if origin is tuple and arguments[-1] is not Ellipsis:
        return functools.partial(_read_fixed_tuple, list(map(_reader, arguments)))
    make: type = tuple
    if origin is list:
        make = list
    elif issubclass(origin, Set):
        make = frozenset
    return functools.partial(_read_sequence, make, _reader(arguments[0]))


def _read_mapping(read: Reader, value: object, place: str) -> object:
    if not isinstance(value, Mapping):
        raise _mismatch("an object", place)
    return {key: read(item, _join(place, key)) for key, item in value.items()}


def _read_fixed_tuple(readers: Sequence[Reader], value: object, place: str) -> object:
    items = _items(value, place)
    if len(items) != len(readers):
        raise _mismatch(f"{len(readers)} items", place)
    return tuple(read(items[index], _join(place, str(index))) for index, read in enumerate(readers))


def _read_sequence(make: type, read: Reader, value: object, place: str) -> object:
    return make(read(item, _join(place, str(index))) for index, item in enumerate(_items(value, place)))


def _items(value: object, place: str) -> list[object]:
    if not isinstance(value, Collection) or isinstance(value, str | Mapping):
        raise _mismatch("a list", place)
    return list(value)


def _read_dataclass(kind: Any, value: Any, place: str) -> object:  # noqa: ANN401
    if isinstance(value, kind):
        return value
    if not isinstance(value, Mapping):
        raise _mismatch(f"an object ({kind.__name__})", place)
    readers = _field_readers(kind)
    values = {}
    for key, item in value.items():
        if key in readers:
            name, read = readers[key]
            values[name] = read(item, _join(place, key))
    try:
        return kind(**values)
    except TypeError as error:
        raise JsonTypeError(f"{place or kind.__name__}: {error}") from None


def _mismatch(expected: str, place: str) -> JsonTypeError:
    return JsonTypeError(f"{place or 'value'}: expected {expected}")


def _join(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name
