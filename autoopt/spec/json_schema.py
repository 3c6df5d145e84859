"""JSON Schema of dag.yaml and zoo.yaml, for editors: the models, their short forms, and what their docstrings say."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Final, TypeAlias

from pydantic import BaseModel, JsonValue
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from autoopt.metrics import METRICS
from autoopt.registry.pass_info import PassInfo
from autoopt.spec.dag import GRAPHS, DagSpec
from autoopt.spec.strict_model import StrictModel
from autoopt.target import EXECUTION_PROVIDERS

_Form: TypeAlias = dict[str, JsonValue]
_PATH: Final[_Form] = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}
_OPTION: Final[_Form] = {"type": ["string", "null"]}
_STAGE: Final[_Form] = {"anyOf": [_OPTION, {"type": "array", "items": _OPTION, "minItems": 1}]}
_NODE: Final[_Form] = {"anyOf": [{"$ref": "#/$defs/PassNode"}, {"type": "null"}]}
_NAMES: Final[_Form] = {"type": "array", "items": {"type": "string"}}
_COUNT: Final[_Form] = {"anyOf": [{"type": "integer", "minimum": 0}, {"const": "all"}]}
_METRIC: Final[_Form] = {"anyOf": [{"enum": [*METRICS]}, {"type": "string"}]}


def _list_of(item: _Form, minimum: int = 1) -> _Form:
    return {"type": "array", "items": item, "minItems": minimum}


def _priors_of(model: str) -> _Form:
    return _list_of({"anyOf": [_PATH, {"$ref": f"#/$defs/{model}"}]}, 0)


_FORMS: Final[dict[str, dict[str, _Form]]] = {
    "DagSpec": {
        "passes": {"anyOf": [{"type": "object", "additionalProperties": _NODE}, _NAMES]},
        "chains": _list_of(_PATH),
        "edges": _list_of(_PATH),
        "stages": _list_of(_STAGE),
        "prefer": _priors_of("PreferSpec"),
        "forbid": _priors_of("PriorSpec"),
        "require": _priors_of("PriorSpec"),
    },
    "TargetSpec": {
        "threads": {"anyOf": [_COUNT, _list_of(_COUNT)]},
        "execution_provider": {"anyOf": [{"enum": [*EXECUTION_PROVIDERS]}, {"type": "string"}]},
    },
    "ObjectiveSpec": {"metric": _METRIC},
    "ConstraintSpec": {"metric": _METRIC},
    "PriorSpec": {"chain": _PATH, "nodes": _PATH, "without": _PATH},
    "PreferSpec": {"chain": _PATH, "nodes": _PATH, "without": _PATH},
}
"""Model -> field -> what files may hold there, where validators convert short forms that the field's type lacks."""


def json_schema(
    model: type[StrictModel] = DagSpec, passes: Iterable[PassInfo] = (), measurement: Mapping[str, str] | None = None
) -> dict[str, JsonValue]:
    """Return the JSON Schema (draft 2020-12) of a file's model, `DagSpec` or `ZooSpec`.

    Editors complete the names and parameters of `passes`; other names stay valid. `measurement` has the summary of each
    setting.
    """
    schema = model.model_json_schema(by_alias=True, mode="validation", schema_generator=_Generator)
    definitions: dict[str, JsonSchemaValue] = {**schema["$defs"], model.__name__: schema}
    for name, forms in _FORMS.items():
        if name in definitions:
            full = definitions[name].get("anyOf", [definitions[name]])[-1]
            for field, form in forms.items():
                full["properties"][field] = {"description": full["properties"][field]["description"], **form}
    if model is DagSpec:
        schema["oneOf"] = [{"required": [kind]} for kind in GRAPHS]
        if measurement:
            settings = {name: {"description": summary} for name, summary in measurement.items()}
            schema["properties"]["measurement"]["properties"] = settings
        _add_passes(schema["$defs"]["PassNode"], list(passes))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


class _Generator(GenerateJsonSchema):
    """Adds the docstrings of fields, which pydantic would otherwise parse whenever a model is imported."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        result = super().model_schema(schema)
        model = schema["cls"]
        properties = result.get("properties", {})
        texts = _field_docs(model)
        for name, field in model.model_fields.items():
            content = properties[field.alias or name]
            properties[field.alias or name] = {"description": texts[name], **content}
        for content in properties.values():
            content.pop("title", None)
        return result


def _field_docs(model: type[BaseModel]) -> dict[str, str]:
    """The docstring of each field, including the fields of base classes."""
    texts: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if not issubclass(base, StrictModel):
            continue
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(definition, ast.ClassDef)
        for field, text in pairwise(definition.body):
            if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
                continue
            if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                texts[field.target.id] = " ".join(str(text.value.value).split())
    return texts


def _add_passes(node: JsonSchemaValue, passes: list[PassInfo]) -> None:
    """Let editors complete the names of passes, and the parameters of the one that is named."""
    if not passes:
        return
    names: list[JsonValue] = [{"const": info.name, "description": info.summary} for info in passes]
    short, full = node["anyOf"]
    node["anyOf"] = [{"anyOf": [*names, short]}, full]
    name = full["properties"]["pass"]
    full["properties"]["pass"] = {"description": name["description"], "anyOf": [*names, {"type": "string"}]}
    full["allOf"] = [_parameters_of(info) for info in passes if info.parameters]


def _parameters_of(info: PassInfo) -> JsonValue:
    """The rule that describes the parameters of one pass."""
    properties: dict[str, JsonValue] = {}
    for parameter in info.parameters:
        text = parameter.description
        if parameter.unit:
            text += f" ({parameter.unit})"
        properties[parameter.name] = {"description": f"{parameter.type}. {text}"}
    return {
        "if": {"properties": {"pass": {"const": info.name}}, "required": ["pass"]},
        "then": {"properties": {"params": {"properties": properties}}},
    }
