"""Interpreters of their own: with libraries that the tests do without, or with few."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import numpy as np
import pytest

SITE = Path(np.__file__).parent.parent
RUNTIME = ("numpy", "numpy.libs", "onnxruntime")
"""Entries of `SITE` that measuring needs."""
ALL_BUT_AUTOOPT = tuple(entry.name for entry in SITE.iterdir() if "autoopt" not in entry.name)
ROOT = Path(__file__).parents[1]


def interpreter(folder: Path, library: str, *others: str) -> Path:
    """A new one below `folder` with these libraries; everything else is what these tests run with.

    The first has the version of constraints.txt. With `others`, which need older libraries, the rest of that file does
    not count. Skips the test where the package index has none such.
    """
    venv.create(folder, with_pip=False)
    made, constraints = folder / "bin" / "python", ROOT / "constraints.txt"
    site = next((folder / "lib").glob("python*")) / "site-packages"
    here = [str(ROOT), *(p for p in sys.path if p.endswith("site-packages"))]
    (site / "these.pth").write_text("\n".join(here) + "\n")
    version = next(line for line in constraints.read_text().splitlines() if line.startswith(f"{library}=="))
    # Compiling all modules takes longer than installing them, and few are imported.
    options = ["-q", "--disable-pip-version-check", "--no-compile"]
    if not others:
        options += ["-c", str(constraints)]
    pip = [made, "-m", "pip", "install", *options, version, *others]
    done = subprocess.run(pip, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no {version} on the package index: {done.stderr[-200:]}")
    return made


def linked_interpreter(folder: Path, *names: str) -> str:
    """A new one without pip or autoopt; it has these entries of our own site-packages, nothing else."""
    venv.create(folder, with_pip=False)
    site = next(folder.glob("lib/python*/site-packages"))
    for name in names:
        if (SITE / name).exists():
            (site / name).symlink_to(SITE / name)
    return str(folder / "bin" / "python")


def bare_interpreter(folder: Path, *packages: str) -> Path:
    """A new one with numpy and these packages, and nothing else."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    done = pip(python, "install", "--quiet", "numpy", *packages)
    if done.returncode:
        pytest.skip(f"{' and '.join(packages)} cannot be installed: {done.stderr[-200:]}")
    return python


def pip(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run this interpreter's pip for another one."""
    command = [sys.executable, "-m", "pip", "--python", str(python), *arguments]
    return subprocess.run(command, capture_output=True, text=True)
