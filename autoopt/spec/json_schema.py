"""JSON Schema of the files, for editors: what the models say, with the short forms they take."""

from __future__ import annotations

from typing import Any

from autoopt.spec.dag import DagSpec
from autoopt.spec.strict_model import StrictModel

_PATH = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}
_OPTION = {"type": ["string", "null"]}


def json_schema(model: type[StrictModel] = DagSpec) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a file's model."""
    schema = model.model_json_schema(by_alias=True, mode="validation")
    if model is DagSpec:
        fields = schema["properties"]
        node = {"anyOf": [{"$ref": "#/$defs/PassNode"}, {"type": "null"}]}
        names = {"type": "array", "items": {"type": "string"}}
        fields["passes"] = {"anyOf": [{"type": "object", "additionalProperties": node}, names]}
        for kind in ("chains", "edges"):
            fields[kind] = {"type": "array", "items": _PATH, "minItems": 1}
        stage = {"anyOf": [_OPTION, {"type": "array", "items": _OPTION, "minItems": 1}]}
        fields["stages"] = {"type": "array", "items": stage, "minItems": 1}
        schema["oneOf"] = [{"required": [kind]} for kind in ("chains", "stages", "edges")]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
