"""The forms that start deployments: pydantic types of their fields, with the files of a folder to choose from.

Prefect derives a form from the flow's parameters. `with_types` replaces types of parameters for the form alone: the
flow takes what it took before, because every list of choices also takes another path or a document.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import reduce
from operator import or_
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.json_schema import SkipJsonSchema

from autoopt.errors import AutooptError
from autoopt.spec import load_dag
from autoopt.spec.zoo import ZooSpec

if TYPE_CHECKING:
    from prefect import Flow

MOST_FILES: Final = 200
"""Files that are read to find DAGs."""
_SKIP: Any = SkipJsonSchema
HIDDEN: Final[Any] = Annotated[Any, _SKIP()]
"""Type of a parameter that is not in the form."""
PATTERNS: Final = ("*.yaml", "*.yml", "*/*.yaml", "*/*.yml")


def with_types(flow: Flow[..., Any], types: Mapping[str, object]) -> Flow[..., Any]:
    """The flow with other types of some parameters, for the form of its deployment.

    `HIDDEN` leaves a parameter out of it.
    """
    from prefect import Flow

    signature = inspect.signature(flow.fn, eval_str=True)
    parameters = []
    for name, parameter in signature.parameters.items():
        annotation = types.get(name, parameter.annotation)
        parameters.append(parameter.replace(annotation=annotation))

    @functools.wraps(flow.fn)
    def body(*args: object, **kwargs: object) -> object:
        return flow.fn(*args, **kwargs)

    body.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return Flow(body, name=flow.name, flow_run_name=flow.flow_run_name)


def overriding(model: type[BaseModel]) -> type[BaseModel]:
    """The model with each field empty unless it is given: no default of it overrides what a file says."""
    fields: dict[str, Any] = {}
    for name, one in model.model_fields.items():
        kind: Any = one.annotation
        if get_origin(kind) in (Union, UnionType):
            kind = reduce(or_, (part for part in get_args(kind) if part is not NoneType))
        for bound in one.metadata:
            kind = Annotated[kind, bound]
        fields[name] = (kind | None, None)
    return create_model(model.__name__, __config__=ConfigDict(extra="forbid"), **fields)


def choices(values: Sequence[str]) -> Any:  # noqa: ANN401  a type
    """The type of a field with one of these values."""
    return Literal[tuple(values)]


def file_or_path(files: Sequence[str] = ()) -> Any:  # noqa: ANN401  a type
    """The type of a field with one of these files, or another path."""
    path = Annotated[str, Field(title="path")]
    return Annotated[choices(files), Field(title="choose")] | path if files else path


def file_or_content(files: Sequence[str] = ()) -> Any:  # noqa: ANN401  a type
    """The type of a field with one of these files, another path, or a document."""
    return file_or_path(files) | Annotated[dict[str, Any], Field(title="content")]


def dag_files(folder: Path) -> list[str]:
    """The DAGs in a folder and its subfolders, hidden ones excepted, as absolute paths."""
    files = [path for pattern in PATTERNS for path in sorted(folder.glob(pattern))]
    visible = [path for path in files if not any(part.startswith(".") for part in path.relative_to(folder).parts)]
    found = []
    for path in visible[:MOST_FILES]:
        with suppress(AutooptError):
            load_dag(path)
            found.append(str(path.absolute()))
    return found


def tags_of(zoo: ZooSpec) -> list[str]:
    """The tags of a zoo's models."""
    return sorted({tag for model in zoo.models for tag in model.tags})
