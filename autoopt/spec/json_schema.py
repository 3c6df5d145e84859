"""JSON Schema of the files, for editors: the models with the short forms that they take."""

from __future__ import annotations

from typing import Final

from pydantic import JsonValue

from autoopt.spec.dag import GRAPHS, DagSpec
from autoopt.spec.strict_model import StrictModel

_PATH: Final[JsonValue] = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}
_OPTION: Final[JsonValue] = {"type": ["string", "null"]}
_STAGE: Final[JsonValue] = {"anyOf": [_OPTION, {"type": "array", "items": _OPTION, "minItems": 1}]}
_NODE: Final[JsonValue] = {"anyOf": [{"$ref": "#/$defs/PassNode"}, {"type": "null"}]}
_NAMES: Final[JsonValue] = {"type": "array", "items": {"type": "string"}}


def json_schema(model: type[StrictModel] = DagSpec) -> dict[str, JsonValue]:
    """Return the JSON Schema (draft 2020-12) of a file's model."""
    schema = model.model_json_schema(by_alias=True, mode="validation")
    if model is DagSpec:
        fields = schema["properties"]
        fields["passes"] = {"anyOf": [{"type": "object", "additionalProperties": _NODE}, _NAMES]}
        fields["chains"] = {"type": "array", "items": _PATH, "minItems": 1}
        fields["edges"] = {"type": "array", "items": _PATH, "minItems": 1}
        fields["stages"] = {"type": "array", "items": _STAGE, "minItems": 1}
        schema["oneOf"] = [{"required": [kind]} for kind in GRAPHS]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
