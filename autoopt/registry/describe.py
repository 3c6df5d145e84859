"""From the class or function of a pass to its `PassInfo`."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Annotated, Any, Final, Literal, TypeAlias

from autoopt.distributions import installed_distribution
from autoopt.errors import InputError
from autoopt.registry.pass_info import (
    REQUIRED,
    Category,
    Default,
    Minimum,
    Param,
    ParameterInfo,
    PassInfo,
    Tolerance,
    Unit,
)
from autoopt.script import MODULE_PREFIX
from autoopt.space.parameters import SearchParameter
from autoopt.target import Accelerator

PassCode: TypeAlias = Callable[..., object]
"""A subclass of `Pass`, or a function `(model, **parameters) -> model`."""

Takes: TypeAlias = Literal["ir", "proto", "path", "source", "options"]
_FORMS: Final[Mapping[str, Takes]] = {
    "Model": "ir",
    "ModelProto": "proto",
    "Path": "path",
    "SourceFile": "source",
    "SessionOptions": "options",
}
"""Annotation of the first parameter of a pass -> what it takes: a model in one of three forms, the file of a source
that is no ONNX model, or the session options in place of a model."""
_LISTS: Final = ("requires", "conflicts", "accelerators", "needs_ops", "refuses_ops", "libraries", "aliases")
_SETTINGS: Final = ("tolerance", "needs_data", "version")
"""Attributes of a pass that its `PassInfo` takes over under the same name."""
_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "tolerance": typing.get_args(Tolerance),
    "depends_on": ("model", "target", "host"),
    "touches": ("names", "types", "metadata", "outputs"),
}
"""Values of the attributes that have only some."""


def describe(name: str, code: PassCode, accelerator: Accelerator | None = None) -> PassInfo:
    """The `PassInfo` of a class (its annotated fields) or function (its annotated arguments after the model).

    Raises:
        InputError: an attribute has a value that it cannot have.
    """
    if inspect.isclass(code):
        parameters = _class_parameters(code, accelerator or Accelerator())
    else:
        parameters = _function_parameters(code)
    _check_attributes(name, code)
    attributes: dict[str, Any] = {}
    for attribute in _LISTS:
        attributes[attribute] = tuple(getattr(code, attribute, ()))
    for attribute in _SETTINGS:
        if hasattr(code, attribute):
            attributes[attribute] = getattr(code, attribute)
    summary, *_ = (inspect.getdoc(code) or "\n").splitlines()
    form, depends_on = form_of(code), getattr(code, "depends_on", "target")
    return PassInfo(
        name=name,
        family=_family(code.__module__),
        summary=summary,
        parameters=parameters,
        session_only=form == "options",
        analysis=is_analysis(code),
        in_memory=form in ("ir", "proto", "options"),
        makes_model=form == "source",
        host_bound=depends_on == "host",
        target_bound=depends_on != "model",
        user_script=any(parameter.category == "object" for parameter in parameters),
        missing=_missing_library(attributes["libraries"]),
        **attributes,
    )


def _check_attributes(name: str, code: PassCode) -> None:
    for attribute in (*_LISTS, "touches"):
        if isinstance(getattr(code, attribute, ()), str):
            raise InputError(f"{attribute} of pass {name!r} is a text", remedy="give a tuple of texts")
    for attribute, choices in _CHOICES.items():
        stated = getattr(code, attribute, ())
        for value in (stated,) if isinstance(stated, str) else stated:
            if value not in choices:
                what = f"{attribute} of pass {name!r} is {value!r}"
                raise InputError(what, remedy=f"choose from {', '.join(choices)}")


def form_of(code: PassCode) -> Takes:
    """The form that a class or function takes, by the annotation of the first parameter; without one, a protobuf.

    A method without an annotation takes what the one that it overrides takes.

    Raises:
        InputError: it takes onnxruntime's own `SessionOptions`, which no pass gets.
    """
    functions = [code]
    if inspect.isclass(code):
        functions = [vars(each)["run"] for each in code.__mro__ if "run" in vars(each)]
    for function in functions:
        parameters = [each for each in inspect.signature(function).parameters.values() if each.name != "self"]
        form = _FORMS.get(_annotation_name(parameters[0].annotation)) if parameters else None
        if form == "options" and _is_of_onnxruntime(function, parameters[0].name):
            what = f"{parameters[0].name} of {code.__name__} is annotated with onnxruntime's SessionOptions"
            raise InputError(what, remedy="import SessionOptions, a dict, from autoopt.passes.base")
        if form is not None:
            return form
    return "proto"


def _is_of_onnxruntime(function: PassCode, parameter: str) -> bool:
    """True if the annotation of a parameter is a class of onnxruntime."""
    try:
        annotation = inspect.get_annotations(function, eval_str=True)[parameter]
    except Exception:  # it may name what only type checkers import
        return False
    return str(getattr(annotation, "__module__", "")).startswith("onnxruntime")


def is_analysis(code: PassCode) -> bool:
    """Tell if a class or function takes a model and, by its annotation, returns none."""
    function = getattr(code, "run", code)
    returned = inspect.signature(function).return_annotation
    return form_of(code) != "options" and _annotation_name(returned) == "None"


def _annotation_name(annotation: object) -> str:
    """The last part of the name of an annotation, which may be a text."""
    name = getattr(annotation, "__name__", annotation)
    return str(name).strip("'\"").rpartition(".")[2]


def _family(module: str) -> str:
    """The family of a pass that names none: its package below `autoopt.passes`, or the last part of its module."""
    if module.startswith(MODULE_PREFIX):
        return "user script"
    built_in = module.removeprefix("autoopt.passes.")
    if built_in != module:
        return built_in.partition(".")[0]
    return module.rpartition(".")[2]


def _missing_library(libraries: tuple[str, ...]) -> str:
    for library in libraries:
        if installed_distribution(library) is None:
            own = installed_distribution("autoopt")
            package = library
            if own is not None and library in (own.metadata.get_all("Provides-Extra") or ()):
                package = f"'autoopt[{library}]'"
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
