"""Reading dag.yaml: from a file, a mapping or a made `DagSpec`; every mistake is one line that names its place."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from autoopt.spec.dag import DagSpec
from autoopt.spec.document import Document, read_document
from autoopt.spec.file_model import FileModel
from autoopt.spec.strict_model import StrictModel
from autoopt.spec.validation import first_error

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
