"""All mistakes of a DAG at once: wrong fields, wrong parameters of passes, and missing files."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import filterfalse
from typing import Final

from autoopt.dag.compiler.compile import nodes_of
from autoopt.dag.compiler.requirements import PassLookup, pass_infos
from autoopt.errors import ConfigError, Mistakes, joined
from autoopt.spec import DagSpec, load_dag
from autoopt.spec.document import Document, Json
from autoopt.spec.file_model import Written
from autoopt.spec.reader import overridden, read_document

FILE_FIELDS: Final = ("user_script", "model", "connections", "pipeline", "data")
"""Fields of a DAG that name files, and those that only make sense with them."""


def read_dag(
    given: Written | DagSpec, fields: Mapping[str, Json] | None = None, *, model: bool = False, data: bool = False
) -> DagSpec:
    """Load a DAG. If fields are wrong, its passes and the files that it names are looked at too.

    Args:
        given: The DAG.
        fields: Fields that override those of a DAG that is not loaded yet, by their dotted names.
        model: Whether to look for its model, which nothing else replaces.
        data: The same for its data.

    Raises:
        ConfigError: the first mistake, with all others.
    """
    if isinstance(given, DagSpec):
        return given
    document = overridden(given if isinstance(given, Document) else read_document(given), fields or {})
    try:
        return load_dag(document)
    except ConfigError as error:
        missing = _missing_files(document, model=model, data=data)
        raise joined([error, *error.others, *_wrong_passes(document), *missing]) from None


def check_dag(spec: DagSpec, *, model: bool, data: bool) -> None:
    """Check that the files exist that a DAG names, and its passes; `model` and `data` as for `DagSpec.check_files`.

    Raises:
        ConfigError: the first mistake, with all others.
    """
    mistakes = Mistakes()
    with mistakes:
        _check_passes(spec)
    with mistakes:
        spec.check_files(model=model, data=data)
    mistakes.raise_all()


def _check_passes(spec: DagSpec) -> None:
    """Check passes and their parameters, unless a script may add passes.

    Those that another host may have or describe otherwise are left to planning.

    Raises:
        ConfigError: the first mistake, with all others.
    """
    if not spec.user_script:
        lookup = PassLookup(spec, pass_infos(spec.all_targets[0].accelerator()))
        nodes_of(lookup, filterfalse(lookup.is_left_to_host, spec.passes))


def _wrong_passes(document: Document) -> list[ConfigError]:
    """The mistakes of each pass of a DAG that cannot be loaded."""
    fields = document.value
    if not isinstance(fields, dict) or fields.get("user_script"):
        return []
    passes = fields.get("passes")
    if not isinstance(passes, dict):
        return []
    mistakes = Mistakes()
    for node, content in passes.items():
        single: dict[str, Json] = {"name": "dag", "passes": {node: content}, "chains": [[node]]}
        if "host" in fields:
            single["host"] = fields["host"]
        alone = Document(single, document.source)
        with mistakes:
            _check_passes(load_dag(alone))
    return mistakes.errors


def _missing_files(document: Document, *, model: bool, data: bool) -> list[ConfigError]:
    """The missing files of a DAG that cannot be loaded."""
    fields = document.value
    if not isinstance(fields, dict):
        return []
    files: dict[str, Json] = {name: fields[name] for name in FILE_FIELDS if name in fields}
    alone = Document({"name": "dag", "passes": {"a": "simplify"}, "chains": [["a"]], **files}, document.source)
    mistakes = Mistakes()
    with mistakes:
        load_dag(alone).check_files(model=model, data=data)
    return mistakes.errors
