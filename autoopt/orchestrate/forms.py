"""The forms that start deployments: choices for files and tags, plain fields for numbers.

Prefect derives a form from the flow's parameters. Here it gets what the flow cannot know: the files of this folder and
the tags of a zoo. The server refuses values that do not fit before the run starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import create_model

from autoopt.errors import AutooptError
from autoopt.spec import load_dag
from autoopt.spec.search import SearchFields
from autoopt.spec.zoo import ZooSpec, load_zoo

if TYPE_CHECKING:
    from prefect.utilities.callables import ParameterSchema

MOST_FILES: Final = 200
"""Files that are read to find DAGs and zoos."""
PATTERNS: Final = ("*.yaml", "*.yml", "*/*.yaml", "*/*.yml")
CHOOSE: Final = "choose"
"""Title of the list among the types of a field."""
TITLES: Final = {"string": "path", "object": "content"}
"""Name of the values that a field takes, besides choices, by their type in JSON Schema."""
Property = dict[str, Any]
"""One field of the form, as JSON Schema."""


def with_choices(properties: Mapping[str, Property], choices: Mapping[str, Sequence[str]]) -> dict[str, Property]:
    """The fields of a form with choices, and without the type None of optional ones.

    `properties` are as Prefect derives them from the flow. A field that also takes other texts or a document keeps
    these types.
    """
    form: dict[str, Property] = {}
    for name, written in properties.items():
        field = _without_none(written)
        if choices.get(name):
            field = _with_choices(field, choices[name])
        form[name] = field
    return form


def renew_choices(form: Mapping[str, Property], choices: Mapping[str, Sequence[str]]) -> dict[str, Property]:
    """The fields of a form from `with_choices`, with other choices."""
    renewed = dict(form)
    for name in form.keys() & choices.keys():
        field = _without_choices(form[name])
        if choices[name]:
            field = _with_choices(field, choices[name])
        renewed[name] = field
    return renewed


def only_choices(properties: dict[str, Property], name: str, values: Sequence[str]) -> None:
    """Restrict a field to these values."""
    if values:
        rest = {key: value for key, value in properties[name].items() if key not in ("anyOf", "type")}
        properties[name] = {**rest, "type": "string", "enum": list(values)}


def without_other_fields(form: ParameterSchema) -> ParameterSchema:
    """The form with which the server also refuses fields that it does not have, such as misspelt ones."""
    from prefect.utilities.callables import ParameterSchema

    document = form.model_dump(exclude_unset=True)
    if "search" in form.properties:
        document["properties"]["search"]["propertyNames"] = {"enum": [*SearchFields.model_fields]}
    closed_form = create_model("ClosedForm", __base__=ParameterSchema, additionalProperties=(bool, ...))
    return closed_form.model_validate({**document, "additionalProperties": False})


def _without_none(field: Property) -> Property:
    """The field without None: the form omits a field that is left empty."""
    types = [one for one in field.get("anyOf", ()) if one.get("type") != "null"]
    if len(types) == len(field.get("anyOf", ())):
        return dict(field)
    rest = {key: value for key, value in field.items() if key not in ("anyOf", "default")}
    if len(types) == 1:
        return {**types[0], **rest}
    return {**rest, "anyOf": list(map(_titled, types))}


def _without_choices(field: Property) -> Property:
    types = [one for one in field.get("anyOf", ()) if one.get("title") != CHOOSE]
    if len(types) == len(field.get("anyOf", ())):
        return field
    rest = {key: value for key, value in field.items() if key != "anyOf"}
    return {**types[0], **rest} if len(types) == 1 else {**rest, "anyOf": types}


def _with_choices(field: Property, values: Sequence[str]) -> Property:
    """The field with a list to choose from before its other types."""
    choice: Property = {"title": CHOOSE, "type": "string", "enum": list(values)}
    types = field.get("anyOf") or [{"type": field["type"]}]
    rest = {key: value for key, value in field.items() if key not in ("anyOf", "type")}
    return {**rest, "anyOf": [choice, *map(_titled, types)]}


def _titled(one: Property) -> Property:
    """One of several types of a field, with its name in the form."""
    return {**one, "title": TITLES.get(str(one.get("type")), "content")}


def dag_files(folder: Path) -> list[str]:
    """The DAGs in a folder and its subfolders, relative to it."""
    return list(_readable(folder, load_dag))


def zoo_files(folder: Path) -> list[str]:
    """The zoos in a folder and its subfolders, relative to it."""
    return list(_readable(folder, load_zoo))


def tags_of(zoo: ZooSpec) -> list[str]:
    """The tags of a zoo's models."""
    return sorted({tag for model in zoo.models for tag in model.tags})


def _readable(folder: Path, load: Callable[[Path], object]) -> Iterator[str]:
    """Yield the files that can be loaded, relative to the folder; hidden folders are left out."""
    for path in candidates(folder):
        try:
            load(folder / path)
        except AutooptError:
            continue
        yield str(path)


def candidates(folder: Path) -> list[Path]:
    """The files of a folder and its subfolders that may be DAGs or zoos, relative to it."""
    files = [path.relative_to(folder) for pattern in PATTERNS for path in sorted(folder.glob(pattern))]
    visible = [path for path in files if not any(part.startswith(".") for part in path.parts)]
    return visible[:MOST_FILES]
