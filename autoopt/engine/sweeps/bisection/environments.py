"""Interpreters with earlier versions of libraries: virtual environments below the home of the store."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from autoopt.engine.work.environment import LIBRARIES, versions
from autoopt.errors import SystemFailure, one_line
from autoopt.model.candidate import digest_json
from autoopt.working_folder import working_folder

FOLDER: Final = "environments"
INSTALL_SECONDS: Final = 600
VERSION: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+!_-]*")
DIGITS: Final = 16
"""Digits of the digest that names an environment."""


@dataclass(frozen=True)
class Environments:
    """Makes and finds the environments."""

    home: Path
    """Home of the store."""

    def python(self, libraries: Mapping[str, str]) -> str:
        """Return an interpreter in which these libraries have these versions.

        It lacks all other libraries; workers borrow them from this interpreter. This interpreter is the
        answer if it has all `libraries`, which are versions by name.

        Raises:
            SystemFailure: An environment cannot be made; a version cannot be installed, for example without a network.
        """
        others = {name: version for name, version in libraries.items() if versions().get(name) != version}
        if not others:
            return sys.executable
        for name, version in others.items():
            if name not in LIBRARIES or not VERSION.fullmatch(version):
                raise SystemFailure(f"{name} {version!r} is no version of a library that autoopt uses")
        folder = self.home / FOLDER / digest_json(sorted(others.items()))[:DIGITS]
        if not folder.is_dir():
            self._make(folder, others)
        return str(folder / "bin" / "python")

    @staticmethod
    def _make(folder: Path, libraries: Mapping[str, str]) -> None:
        """Make an environment aside, and move it to its place when it is complete."""
        with working_folder(folder.parent) as scratch:
            new = scratch / folder.name
            python = str(new / "bin" / "python")
            venv, pip = [sys.executable, "-m", "venv", str(new)], [python, "-m", "pip"]
            if find_spec("pip"):  # without a copy of pip, the environment is made in a tenth of the time
                venv.append("--without-pip")
                pip = [sys.executable, "-m", "pip", "--python", python]
            _run(venv, "cannot make a virtual environment", "install Python's module venv")
            requirements = [f"{name}=={version}" for name, version in libraries.items()]
            remedy = "check the network, or point PIP_INDEX_URL or PIP_FIND_LINKS to a place that has it"
            command = [*pip, "install", "--quiet", "--disable-pip-version-check", "--no-deps", *requirements]
            _run(command, f"cannot install {', '.join(requirements)}", remedy)
            (new / "libraries.json").write_text(json.dumps(dict(libraries)), encoding="utf-8")
            if not folder.exists():  # another process may have made the same one meanwhile
                new.rename(folder)


def _run(command: list[str], failure: str, remedy: str) -> None:
    """Run a command."""
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise SystemFailure(f"{failure} within {INSTALL_SECONDS} s", remedy=remedy) from None
    if process.returncode:
        lines = [line for line in (process.stderr or process.stdout).splitlines() if line.strip()]
        reason = f" ({one_line(lines[-1])})" if lines else ""
        raise SystemFailure(f"{failure}{reason}", remedy=remedy)
