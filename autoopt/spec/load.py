"""Reading dag.yaml: from a file, a mapping or a made `DagSpec`; every mistake is one line that names its place."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from autoopt.errors import ConfigError, did_you_mean, one_line
from autoopt.spec.dag import DagSpec
from autoopt.spec.document import Document, read_document
from autoopt.spec.file_model import FileModel
from autoopt.spec.source import FieldError, Place, Source
from autoopt.spec.strict_model import StrictModel

Model = TypeVar("Model", bound=StrictModel)
Whole = TypeVar("Whole", bound=FileModel)


def load_dag(given: str | Path | Mapping[str, Any] | Document | DagSpec) -> DagSpec:
    """The pass graph in a YAML or JSON file, a mapping, a document, or one that was made already.

    Raises:
        ConfigError: the first thing that is wrong, as `file:line: field: reason`.
    """
    return load(DagSpec, given)


def load(kind: type[Whole], given: Any) -> Whole:
    """Likewise any kind of file; `given` as for `load_dag`."""
    if isinstance(given, kind):
        return given
    document = given if isinstance(given, Document) else read_document(given)
    made = validate(kind, document)
    made._source = document.source
    return made


def validate(model: type[Model], document: Document) -> Model:
    """The document as a `model`.

    Raises:
        ConfigError: the first thing that is wrong.
    """
    if not isinstance(document.value, dict):
        raise document.source.error((), "must be a mapping of fields", f"start with {model.keys()[0]}:")
    try:
        return model.model_validate(document.value)
    except ValidationError as error:
        raise first_error(error, document.source) from None


def first_error(error: ValidationError, source: Source) -> ConfigError:
    """The mistake to tell first: unknown fields (they explain missing ones), then the topmost, missing ones last."""
    found = [_one(e) for e in error.errors(include_url=False)]
    found.sort(key=lambda f: (f[0], source.line(f[1])))
    _, place, reason, remedy = found[0]
    return source.error(place, reason, remedy)


def _one(error: Any) -> tuple[int, Place, str, str]:
    """Rank, place, reason and remedy of one error of pydantic's."""
    kind, given = error["type"], error.get("input")
    context = error.get("ctx", {})
    place: Place = tuple(part for part in error["loc"] if isinstance(part, int) or not _is_tag(part))
    cause = context.get("error")
    if isinstance(cause, FieldError):
        return (0 if cause.reason == "unknown field" else 1), (*place, *cause.place), cause.reason, cause.remedy
    if kind == "missing":
        return 2, place, "is required", ""
    if kind == "literal_error":
        known = [part.strip("'") for part in context["expected"].replace(" or ", ", ").split(", ")]
        return 1, place, f"must be one of {', '.join(known)}, not {_show(given)}", did_you_mean(str(given), known)
    return 1, place, _reason(kind, error["msg"], given), ""


_WORDS = {
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "finite_number": "must be a finite number",
    "too_short": "must not be empty",
    "string_too_short": "must not be empty",
}


def _reason(kind: str, message: str, given: Any) -> str:
    words = _WORDS.get(kind) or one_line(message).replace("Input should be", "must be")
    return f"{words}, not {_show(given)}"


def _show(value: Any) -> str:
    text = one_line(repr(value))
    return text if len(text) <= 60 else f"{text[:57]}..."


def _is_tag(part: str) -> bool:
    """Whether a part of pydantic's location is not a field but its name for one member of a union."""
    return "[" in part or part in ("str", "none")
