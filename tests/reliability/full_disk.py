"""In a mount namespace of its own: runs with a home on a file system that is too small, then large enough, then
read-only.

    python full_disk.py FOLDER SIZE...      prints {"small": [[exit code, standard error] ...], "left": ..., ...}
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from children import HANG_SECONDS
from commands import RUN, left, start

READ = (("best", "--json"), ("lineage", "--json"), ("report", "--out", "report.html"), ("store", "verify"))


def mount(home: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(home)], check=True)


def said(folder: Path, *arguments: str) -> list[Any]:
    process = start(folder, *arguments)
    _, stderr = process.communicate(timeout=HANG_SECONDS)
    return [process.returncode, stderr]


def main(folder: Path, sizes: list[str]) -> dict[str, Any]:
    home = folder / "home"
    home.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={sizes[0]}", "tmpfs", str(home)], check=True)
    found: dict[str, Any] = {"small": []}
    for size in sizes:
        mount(home, f"size={size}")
        found["small"].append(said(folder, *RUN))
    mount(home, "size=100m")
    found["large"] = said(folder, *RUN)
    found["verified"] = said(folder, "store", "verify")
    found["left"] = left(home)
    mount(home, "ro")
    found["read"] = {" ".join(arguments): said(folder, *arguments) for arguments in READ}
    found["written"] = said(folder, *RUN, "--fresh")
    return found


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), sys.argv[2:])))
