"""Run a user script: the only user code that is ever executed; in workers only, once per content."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from autoopt.errors import AutooptError, InputError, one_line

_loaded: dict[tuple[Path, str], ModuleType] = {}
"""Modules by path and digest of the content."""


def load_script(path: str | Path) -> ModuleType:
    """Execute the Python file at `path`; its decorators register passes, metrics and data components.

    The same content at the same path is executed once per process.

    Raises:
        InputError: no such file, or an exception while it ran.
    """
    file = Path(path).expanduser().absolute()
    if not file.is_file():
        raise InputError("no such user script", where=str(file))
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    if (file, digest) in _loaded:
        return _loaded[file, digest]
    name = f"autoopt_user_{digest[:16]}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise InputError("not a Python file", where=str(file))
    module = importlib.util.module_from_spec(spec)
    # Registered before it runs: dataclasses and pickle look their module up there.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except AutooptError:
        raise
    except Exception as error:
        raise InputError(one_line(f"{type(error).__name__}: {error}"), where=str(file)) from error
    _loaded[file, digest] = module
    return module
