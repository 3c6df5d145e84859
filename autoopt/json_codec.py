"""Typed records as JSON and back: the one place that converts dataclasses.

Every record that crosses a process, a file or a database is a frozen dataclass; `to_json` writes it and `from_json`
reads it. Only the standard library is used, because worker interpreters may have nothing else.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
import typing
from collections.abc import Collection, Mapping, Sequence, Set
from pathlib import PurePath
from typing import Any, Literal, TypeAlias, TypeVar, Union

JsonValue: TypeAlias = Union[bool, int, float, str, Sequence["JsonValue"], Mapping[str, "JsonValue"], None]  # noqa: UP007
JsonObject: TypeAlias = Mapping[str, JsonValue]

_ANY_JSON = Union[bool, int, float, str, Sequence[object], Mapping[str, object], None]  # noqa: UP007
"""`JsonValue` as type hints resolve it."""

T = TypeVar("T")
_JSON_SCALARS = frozenset({bool, int, float, str, types.NoneType})


class JsonTypeError(ValueError):
    """A JSON value does not fit the type it is read as. The message names the place: `candidate.path: expected str`."""


def to_json(value: object) -> Any:  # noqa: ANN401  the caller knows what it passed
    """Convert a record to JSON values.

    Handles dataclasses, enums, paths, mappings, sequences and sets; sets are sorted.

    Raises:
        TypeError: a value of another type.
    """
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str | PurePath):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: to_json(getattr(value, name)) for name in _field_types(type(value))}
    if isinstance(value, enum.Enum):
        return to_json(value.value)
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, bytes) or not isinstance(value, Collection):
        raise TypeError(f"{type(value).__name__} has no JSON form")
    items = [to_json(item) for item in value]
    return sorted(items) if isinstance(value, Set) else items


def from_json(kind: type[T], value: object) -> T:
    """Read JSON values as a record of type `kind`.

    Missing fields take their defaults; unknown fields are ignored, so that older code reads newer records.

    Raises:
        JsonTypeError: a value of the wrong type, or a missing field without a default.
    """
    return typing.cast(T, _read(kind, value, ""))


@functools.cache
def _field_types(kind: type) -> dict[str, object]:
    """Init fields of a dataclass with their resolved types."""
    # JsonValue refers to itself, and its name is not known in the module of the dataclass.
    hints = typing.get_type_hints(kind, localns={"JsonValue": object})
    return {f.name: hints[f.name] for f in dataclasses.fields(kind) if f.init}


def _read(kind: Any, value: Any, place: str) -> object:  # noqa: ANN401  a type hint may be any object
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind in (Any, object, _ANY_JSON):
        return value
    if origin in (Union, types.UnionType):
        return _read_union(arguments, value, place)
    if origin is Literal:
        _expect(value in arguments, f"one of {', '.join(map(repr, arguments))}", place)
        return value
    if origin is not None:
        return _read_collection(origin, arguments, value, place)
    if dataclasses.is_dataclass(kind):
        return _read_dataclass(kind, value, place)
    return _read_scalar(kind, value, place)


def _read_union(alternatives: tuple[object, ...], value: object, place: str) -> object:
    """The first alternative that fits."""
    if _JSON_SCALARS.issubset(alternatives):  # JsonValue: a union that refers to itself, so everything fits
        return value
    problem = ""
    for alternative in alternatives:
        try:
            return _read(alternative, value, place)
        except JsonTypeError as error:
            # The reason why the record did not fit says more than "expected null".
            problem = problem if alternative is types.NoneType else str(error)
    raise JsonTypeError(problem)


def _read_scalar(kind: Any, value: Any, place: str) -> object:  # noqa: ANN401
    if kind is float:
        _expect(isinstance(value, int | float) and not isinstance(value, bool), "a number", place)
        return float(value)
    if kind is types.NoneType:
        _expect(value is None, "null", place)
        return None
    if kind in (str, int, bool):
        _expect(isinstance(value, kind) and (kind is bool or not isinstance(value, bool)), kind.__name__, place)
        return value
    try:
        return kind(value)
    except (TypeError, ValueError) as error:
        raise JsonTypeError(f"{place or 'value'}: expected {kind.__name__}: {error}") from None


def _read_collection(origin: type, arguments: tuple[object, ...], value: object, place: str) -> object:
    if issubclass(origin, Mapping):
        _expect(isinstance(value, Mapping), "an object", place)
        entries = typing.cast(Mapping[str, object], value)
        return {key: _read(arguments[1], item, _join(place, key)) for key, item in entries.items()}
    _expect(isinstance(value, Collection) and not isinstance(value, str | Mapping), "a list", place)
    items = list(typing.cast(Collection[object], value))
    if origin is tuple and arguments[-1] is not Ellipsis:
        _expect(len(items) == len(arguments), f"{len(arguments)} items", place)
        element_types = list(arguments)
    else:
        element_types = [arguments[0]] * len(items)
    elements = [
        _read(kind, item, _join(place, str(index)))
        for index, (kind, item) in enumerate(zip(element_types, items, strict=True))
    ]
    if issubclass(origin, Set):
        return frozenset(elements)
    if origin is list:
        return elements
    return tuple(elements)


def _read_dataclass(kind: Any, value: Any, place: str) -> object:  # noqa: ANN401
    if isinstance(value, kind):
        return value
    _expect(isinstance(value, Mapping), f"an object ({kind.__name__})", place)
    known = _field_types(kind)
    values = {name: _read(known[name], item, _join(place, name)) for name, item in value.items() if name in known}
    try:
        return kind(**values)
    except TypeError as error:
        raise JsonTypeError(f"{place or kind.__name__}: {error}") from None


def _expect(fits: bool, expected: str, place: str) -> None:
    if not fits:
        raise JsonTypeError(f"{place or 'value'}: expected {expected}")


def _join(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name
