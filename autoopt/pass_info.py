"""What is known of a pass before any model is read: `PassInfo`, found out from a class or function, and as JSON."""

from __future__ import annotations

import functools
import importlib.metadata
import inspect
import operator
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, Literal, Union

from autoopt import space
from autoopt.errors import InputError, did_you_mean, one_line
from autoopt.space import SearchParameter
from autoopt.target import Accelerator

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


def describe(name: str, item: Any, accelerator: Accelerator | None = None) -> PassInfo:
    """The `PassInfo` of a class (its annotated fields) or function (its annotated arguments after the model)."""
    accelerator = accelerator or Accelerator()
    if inspect.isclass(item):
        parameters = _class_parameters(item)
        offered = getattr(item, "offer", None)
        if offered is not None:
            parameters = tuple(p for p in (offered(p, accelerator) for p in parameters) if p is not None)
    else:
        parameters = _function_parameters(item)
    summary = next(iter((inspect.getdoc(item) or "").splitlines()), "")
    libraries = tuple(getattr(item, "libraries", ()))
    return PassInfo(
        name=name,
        family=getattr(item, "family", "") or item.__module__.rpartition(".")[2],
        summary=summary,
        parameters=parameters,
        requires=tuple(getattr(item, "requires", ())),
        conflicts=tuple(getattr(item, "conflicts", ())),
        accelerators=tuple(getattr(item, "accelerators", ())),
        tolerance=getattr(item, "tolerance", "equal"),
        needs_data=getattr(item, "needs_data", False),
        needs_ops=tuple(getattr(item, "needs_ops", ())),
        session_only=getattr(item, "session_only", False),
        analysis=getattr(item, "analysis", False),
        in_memory=getattr(item, "takes", "proto") == "proto",
        makes_model=getattr(item, "makes_model", False),
        host_bound=getattr(item, "host_bound", False),
        target_bound=getattr(item, "target_bound", True),
        user_script=any(p.category == "object" for p in parameters),
        version=getattr(item, "version", 1),
        libraries=libraries,
        missing=_missing(libraries, getattr(item, "extra", "")),
        aliases=tuple(getattr(item, "aliases", ())),
    )


def _missing(libraries: tuple[str, ...], extra: str) -> str:
    for library in libraries:
        if not _installed(library):
            wanted = f"'autoopt[{extra}]'" if extra else library
            return f"{library} is not installed; pip install {wanted}"
    return ""


@lru_cache(maxsize=128)
def _installed(library: str) -> bool:
    """Whether a distribution is there; its metadata is not parsed, which would take longer than all else."""
    try:
        importlib.metadata.distribution(library)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _class_parameters(item: type) -> tuple[ParameterInfo, ...]:
    hints = typing.get_type_hints(item, include_extras=True)
    own: list[ParameterInfo] = []
    for name, hint in hints.items():
        if name.startswith("_") or typing.get_origin(hint) is typing.ClassVar or name == "context":
            continue
        own.append(_parameter(name, hint, getattr(item, name, REQUIRED)))
    return tuple(own)


def _function_parameters(item: Callable[..., Any]) -> tuple[ParameterInfo, ...]:
    hints = typing.get_type_hints(item, include_extras=True)
    arguments = list(inspect.signature(item).parameters.values())[1:]
    return tuple(
        _parameter(a.name, hints.get(a.name, Any), REQUIRED if a.default is a.empty else a.default) for a in arguments
    )


def _parameter(name: str, hint: Any, default: Any) -> ParameterInfo:
    annotation = hint
    extras: tuple[Any, ...] = ()
    if typing.get_origin(hint) is Annotated:
        annotation, *rest = typing.get_args(hint)
        extras = tuple(rest)
    return ParameterInfo(
        name=name,
        annotation=annotation,
        default=default,
        search=next((e for e in extras if isinstance(e, SearchParameter)), None),
        description=next((e for e in extras if isinstance(e, str)), ""),
        unit=next((e.name for e in extras if isinstance(e, Unit)), ""),
        category=next((e.category for e in extras if isinstance(e, Param)), "value"),
    )


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
            "default": None if p.default is REQUIRED else space.to_json(p.default),
            "search": space.to_json(p.search) if p.search is not None else None,
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
            default=REQUIRED if p["default"] is None else space.from_json(p["default"]),
            search=space.from_json(p["search"]) if p["search"] is not None else None,
            description=p["description"],
            unit=p["unit"],
            category=p["category"],
        )
        for p in data["parameters"]
    )
    rest: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items() if k != "parameters"}
    return PassInfo(parameters=parameters, **rest)
