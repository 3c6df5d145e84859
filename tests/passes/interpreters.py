"""Interpreters of their own for passes whose libraries the tests do without."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def interpreter(folder: Path, library: str) -> Path:
    """A new one below `folder` with that library, at the version of constraints.txt; everything else is what these
    tests run with. Skips the test where the package index has none such."""
    venv.create(folder, with_pip=False)
    made, constraints = folder / "bin" / "python", ROOT / "constraints.txt"
    site = next((folder / "lib").glob("python*")) / "site-packages"
    here = [str(ROOT), *(p for p in sys.path if p.endswith("site-packages"))]
    (site / "these.pth").write_text("\n".join(here) + "\n")
    version = next(line for line in constraints.read_text().splitlines() if line.startswith(f"{library}=="))
    # Compiling all modules takes longer than installing them, and few are imported.
    options = ["-q", "--disable-pip-version-check", "--no-compile", "-c", constraints]
    pip = [made, "-m", "pip", "install", *options, version]
    done = subprocess.run(pip, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no {version} on the package index: {done.stderr[-200:]}")
    return made
