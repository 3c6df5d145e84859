"""What a worker finds in its environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

LENT = "AUTOOPT_LENT_MODULES"
"""Set for a worker: `3.11:folder:folder`, the minor version that the folders' modules are for, and the folders."""
_WITHHELD = ("AUTOOPT_DB_URL", "PGPASSWORD", LENT)
_QUIET = (
    ("TOKENIZERS_PARALLELISM", "false"),
    ("HF_HUB_DISABLE_TELEMETRY", "1"),
    ("ORT_DISABLE_TELEMETRY", "1"),
    ("DO_NOT_TRACK", "1"),
)


def child_environment(python: str, extra: Mapping[str, str] | None = None, lend: bool = False) -> dict[str, str]:
    """The environment of a worker: ours without what is not its business, and reproducible."""
    env = {k: v for k, v in os.environ.items() if k not in _WITHHELD and not k.startswith("PREFECT_")}
    if python != sys.executable:  # our own module paths mean nothing to another interpreter
        for name in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__"):
            env.pop(name, None)
    env["PYTHONHASHSEED"] = "0"
    for name, value in _QUIET:
        env.setdefault(name, value)
    if lend:
        folders = [p for p in sys.path if Path(p).name in ("site-packages", "dist-packages")]
        env[LENT] = os.pathsep.join([_version(), *folders])
    return env | dict(extra or {})


def borrow() -> None:
    """In a worker, and in a process that it starts: make lent modules importable, after all of the interpreter's
    own."""
    version, *folders = os.environ.get(LENT, "").split(os.pathsep)
    if version == _version():
        sys.path += folders


def _version() -> str:
    return f"{sys.version_info[0]}.{sys.version_info[1]}"
