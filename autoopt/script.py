"""Run a user script: the only user code that is ever executed; in workers only, once per content."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final

from autoopt.errors import AutooptError, InputError, one_line

SCRIPT_FOLDERS = "AUTOOPT_SCRIPTS"
"""Variable: the only folders whose scripts may run, separated as in PATH. If it is not set, any script may run."""
MODULE_PREFIX = "autoopt_user_"
"""Start of the names of the modules that scripts are executed as."""
_loaded: dict[tuple[Path, str], ModuleType] = {}
"""Modules by path and digest of the content."""
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
"""Folders of installed distributions, which are known by their versions."""


@contextmanager
def only_allowed_scripts() -> Iterator[None]:
    """Run only scripts in the folders of AUTOOPT_SCRIPTS, none if it is not set: for work that others ask for.

    Processes that are started inside inherit this.
    """
    before = os.environ.get(SCRIPT_FOLDERS)
    os.environ.setdefault(SCRIPT_FOLDERS, "")
    try:
        yield
    finally:
        if before is None:
            del os.environ[SCRIPT_FOLDERS]


def check_allowed(path: str | Path) -> None:
    """Check that a script or an interpreter may run: it is in an allowed folder.

    Raises:
        InputError: it may not.
    """
    allowed = os.environ.get(SCRIPT_FOLDERS)
    if allowed is None or is_below(path, allowed):
        return
    remedy = "name its folder with 'autoopt serve --scripts DIR', or in AUTOOPT_SCRIPTS of another worker"
    raise InputError("this worker may run only scripts in allowed folders", where=str(path), remedy=remedy)


def is_below(path: str | Path, allowed: str) -> bool:
    """True if a script or an interpreter is in one of these folders, which are separated as in PATH."""
    folders = [Path(folder).resolve() for folder in allowed.split(os.pathsep) if folder]
    file = Path(os.path.abspath(path))
    file = file.parent.resolve() / file.name  # the interpreter of a virtual environment is itself a link
    return "://" not in str(path) and any(map(file.is_relative_to, folders))


class _UncachedLoader(SourceFileLoader):
    """Compiles the source each time: Python's cache takes a file of the same size and second for unchanged."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def line_in(file: str | Path, error: BaseException) -> str:
    """`file:line` of the last line in `file` that an exception passed; the file alone if it passed none."""
    line = None
    if isinstance(error, SyntaxError) and error.filename == str(file):
        line = error.lineno
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename == str(file):
            line = frame.lineno
    return str(file) if line is None else f"{file}:{line}"


def script_line(error: BaseException) -> str:
    """`file:line` of the last line of a user script that an exception passed; empty if it passed none."""
    place = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if frame.f_globals.get("__name__", "").startswith(MODULE_PREFIX):
            place = f"{frame.f_code.co_filename}:{line}"
    return place


def load_script(path: str | Path, *, again: bool = False) -> ModuleType:
    """Execute the Python file at `path`; its decorators register passes, metrics and data components.

    The same content at the same path is executed once per process, unless `again` is true.

    Raises:
        InputError: no such file, it may not run here, or an exception while it ran.
    """
    file = Path(path).expanduser().absolute()
    if not file.is_file():
        raise InputError("no such user script", where=str(file))
    check_allowed(file)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    if (file, digest) in _loaded and not again:
        return _loaded[file, digest]
    name = f"{MODULE_PREFIX}{digest[:16]}"
    spec = importlib.util.spec_from_file_location(name, file, loader=_UncachedLoader(name, str(file)))
    if spec is None or spec.loader is None or file.suffix != ".py":
        raise InputError("not a Python file", where=str(file))
    module = importlib.util.module_from_spec(spec)
    # Registered before it runs: dataclasses and pickle look their module up there.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except AutooptError:
        raise
    except Exception as error:
        raise InputError(one_line(f"{type(error).__name__}: {error}"), where=line_in(file, error)) from error
    _loaded[file, digest] = module
    return module


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
