"""The environment variables of a worker, and modules that another interpreter borrows from this one."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

LENT_MODULES = "AUTOOPT_LENT_MODULES"
"""Variable of a worker: `3.11:folder:folder`, the minor version that the folders' modules are for, and the folders."""
_WITHHELD = ("AUTOOPT_DB_URL", "PGPASSWORD", LENT_MODULES)
_OWN_INTERPRETER = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")
_QUIET = {
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "ORT_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
}
_VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"


def child_environment(python: str, extra: Mapping[str, str] | None = None, lend: bool = False) -> dict[str, str]:
    """Build the environment of a worker: this process's variables without secrets, and with a fixed hash seed.

    `extra` variables come on top. With `lend`, the worker imports the modules installed here that its own interpreter
    lacks.
    """
    withheld = set(_WITHHELD)
    if python != sys.executable:  # module paths of this interpreter mean nothing to another one
        withheld.update(_OWN_INTERPRETER)
    public = [name for name in os.environ if name not in withheld and not name.startswith("PREFECT_")]
    env = _QUIET | {name: os.environ[name] for name in public}
    env["PYTHONHASHSEED"] = "0"
    if lend:
        folders = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
        env[LENT_MODULES] = os.pathsep.join([_VERSION, *folders])
    env.update(extra or {})
    return env


def startup_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Select the variables of a worker that may matter to the start and the imports of its interpreter.

    Those of autoopt itself and the folder for temporary files differ between workers of the same interpreter.
    """
    return {
        name: value
        for name, value in env.items()
        if name == LENT_MODULES or not name.startswith(("AUTOOPT_", "PYTEST_", "TMPDIR"))
    }


def use_lent_modules() -> None:
    """In a worker: make lent modules importable, after all of the interpreter's own; its runtime must be its own."""
    version, *folders = os.environ.get(LENT_MODULES, "").split(os.pathsep)
    if version == _VERSION:
        if find_spec("onnxruntime") is None:
            sys.modules["onnxruntime"] = None  # type: ignore[assignment]  # importing it fails
        sys.path += folders
