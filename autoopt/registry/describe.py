"""From the class or function of a pass to its `PassInfo`."""

from __future__ import annotations

import importlib.metadata
import inspect
import typing
from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any

from autoopt.registry.pass_info import REQUIRED, Param, ParameterInfo, PassInfo, Unit
from autoopt.space.parameters import SearchParameter
from autoopt.target import Accelerator


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
        family=getattr(item, "family", "") or _family(item.__module__),
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


def _family(module: str) -> str:
    """The family of a pass that names none: its room below `autoopt.passes`, else the last part of its module."""
    built_in = module.removeprefix("autoopt.passes.")
    if built_in != module:
        return built_in.partition(".")[0]
    return module.rpartition(".")[2]


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
