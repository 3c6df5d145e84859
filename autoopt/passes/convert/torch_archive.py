"""Files of `torch.export.save` (`.pt2`), read without unpickling or executing anything that lies in them.

`torch.export.load` unpickles tensors and objects, evaluates size expressions as Python and calls whatever function a
node names. So a file is never given to it: what a model needs is checked and copied into a new archive, and that is.
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
"""Functions that a node may call: operators without effects."""


_TEXT: Final = re.compile(r"[\w.,:<>=/+*\- ]*")
"""Every other text: nothing that could be more than a name once it stands in generated code."""


_CALLS: Final = frozenset(
    [
        "Symbol",
        "Integer",
        "Float",
        "Rational",
        "Add",
        "Mul",
        "Pow",
        "Mod",
        "Max",
        "Min",
        "Abs",
        "And",
        "Or",
        "Not",
        "Eq",
        "Ne",
        "Equality",
        "Unequality",
        "Lt",
        "Le",
        "Gt",
        "Ge",
        "StrictLessThan",
        "LessThan",
        "StrictGreaterThan",
        "GreaterThan",
        "ceiling",
        "floor",
        "FloorDiv",
        "ModularIndexing",
        "Where",
        "PythonMod",
        "CleanDiv",
        "CeilDiv",
        "CeilToInt",
        "FloorToInt",
        "TruncToInt",
        "TruncToFloat",
        "RoundToInt",
        "RoundDecimal",
        "ToFloat",
        "LShift",
        "RShift",
        "PowByNatural",
        "FloatPow",
        "FloatTrueDiv",
        "IntTrueDiv",
        "Identity",
        "IsNonOverlappingAndDenseIndicator",
    ]
)


_CONTAINERS: Final = (None, "builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict")


_EXPRESSION: Final = (
    ast.Expression, ast.Call, ast.keyword, ast.Name, ast.Load, ast.Constant, ast.UnaryOp, ast.USub, ast.Not,
    ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow,
    ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE,
)  # fmt: skip


def load_program(path: Path, work: Path) -> torch.export.ExportedProgram:
    """The exported program in the file `path`; `work` is a folder for the checked copy.

    Raises:
        Refused: it is no such file, or holds something that is not needed to describe a model.
    """
    import torch

    copy = checked_copy(path, work / "checked.pt2")
    with _weights_only():
        return torch.export.load(str(copy))


@contextmanager
def _weights_only() -> Iterator[None]:
    """Let torch unpickle tensors only, whatever its callers ask for."""
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


def checked_copy(path: Path, copy: Path) -> Path:
    """Write what makes up the model in `path` to the new archive `copy`.

    Raises:
        Refused: see `load_program`.
    """
    try:
        with zipfile.ZipFile(path) as source, zipfile.ZipFile(copy, "w", zipfile.ZIP_STORED) as made:
            for name, entry in _entries(source).items():
                made.writestr(f"model/{name}", _checked(name, source.read(entry)))
    except (zipfile.BadZipFile, UnicodeDecodeError, ValueError, KeyError, AttributeError) as error:
        raise Refused(f"no readable file of torch.export.save ({error})") from error
    return copy


def _entries(source: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """What is taken over, by its name below the archive's one folder."""
    found: dict[str, zipfile.ZipInfo] = {}
    for entry in source.infolist():
        name = entry.filename.partition("/")[2]
        if name in (GRAPH, SAMPLE, *CONFIGS) or _PLAIN.fullmatch(name):
            if name in found or entry.compress_type != zipfile.ZIP_STORED:
                raise Refused(f"{entry.filename!r} is there twice or compressed, which torch.export.save never does")
            found[name] = entry
        elif not name.startswith("extra/"):
            raise Refused(f"holds {entry.filename[:80]!r}, which may be code; only tensors and the graph are read")
    if GRAPH not in found:
        raise Refused("holds no exported program; save it with torch.export.save of torch 2.8 or newer")
    return found


def _checked(name: str, content: bytes) -> bytes:
    if name in CONFIGS:
        config = json.loads(content)
        for payload in config["config"].values():
            if payload.get("use_pickle") or not _PAYLOAD.fullmatch(payload["path_name"]):
                raise Refused("holds pickled objects, which are never unpickled; export it with plain tensors only")
        return json.dumps(config).encode()
    if name == GRAPH:
        graph = json.loads(content)
        graph["guards_code"] = []  # Python source
        return json.dumps(_clean(graph)).encode()
    return content


def _clean(item: Any, key: str = "") -> Any:
    """The JSON of a graph without the notes of its nodes, every text in it checked by what it is for."""
    if isinstance(item, dict):
        return {_text(k, "key"): {} if k == "metadata" else _clean(v, k) for k, v in item.items()}
    if isinstance(item, list):
        return [_clean(each, key) for each in item]
    return _text(item, key) if isinstance(item, str) else item


def _text(text: str, key: str) -> str:
    if key in ("target", "as_operator"):
        good = _TARGET.fullmatch(text) is not None
    elif key == "expr_str":
        good = _is_expression(text)
    elif key in ("in_spec", "out_spec"):
        protocol, spec = json.loads(text)
        good = _is_structure(spec)
        text = json.dumps([protocol, spec])
    else:
        good = _TEXT.fullmatch(text) is not None
    if not good:
        raise Refused(f"{key} {text[:80]!r} is none that the graph of a model needs; it is not read")
    return text


def _is_expression(text: str) -> bool:
    """Whether a size is an expression of symbols and numbers."""
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, RecursionError, MemoryError):
        return False
    for node in ast.walk(tree):
        if not isinstance(node, _EXPRESSION):
            return False
        if isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id in _CALLS):
            return False
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and not node.value.isidentifier():
            return False
        if isinstance(node, ast.Name) and node.id.startswith("__"):
            return False
    return True


def _is_structure(spec: Mapping[str, Any]) -> bool:
    """Whether inputs or outputs are nested tuples, lists and dicts with plain keys."""
    context = spec.get("context")
    keys = json.loads(context) if context else None
    plain = keys is None or (isinstance(keys, list) and all(isinstance(k, (str, int)) for k in keys))
    return plain and spec["type"] in _CONTAINERS and all(_is_structure(child) for child in spec["children_spec"])
