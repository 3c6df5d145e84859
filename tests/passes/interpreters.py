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
    venv.create(folder, with_pip=True)
    made, constraints = folder / "bin" / "python", ROOT / "constraints.txt"
    version = next(line for line in constraints.read_text().splitlines() if line.startswith(f"{library}=="))
    pip = [made, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-c", constraints, version]
    done = subprocess.run(pip, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no {version} on the package index: {done.stderr[-200:]}")
    site = next((folder / "lib").glob("python*")) / "site-packages"
    here = [str(ROOT), *(p for p in sys.path if p.endswith("site-packages"))]
    (site / "these.pth").write_text("\n".join(here) + "\n")
    return made
