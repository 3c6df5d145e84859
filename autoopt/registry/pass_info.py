"""The description of a pass that planning works with, before any model is read; and its JSON."""

from __future__ import annotations

import functools
import operator
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeAlias, Union, cast

from autoopt.errors import InputError, did_you_mean, one_line
from autoopt.json_codec import JsonObject, JsonValue, from_json, to_json
from autoopt.registry.compat import answers
from autoopt.space.parameters import (
    ConditionalDefault,
    SearchParameter,
    Value,
    definition_from_json,
    definition_to_json,
)

Tolerance = Literal["lossless", "equal", "lossy"]
Category = Literal["value", "object", "path", "data"]


class Required:
    """Type of `REQUIRED`."""

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED = Required()
"""Default of a parameter that the user must give."""
Default: TypeAlias = Value | ConditionalDefault | Required


@dataclass(frozen=True)
class Unit:
    """In `Annotated`: the unit of a parameter."""

    name: str


@dataclass(frozen=True)
class Minimum:
    """In `Annotated`: the lowest number that a parameter takes."""

    value: float


@dataclass(frozen=True)
class Param:
    """In `Annotated`: the category of a parameter.

    `object`: a function or class of the user script; `path`: a file that travels to the host and whose content is part
    of the key; `data`: a path below `--data-root`.
    """

    category: Category


@dataclass(frozen=True)
class ParameterInfo:
    """One parameter of a pass."""

    name: str
    annotation: object
    """A type hint; whatever `typing` allows there."""
    default: Default
    search: SearchParameter | None = None
    description: str = ""
    unit: str = ""
    minimum: float | None = None
    category: Category = "value"
    withdrawn: tuple[tuple[Value, str], ...] = ()
    """Values that this accelerator cannot use and others can, each with the reason."""

    @property
    def type(self) -> str:
        """The type as a reader writes it: `int`, `'QInt8' | 'QUInt8'`, `list[str]`."""
        return _type_name(self.annotation)

    def check(self, value: Value) -> str | None:
        """The reason why `value` does not fit this parameter, or None if it fits."""
        from pydantic import TypeAdapter, ValidationError

        if self.category == "object":
            if isinstance(value, str) or (value is None and self.default is None):
                return None
            return "must be the name of a function or class in the user script"
        try:
            TypeAdapter(cast(type, self.annotation)).validate_python(value, strict=True)
        except ValidationError as error:
            if self.annotation is bool:
                return f"must be true or false, not {value!r}"
            if typing.get_origin(self.annotation) is not Literal:
                problem = error.errors()[0]
                other = answers().get(str(problem["input"]))
                hint = other.hint if other else ""
                text = f"must be {self.type}, not {value!r} ({one_line(problem['msg'])})"
                return "; ".join(filter(None, (text, hint)))
            hint = did_you_mean(str(value), map(str, typing.get_args(self.annotation)))
            return "; ".join(filter(None, (f"must be {self.type}, not {value!r}", hint)))
        return self._check_minimum(value)

    def _check_minimum(self, value: Value) -> str | None:
        if self.minimum is not None and isinstance(value, int | float) and value < self.minimum:
            return f"must be at least {self.minimum:g}, not {value!r}"
        return None


@dataclass(frozen=True)
class PassInfo:
    """The properties of a pass for one accelerator, without the code itself."""

    name: str
    family: str
    summary: str
    parameters: tuple[ParameterInfo, ...] = ()
    requires: tuple[str, ...] = ()
    """Passes or analyses that must have run earlier in the chain; inserted into chains that lack them."""
    conflicts: tuple[str, ...] = ()
    """Passes that must not run earlier in the same chain."""
    accelerators: tuple[str, ...] = ()
    """Execution providers that the pass is for; empty means any."""
    tolerance: Tolerance = "equal"
    """`lossless`: the same bits out; `equal`: equal up to rounding; `lossy`: changes results on purpose."""
    needs_data: bool = False
    """True if the pass reads the calibration data."""
    needs_ops: tuple[str, ...] = ()
    """Operators, or traits of a model (`local functions`, `int64 inputs`), that the pass works on: the model must have
    at least one of them; empty means any model."""
    refuses_ops: tuple[str, ...] = ()
    """Operators that the pass cannot take: it refuses a model that has one of them."""
    session_only: bool = False
    """Changes session options, not the graph."""
    analysis: bool = False
    """Stores a report and never changes the model."""
    in_memory: bool = True
    """Takes and returns a ModelProto, so that neighbours can run in one load and save."""
    makes_model: bool = False
    """Does not read its input: the first pass of a chain whose source is not an ONNX model."""
    host_bound: bool = False
    """The result depends on the machine that runs the pass (its CPU features)."""
    target_bound: bool = True
    """The result may depend on the target's execution provider; False only if the code certainly ignores it."""
    user_script: bool = False
    """Has parameters of category `object`."""
    version: int = 1
    libraries: tuple[str, ...] = ()
    """Distributions whose versions are part of the key of a pass run."""
    missing: str = ""
    """Empty, or the reason why the pass is not available here, with the command that installs it."""
    aliases: tuple[str, ...] = ()
    presets: Mapping[str, JsonValue] = field(default_factory=dict)
    """Parameters that the name in use implies, if it is an alias; values that the user sets take precedence."""
    origin: str = "built-in"
    """`built-in`, `plug-in DISTRIBUTION`, or the path of the user script."""
    source_digest: str = ""
    """sha256 of the user script; name and version of a plug-in; empty for built-in passes."""

    @property
    def available(self) -> bool:
        return not self.missing

    @property
    def is_plugin(self) -> bool:
        """True if an installed distribution other than autoopt has the pass."""
        return self.origin.startswith("plug-in ")

    @property
    def defaults(self) -> dict[str, Value | ConditionalDefault]:
        """Default of each parameter that has one."""
        return {p.name: p.default for p in self.parameters if not isinstance(p.default, Required)}

    def parameter(self, name: str) -> ParameterInfo:
        """The parameter of that name.

        Raises:
            InputError: the pass has no such parameter; names the nearest.
        """
        names = []
        for parameter in self.parameters:
            if parameter.name == name:
                return parameter
            names.append(parameter.name)
        remedy = did_you_mean(name, names) or f"it has: {', '.join(names) or 'none'}"
        raise InputError(f"pass {self.name!r} has no parameter {name!r}", remedy=remedy)


def info_to_json(info: PassInfo) -> dict[str, JsonValue]:
    """A `PassInfo` as JSON, to cross from the worker that read a user script."""
    record: dict[str, JsonValue] = {}
    for attribute in fields(info):
        if attribute.name != "parameters":
            record[attribute.name] = to_json(getattr(info, attribute.name))
    record["parameters"] = list(map(_parameter_to_json, info.parameters))
    return record


def info_from_json(data: JsonObject) -> PassInfo:
    """Read what `info_to_json` wrote."""
    parameters = cast("list[JsonObject]", data["parameters"])
    return from_json(PassInfo, {**data, "parameters": list(map(_parameter_from_json, parameters))})


def _parameter_to_json(parameter: ParameterInfo) -> dict[str, JsonValue]:
    default: JsonValue = None
    if not isinstance(parameter.default, Required):
        default = definition_to_json(parameter.default)
    search: JsonValue = None
    if parameter.search is not None:
        search = definition_to_json(parameter.search)
    return {
        "name": parameter.name,
        "annotation": _annotation_to_json(parameter.annotation),
        "default": default,
        "search": search,
        "description": parameter.description,
        "unit": parameter.unit,
        "minimum": parameter.minimum,
        "category": parameter.category,
    }


def _parameter_from_json(data: JsonObject) -> ParameterInfo:
    default: Default = REQUIRED
    if data["default"] is not None:
        default = cast(Default, definition_from_json(cast(JsonObject, data["default"])))
    search: SearchParameter | None = None
    if data["search"] is not None:
        search = cast(SearchParameter, definition_from_json(cast(JsonObject, data["search"])))
    return ParameterInfo(
        name=cast(str, data["name"]),
        annotation=_annotation_from_json(data["annotation"]),
        default=default,
        search=search,
        description=cast(str, data["description"]),
        unit=cast(str, data["unit"]),
        minimum=cast("float | None", data["minimum"]),
        category=cast(Category, data["category"]),
    )


_PLAIN_TYPES: Mapping[str, object] = {
    "int": int,
    "float": float,
    "str": str,
    "bool": bool,
    "None": type(None),
    "object": object,
    "Any": Any,
}


def _type_name(annotation: object) -> str:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return " | ".join(map(repr, arguments))
    if origin in (Union, types.UnionType):
        return " | ".join(map(_type_name, arguments))
    if origin is not None:
        return f"{origin.__name__}[{', '.join(map(_type_name, arguments))}]"
    if annotation in (None, type(None)):
        return "None"
    return getattr(annotation, "__name__", "Any")


def _annotation_to_json(annotation: object = Any) -> JsonValue:
    """A type hint as JSON; a missing one and hints beyond JSON types become `Any`, which accepts everything."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return {"literal": list(arguments)}
    if origin in (Union, types.UnionType):
        return {"union": list(map(_annotation_to_json, arguments))}
    if origin in (list, tuple) or annotation is list:
        return {"list": _annotation_to_json(*arguments[:1])}
    if origin is dict or annotation is dict:
        return {"dict": _annotation_to_json(*arguments[1:])}
    name = _type_name(annotation)
    if name not in _PLAIN_TYPES:
        return "Any"
    return name


def _annotation_from_json(data: JsonValue) -> object:
    if isinstance(data, str):
        return _PLAIN_TYPES[data]
    ((kind, content),) = cast(JsonObject, data).items()
    if kind == "literal":
        return Literal[tuple(cast("list[JsonValue]", content))]
    if kind == "union":
        return functools.reduce(operator.or_, map(_annotation_from_json, cast("list[JsonValue]", content)))
    element = _annotation_from_json(content)
    if kind == "list":
        return list[element]  # type: ignore[valid-type]  # a type made at run time
    return dict[str, element]  # type: ignore[valid-type]  # a type made at run time
