"""Running a user script: the only code of the user that is ever executed; in workers only, once per content."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from autoopt.errors import AutooptError, InputError, one_line

_loaded: dict[str, tuple[str, ModuleType]] = {}


def load_script(path: str | Path) -> ModuleType:
    """The module made by executing the Python file at `path`; decorators in it register its passes, metrics and data
    components. The same content at the same path is executed once per process.

    Raises:
        InputError: no such file, or an exception while it ran.
    """
    file = Path(path).expanduser().absolute()
    if not file.is_file():
        raise InputError("no such user script", where=str(file))
    content = hashlib.sha256(file.read_bytes()).hexdigest()
    known = _loaded.get(str(file))
    if known is not None and known[0] == content:
        return known[1]
    name = f"autoopt_user_{content[:16]}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise InputError("is not a Python file", where=str(file))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except AutooptError:
        raise
    except Exception as error:
        raise InputError(one_line(f"{type(error).__name__}: {error}"), where=str(file)) from error
    _loaded[str(file)] = (content, module)
    return module
