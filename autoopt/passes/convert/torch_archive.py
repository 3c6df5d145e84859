"""Files of `torch.export.save` (`.pt2`), read without unpickling or executing their contents.

`torch.export.load` unpickles tensors and objects, evaluates size expressions as Python, and calls any function that a
node names. Files are therefore never loaded directly: the parts that make up a model are checked and copied into a new
archive, and only that copy is loaded.
"""

from __future__ import annotations

import ast
import json
import os
import re
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from autoopt.json_codec import JsonValue
from autoopt.passes.base import Refused

if TYPE_CHECKING:
    import torch


GRAPH: Final = "models/model.json"
CONFIGS: Final = ("data/weights/model_weights_config.json", "data/constants/model_constants_config.json")
SAMPLE: Final = "data/sample_inputs/model.pt"
_PLAIN: Final = re.compile(
    r"archive_format|archive_version|byteorder|\.data/\w+|data/(weights/weight|constants/tensor)_\d+"
)
_PAYLOAD: Final = re.compile(r"(weight|tensor)_\d+")
_TARGET: Final = re.compile(
    r"torch\.ops\.(aten|prims|higher_order|quantized|quantized_decomposed|torchvision)(\.(?!__)\w+){1,2}"
    r"|_operator\.(getitem|add|sub|mul|floordiv|truediv|mod|neg|pos|pow|eq|ne|lt|le|gt|ge|and_|or_|not_)"
    r"|math\.[a-z0-9]+|torch\.sym_(int|float|max|min|not|sqrt|ite|sum)"
)
"""Functions that a node may call: operators without side effects."""
_TEXT: Final = re.compile(r"[\w.,:<>=/+*\- ]*")
"""Every other text. It may end up in generated code, so quotes, brackets and parentheses are not allowed."""
_CALLS: Final = frozenset({
    "Symbol", "Integer", "Float", "Rational", "Add", "Mul", "Pow", "Mod", "Max", "Min", "Abs", "And", "Or", "Not",
    "Eq", "Ne", "Equality", "Unequality", "Lt", "Le", "Gt", "Ge", "StrictLessThan", "LessThan", "StrictGreaterThan",
    "GreaterThan", "ceiling", "floor", "FloorDiv", "ModularIndexing", "Where", "PythonMod", "CleanDiv", "CeilDiv",
    "CeilToInt", "FloorToInt", "TruncToInt", "TruncToFloat", "RoundToInt", "RoundDecimal", "ToFloat", "LShift",
    "RShift", "PowByNatural", "FloatPow", "FloatTrueDiv", "IntTrueDiv", "Identity",
    "IsNonOverlappingAndDenseIndicator",
})  # fmt: skip
"""Functions in size expressions: those of sympy and of torch's symbolic shapes."""
_CONTAINERS: Final = (None, "builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict")
_EXPRESSION: Final = (
    ast.Expression, ast.Call, ast.keyword, ast.Name, ast.Load, ast.Constant, ast.UnaryOp, ast.USub, ast.Not,
    ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow,
    ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE,
)  # fmt: skip


def load_program(path: Path, work: Path) -> torch.export.ExportedProgram:
    """Load the exported program in the file `path`; `work` is a folder for the checked copy.

    Raises:
        Refused: the file is of another kind, or holds something that a model does not need.
    """
    import torch

    copy = write_checked_copy(path, work / "checked.pt2")
    with _weights_only():
        return torch.export.load(str(copy))


@contextmanager
def _weights_only() -> Iterator[None]:
    """Let torch unpickle tensors only, whatever its callers request."""
    name = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def write_checked_copy(path: Path, copy: Path) -> Path:
    """Write the parts of `path` that make up the model to the new archive `copy`.

    Raises:
        Refused: see `load_program`.
    """
    try:
        with zipfile.ZipFile(path) as source, zipfile.ZipFile(copy, "w", zipfile.ZIP_STORED) as target:
            for name, entry in _select_entries(source).items():
                target.writestr(f"model/{name}", _check_content(name, source.read(entry)))
    except (zipfile.BadZipFile, UnicodeDecodeError, ValueError, KeyError, AttributeError) as error:
        raise Refused(f"not a readable file of torch.export.save ({error})") from error
    return copy


def _select_entries(source: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Entries to copy, by their names below the archive's single folder."""
    entries: dict[str, zipfile.ZipInfo] = {}
    for entry in source.infolist():
        name = entry.filename.partition("/")[2]
        if name in (GRAPH, SAMPLE, *CONFIGS) or _PLAIN.fullmatch(name):
            # Readers of zip files disagree about which of two entries counts; only one of them would be checked.
            if name in entries or entry.compress_type != zipfile.ZIP_STORED:
                raise Refused(f"{entry.filename!r} is duplicated or compressed, which torch.export.save never does")
            entries[name] = entry
        elif not name.startswith("extra/"):
            raise Refused(f"holds {entry.filename[:80]!r}, which may be code; only tensors and the graph are read")
    if GRAPH not in entries:
        raise Refused("holds no exported program; save it with torch.export.save of torch 2.8 or newer")
    return entries


def _check_content(name: str, content: bytes) -> bytes:
    if name in CONFIGS:
        config = json.loads(content)
        for payload in config["config"].values():
            if payload.get("use_pickle") or not _PAYLOAD.fullmatch(payload["path_name"]):
                raise Refused("holds pickled objects, which are never unpickled; export it with plain tensors only")
        return json.dumps(config).encode()
    if name == GRAPH:
        graph = json.loads(content)
        graph["guards_code"] = []  # Python source
        return json.dumps(_check_json(graph)).encode()
    return content


def _check_json(item: JsonValue, key: str = "") -> JsonValue:
    """Check every text in the JSON of a graph by the key it belongs to, and drop the notes of nodes."""
    if isinstance(item, dict):
        checked: dict[str, JsonValue] = {}
        for name, value in item.items():
            if name == "metadata":
                checked[name] = {}
            else:
                checked[_check_text(name, "key")] = _check_json(value, name)
        return checked
    if isinstance(item, list):
        return [_check_json(element, key) for element in item]
    if isinstance(item, str):
        return _check_text(item, key)
    return item


def _check_text(text: str, key: str) -> str:
    if key in ("target", "as_operator"):
        allowed = _TARGET.fullmatch(text) is not None
    elif key == "expr_str":
        allowed = _is_expression(text)
    elif key in ("in_spec", "out_spec"):
        protocol, spec = json.loads(text)
        allowed = _is_structure(spec)
        text = json.dumps([protocol, spec])
    else:
        allowed = _TEXT.fullmatch(text) is not None
    if not allowed:
        raise Refused(f"{key} {text[:80]!r} has no place in the graph of a model; the file is not loaded")
    return text


def _is_expression(text: str) -> bool:
    """Tell if a size is an expression of symbols and numbers."""
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, RecursionError, MemoryError):
        return False
    return all(map(_is_allowed_node, ast.walk(tree)))


def _is_allowed_node(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in _CALLS
    if isinstance(node, ast.Constant):
        return not isinstance(node.value, str) or node.value.isidentifier()
    if isinstance(node, ast.Name):
        return not node.id.startswith("__")
    return isinstance(node, _EXPRESSION)


def _is_structure(spec: Mapping[str, Any]) -> bool:
    """Tell if inputs or outputs are nested tuples, lists and dicts with plain keys."""
    if spec["type"] not in _CONTAINERS:
        return False
    context = spec.get("context")
    if context:
        keys = json.loads(context)
        if keys is not None and not (isinstance(keys, list) and all(isinstance(key, (str, int)) for key in keys)):
            return False
    return all(map(_is_structure, spec["children_spec"]))
