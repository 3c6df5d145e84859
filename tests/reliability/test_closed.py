"""Nothing is open by default, and nothing that is read as data is run as code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import autoopt

ROOT = Path(autoopt.__file__).parent
RUNS_CODE = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib", "yaml", "code", "codeop"}
SCRIPTS = {"exec_module", "run_path", "run_module"}
"""Run a file: only `load_script` may, with the script that the user named."""
SCRIPT_LOADER = "script.py: spec.loader.exec_module"
LOOKED_THROUGH = {
    "passes/convert/torch_archive.py: torch.export.load",  # a checked copy without code: test_torch_archive.py
    "workers/child.py: _spec.loader.exec_module",  # autoopt itself
}
CALLS = {"eval", "exec", "compile", "__import__"}


def unsafe(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Lines where something could run what it reads."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            yield from ((node.lineno, name) for name in names if name.split(".")[0] in RUNS_CODE)
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in CALLS:
                yield node.lineno, node.func.id
            for keyword in node.keywords:
                value = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
                if (keyword.arg, value) in {("allow_pickle", True), ("weights_only", False), ("shell", True)}:
                    yield node.lineno, str(keyword.arg)
            called = ast.unparse(node.func)
            if called in ("np.load", "numpy.load") and "allow_pickle" not in {k.arg for k in node.keywords}:
                yield node.lineno, called
            if called in ("torch.load", "torch.export.load", "os.system") or called.rpartition(".")[2] in SCRIPTS:
                yield node.lineno, called


def test_nothing_in_the_package_runs_what_it_reads() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {what}"
        for path in sorted(ROOT.rglob("*.py"))
        for _, what in unsafe(ast.parse(path.read_text()))
    ]
    assert set(found) - LOOKED_THROUGH == {SCRIPT_LOADER}
    assert found.count(SCRIPT_LOADER) == 1


@pytest.mark.parametrize(
    "text",
    [
        "import pickle", "from joblib import load", "eval(x)", "np.load(p)", "np.load(p, allow_pickle=True)",
        "torch.load(p)", "subprocess.run(x, shell=True)", "def f():\n    import yaml",
    ],
)  # fmt: skip
def test_the_same_check_finds_what_does(text: str) -> None:
    assert list(unsafe(ast.parse(text)))
