"""As much of pydantic as `autoopt.data.config` uses, for interpreters that only measure and have only numpy and
onnxruntime. What it reads was validated before it was sent there, so types are not checked."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

_MISSING: Any = object()


class ValidationError(ValueError):
    """Raised where a validator does."""

    def errors(self) -> list[dict[str, Any]]:
        return [{"loc": (), "msg": str(self)}]


class _Field:
    def __init__(self, default: Any, default_factory: Callable[[], Any] | None) -> None:
        self.default, self.factory = default, default_factory


def Field(default: Any = _MISSING, default_factory: Callable[[], Any] | None = None, **_: Any) -> Any:
    return _Field(default, default_factory)


def ConfigDict(**config: Any) -> dict[str, Any]:
    return config


def model_validator(mode: str) -> Callable[[Any], Any]:
    def mark(function: Any) -> Any:
        getattr(function, "__func__", function)._validates = mode
        return function

    return mark


class BaseModel:
    """Annotated fields with defaults; nested models; validators before and after."""

    def __init__(self, **values: Any) -> None:
        made = type(self).model_validate(values)
        self.__dict__.update(made.__dict__)

    @classmethod
    def model_validate(cls, value: Any) -> Any:
        if isinstance(value, cls):
            return value
        try:
            for validator in cls._validators("before"):
                value = validator.__get__(None, cls)(value)
            unknown = set(value) - set(cls._fields())
            if unknown:
                raise ValueError(f"unknown field {min(unknown)!r}")
            made = cls.__new__(cls)
            for name, (hint, default) in cls._fields().items():
                made.__dict__[name] = _read(value[name], hint) if name in value else _default(default, name)
            for validator in cls._validators("after"):
                made = validator(made)
        except ValueError as error:
            raise ValidationError(str(error)) from None
        return made

    def model_dump(self, *, exclude_defaults: bool = False, **_: Any) -> dict[str, Any]:
        found = {}
        for name, (_hint, default) in self._fields().items():
            value = getattr(self, name)
            if exclude_defaults and default is not _MISSING and value == _default(default, name):
                continue
            found[name] = value.model_dump(exclude_defaults=exclude_defaults) if isinstance(value, BaseModel) else value
        return found

    def model_copy(self, *, update: dict[str, Any] | None = None) -> Any:
        made = type(self).__new__(type(self))
        made.__dict__.update({**self.__dict__, **(update or {})})
        return made

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash(repr(sorted(self.__dict__.items(), key=lambda item: item[0])))

    @classmethod
    def _fields(cls) -> dict[str, tuple[Any, Any]]:
        hints = get_type_hints(cls, vars(sys.modules[cls.__module__]))
        return {n: (h, cls.__dict__.get(n, _MISSING)) for n, h in hints.items() if n != "model_config"}

    @classmethod
    def _validators(cls, mode: str) -> list[Any]:
        return [v for v in cls.__dict__.values() if getattr(getattr(v, "__func__", v), "_validates", "") == mode]


def _default(default: Any, name: str) -> Any:
    if isinstance(default, _Field):
        if default.factory is not None:
            return default.factory()
        default = default.default
    if default is _MISSING:
        raise ValueError(f"{name}: required")
    return default


def _read(value: Any, hint: Any) -> Any:
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    for option in options:
        if value is not None and isinstance(option, type) and issubclass(option, BaseModel):
            return option.model_validate(value)
    return value
