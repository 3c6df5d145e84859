"""The modules that a user script imports: what it does changes with them."""

from __future__ import annotations

import ast
import importlib.util
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
"""Folders of installed distributions, which are known by their versions."""


def imported_files(script: Path) -> list[Path]:
    """The files of the modules that a script that was executed imports, directly or through each other, sorted.

    Modules of Python and of installed distributions are left out. Imports within functions count.
    """
    files: set[Path] = set()
    remaining = [(script, "")]
    while remaining:
        file, package = remaining.pop()
        for name in _imported_names(file, package):
            imported = _own_file(name)
            if imported is not None and imported not in files:
                files.add(imported)
                is_package = imported.name == "__init__.py"
                remaining.append((imported, name if is_package else name.rpartition(".")[0]))
    return sorted(files)


def _imported_names(file: Path, package: str) -> Iterator[str]:
    """Names of modules, and of what may be modules, that a file in a package imports."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):  # not source, or it changed since it was executed
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _with_packages(alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")
                base = ".".join(filter(None, [*parents[: len(parents) - node.level + 1], base]))
            yield from _with_packages(base)
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _with_packages(name: str) -> Iterator[str]:
    """`a.b.c` as `a`, `a.b` and `a.b.c`."""
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        yield ".".join(parts[:count])


def _own_file(name: str) -> Path | None:
    """The source of a module that is neither Python's, nor installed, nor autoopt's; None for any other."""
    parent, _, _ = name.rpartition(".")
    if name.partition(".")[0] == "autoopt" or (parent and parent not in sys.modules):
        return None
    try:
        # Finding a module of a package that was not imported would import the package.
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return None
    if spec is None or not spec.has_location or spec.origin is None:
        return None
    file = Path(spec.origin)
    is_python = file.is_relative_to(sysconfig.get_path("stdlib"))
    if is_python or not _INSTALLED.isdisjoint(file.parts) or not file.is_file():
        return None
    return file
