"""The description of a pass that planning works with, before any model is read; and its JSON."""

from __future__ import annotations

import functools
import operator
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Union

from autoopt.errors import InputError, did_you_mean, one_line
from autoopt.space import parameters as search_parameters
from autoopt.space.parameters import SearchParameter

Tolerance = Literal["lossless", "equal", "lossy"]
Category = Literal["value", "object", "path", "data"]


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED = _Required()
"""Default of a parameter that the user must give."""


@dataclass(frozen=True)
class Unit:
    """In `Annotated`: the unit of a parameter."""

    name: str


@dataclass(frozen=True)
class Param:
    """In `Annotated`: what kind of parameter it is. `object`: a function or class of the user script; `path`: a file
    that travels to the host and whose content is part of the key; `data`: a path below `--data-root`."""

    category: Category


@dataclass(frozen=True)
class ParameterInfo:
    """One parameter of a pass. `default` is a JSON value, a `ConditionalDefault` or `REQUIRED`."""

    name: str
    annotation: Any
    default: Any
    search: SearchParameter | None = None
    description: str = ""
    unit: str = ""
    category: Category = "value"
    withdrawn: tuple[tuple[Any, str], ...] = ()
    """Values that are not searched on this accelerator though others are, each with the reason."""

    @property
    def type(self) -> str:
        """The type as a reader writes it: `int`, `'QInt8' | 'QUInt8'`, `list[str]`."""
        return _type_name(self.annotation)

    def check(self, value: Any) -> str | None:
        """Why `value` is no value of this parameter, or None."""
        from pydantic import TypeAdapter, ValidationError

        if self.category == "object":
            return (
                None
                if isinstance(value, str) or (value is None and self.default is None)
                else "must be the name of a function or class in the user script"
            )
        try:
            TypeAdapter(self.annotation).validate_python(value, strict=True)
        except ValidationError as error:
            if _is_literal(self.annotation):
                hint = did_you_mean(str(value), [str(v) for v in typing.get_args(self.annotation)])
                return f"must be {self.type}, not {value!r}" + (f"; {hint}" if hint else "")
            reason = error.errors()[0]["msg"]
            return f"must be {self.type}, not {value!r} ({one_line(reason)})"
        return None


@dataclass(frozen=True)
class PassInfo:
    """What is known of a pass before any model is read; for one accelerator. Frozen, without the code itself."""

    name: str
    family: str
    summary: str
    parameters: tuple[ParameterInfo, ...] = ()
    requires: tuple[str, ...] = ()
    """Passes or analyses that must have run earlier in the chain; inserted where the chain lacks them."""
    conflicts: tuple[str, ...] = ()
    """Passes that must not stand earlier in the same chain."""
    accelerators: tuple[str, ...] = ()
    """Execution providers that it is for; empty means any."""
    tolerance: Tolerance = "equal"
    """`lossless`: the same bits out; `equal`: equal up to rounding; `lossy`: changes results on purpose."""
    needs_data: bool = False
    """Whether it reads the calibration data."""
    needs_ops: tuple[str, ...] = ()
    """Operators of which the model must have at least one for the pass to make sense; empty means any model."""
    session_only: bool = False
    """Changes session options, not the graph."""
    analysis: bool = False
    """Stores a report, never changes the model."""
    in_memory: bool = True
    """Takes and returns a ModelProto, so that neighbours can run in one load and save."""
    makes_model: bool = False
    """Does not read its input: the first pass of a chain, where the source is no ONNX model."""
    host_bound: bool = False
    """The result depends on the machine it runs on (its CPU features)."""
    target_bound: bool = True
    """The result may depend on the execution provider that it is for: its code looks at it, or is not known."""
    user_script: bool = False
    """Has parameters of category `object`."""
    version: int = 1
    libraries: tuple[str, ...] = ()
    """Distributions whose versions are part of the key of a pass run."""
    missing: str = ""
    """Empty, or why it is not available here, with the command that installs it."""
    aliases: tuple[str, ...] = ()
    presets: Mapping[str, Any] = field(default_factory=dict)
    """Parameters that the name it was asked for by stands for; what the user sets comes before them."""
    origin: str = "built-in"
    """`built-in`, `plug-in DISTRIBUTION`, or the path of the user script."""
    source_digest: str = ""
    """sha256 of the user script; name and version of a plug-in; empty for what is built in."""

    @property
    def available(self) -> bool:
        return not self.missing

    def parameter(self, name: str) -> ParameterInfo:
        """The parameter of that name.

        Raises:
            InputError: the pass has none such; names the nearest.
        """
        for parameter in self.parameters:
            if parameter.name == name:
                return parameter
        known = [p.name for p in self.parameters]
        remedy = did_you_mean(name, known) or (f"it has: {', '.join(known)}" if known else "it has none")
        raise InputError(f"pass {self.name!r} has no parameter {name!r}", remedy=remedy)


_PLAIN: Mapping[str, Any] = {"int": int, "float": float, "str": str, "bool": bool, "None": type(None), "Any": Any}


def _is_literal(annotation: Any) -> bool:
    return typing.get_origin(annotation) is Literal


def _type_name(annotation: Any) -> str:
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return " | ".join(repr(a) for a in args)
    if origin in (Union, types.UnionType):
        return " | ".join(_type_name(a) for a in args)
    if origin is not None:
        return f"{origin.__name__}[{', '.join(_type_name(a) for a in args)}]"
    return "None" if annotation in (None, type(None)) else getattr(annotation, "__name__", "Any")


def _annotation_to_json(annotation: Any) -> Any:
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return {"literal": list(args)}
    if origin in (Union, types.UnionType):
        return {"union": [_annotation_to_json(a) for a in args]}
    if origin in (list, tuple):
        return {"list": _annotation_to_json(args[0]) if args else "Any"}
    if origin is dict or annotation is dict:
        return {"dict": _annotation_to_json(args[1]) if args else "Any"}
    if annotation is list:
        return {"list": "Any"}
    name = _type_name(annotation)
    return name if name in _PLAIN else "Any"


def _annotation_from_json(data: Any) -> Any:
    if isinstance(data, str):
        return _PLAIN[data]
    if "literal" in data:
        return Literal[tuple(data["literal"])]
    if "union" in data:
        return functools.reduce(operator.or_, (_annotation_from_json(a) for a in data["union"]))
    if "list" in data:
        return list[_annotation_from_json(data["list"])]  # type: ignore[misc]  # a type made at run time
    return dict[str, _annotation_from_json(data["dict"])]  # type: ignore[misc]  # a type made at run time


def info_to_json(info: PassInfo) -> dict[str, Any]:
    """A `PassInfo` as JSON, to cross from a worker that read a user script."""
    plain = {k: v for k, v in vars(info).items() if k != "parameters"}
    parameters = [
        {
            "name": p.name,
            "annotation": _annotation_to_json(p.annotation),
            "default": None if p.default is REQUIRED else search_parameters.to_json(p.default),
            "search": search_parameters.to_json(p.search) if p.search is not None else None,
            "description": p.description,
            "unit": p.unit,
            "category": p.category,
        }
        for p in info.parameters
    ]
    return {**plain, "parameters": parameters}


def info_from_json(data: Mapping[str, Any]) -> PassInfo:
    """The reverse of `info_to_json`."""
    parameters = tuple(
        ParameterInfo(
            name=p["name"],
            annotation=_annotation_from_json(p["annotation"]),
            default=REQUIRED if p["default"] is None else search_parameters.from_json(p["default"]),
            search=search_parameters.from_json(p["search"]) if p["search"] is not None else None,
            description=p["description"],
            unit=p["unit"],
            category=p["category"],
        )
        for p in data["parameters"]
    )
    rest: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items() if k != "parameters"}
    return PassInfo(parameters=parameters, **rest)
