"""From the class or function of a pass to its `PassInfo`."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Annotated, Any, Final, Literal, TypeAlias

from autoopt.distributions import installed_distribution
from autoopt.registry.pass_info import REQUIRED, Category, Default, Minimum, Param, ParameterInfo, PassInfo, Unit
from autoopt.script import MODULE_PREFIX
from autoopt.space.parameters import SearchParameter
from autoopt.target import Accelerator

PassCode: TypeAlias = Callable[..., object]
"""A subclass of `Pass`, or a function `(model, **parameters) -> model`."""

Takes: TypeAlias = Literal["ir", "proto", "path"]
_FORMS: Final[Mapping[str, Takes]] = {"Model": "ir", "ModelProto": "proto", "Path": "path"}
"""Annotation of a parameter -> form of the model that it takes."""

_LISTS: Final = ("requires", "conflicts", "accelerators", "needs_ops", "refuses_ops", "libraries", "aliases")
_SETTINGS: Final = (
    *("tolerance", "needs_data", "session_only", "analysis", "makes_model", "host_bound", "target_bound", "version"),
)
"""Attributes of a pass that its `PassInfo` takes over under the same name."""


def describe(name: str, code: PassCode, accelerator: Accelerator | None = None) -> PassInfo:
    """The `PassInfo` of a class (its annotated fields) or function (its annotated arguments after the model)."""
    if inspect.isclass(code):
        parameters = _class_parameters(code, accelerator or Accelerator())
    else:
        parameters = _function_parameters(code)
    attributes: dict[str, Any] = {}
    for attribute in _LISTS:
        attributes[attribute] = tuple(getattr(code, attribute, ()))
    for attribute in _SETTINGS:
        if hasattr(code, attribute):
            attributes[attribute] = getattr(code, attribute)
    summary, *_ = (inspect.getdoc(code) or "\n").splitlines()
    return PassInfo(
        name=name,
        family=getattr(code, "family", "") or _family(code.__module__),
        summary=summary,
        parameters=parameters,
        in_memory=form_of(code) != "path",
        user_script=any(parameter.category == "object" for parameter in parameters),
        missing=_missing_library(attributes["libraries"], getattr(code, "extra", "")),
        **attributes,
    )


def form_of(code: PassCode) -> Takes:
    """The form of the model that a pass takes: the one that it states, or that of the annotation of its model."""
    stated: Takes | None = getattr(code, "takes", None)
    if stated is None and not inspect.isclass(code):
        stated = annotated_form(code)
    return stated or "proto"


def annotated_form(function: PassCode) -> Takes | None:
    """The form that a function names in the annotation of its first parameter; None if it names none."""
    parameters = [parameter for name, parameter in inspect.signature(function).parameters.items() if name != "self"]
    if not parameters:
        return None
    annotation = parameters[0].annotation
    if inspect.isclass(annotation):
        annotation = annotation.__name__
    return _FORMS.get(str(annotation).rpartition(".")[2])


def _family(module: str) -> str:
    """The family of a pass that names none: its package below `autoopt.passes`, or the last part of its module."""
    if module.startswith(MODULE_PREFIX):
        return "user script"
    built_in = module.removeprefix("autoopt.passes.")
    if built_in != module:
        return built_in.partition(".")[0]
    return module.rpartition(".")[2]


def _missing_library(libraries: tuple[str, ...], extra: str) -> str:
    for library in libraries:
        if installed_distribution(library) is None:
            package = library
            if extra:
                package = f"'autoopt[{extra}]'"
            return f"{library} is not installed; pip install {package}"
    return ""


def _class_parameters(code: type, accelerator: Accelerator) -> tuple[ParameterInfo, ...]:
    offer = getattr(code, "offer", None)
    parameters: list[ParameterInfo] = []
    for name, hint in _field_types(code).items():
        if name.startswith("_") or name == "context" or typing.get_origin(hint) is typing.ClassVar:
            continue
        parameter = _parameter(name, hint, getattr(code, name, REQUIRED))
        if offer is not None:
            # A pass may change or drop a parameter for an accelerator.
            parameter = offer(parameter, accelerator)
        if parameter is not None:
            parameters.append(parameter)
    return tuple(parameters)


@lru_cache(maxsize=256)
def _field_types(code: type) -> Mapping[str, object]:
    """The annotations of a class. Resolving them takes milliseconds, and runs describe passes again and again."""
    return typing.get_type_hints(code, include_extras=True)


def _function_parameters(code: PassCode) -> tuple[ParameterInfo, ...]:
    hints = typing.get_type_hints(code, include_extras=True)
    _model, *arguments = inspect.signature(code).parameters.values()
    parameters = []
    for argument in arguments:
        default: Default = REQUIRED
        if argument.default is not argument.empty:
            default = argument.default
        parameters.append(_parameter(argument.name, hints.get(argument.name, Any), default))
    return tuple(parameters)


def _parameter(name: str, hint: object, default: Default) -> ParameterInfo:
    if typing.get_origin(hint) is not Annotated:
        return ParameterInfo(name, hint, default)
    annotation, *extras = typing.get_args(hint)
    search: SearchParameter | None = None
    description, unit = "", ""
    minimum: float | None = None
    category: Category = "value"
    # From the last to the first: of two extras of one kind, the first counts.
    for extra in reversed(extras):
        if isinstance(extra, SearchParameter):
            search = extra
        elif isinstance(extra, str):
            description = extra
        elif isinstance(extra, Unit):
            unit = extra.name
        elif isinstance(extra, Minimum):
            minimum = extra.value
        elif isinstance(extra, Param):
            category = extra.category
    return ParameterInfo(name, annotation, default, search, description, unit, minimum, category)
