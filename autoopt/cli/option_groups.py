"""Groups of options that several commands share, as dataclasses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter, signature
from typing import Any, TypeVar, get_type_hints

Result = TypeVar("Result")


def with_option_groups(command: Callable[..., Result]) -> Callable[..., Result]:
    """Give a command one option for each field of its parameters that are dataclasses.

    Typer reads options from a flat signature. The command itself receives the dataclasses.
    """
    # Annotations are text here; Typer would look up their names in the wrong module.
    described = signature(command, eval_str=True)
    parameters = list(described.parameters.values())
    groups: dict[str, Any] = {
        parameter.name: parameter.annotation for parameter in parameters if is_dataclass(parameter.annotation)
    }

    @wraps(command)
    def flat_command(**values: Any) -> Result:  # noqa: ANN401  options of any type
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        return command(**values)

    options: list[Parameter] = []
    for parameter in parameters:
        options.extend(_options(parameter.annotation) if parameter.name in groups else [parameter])
    flat_command.__signature__ = described.replace(parameters=options)  # type: ignore[attr-defined]
    flat_command.__annotations__ = {option.name: option.annotation for option in options}
    return flat_command


def _options(group: type) -> Iterator[Parameter]:
    """A parameter for each field of a dataclass; all its fields have defaults."""
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        yield Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name])
