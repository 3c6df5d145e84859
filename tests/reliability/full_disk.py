"""In a mount namespace of its own: runs with a home on a file system that is too small, then large enough, then
read-only.

    python full_disk.py FOLDER SIZE...      prints {"small": [[exit code, standard error] ...], "left": ..., ...}
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from commands import RUN, fill, left

from autoopt.cli.app import main as autoopt_main
from autoopt.settings import settings

READ = (("best", "--json"), ("lineage", "--json"), ("report", "--out", "report.html"), ("store", "verify"))


def mount(home: Path, options: str) -> None:
    """Change the file system, which works only if no command has left a file open for writing."""
    subprocess.run(["mount", "-o", f"remount,{options}", str(home)], check=True)


def said(folder: Path, *arguments: str) -> tuple[int, str]:
    """Exit code and standard error of a command in `folder`, which runs in this process."""
    os.chdir(folder)
    os.environ["AUTOOPT_HOME"] = str(folder / "home")
    settings.cache_clear()
    streams = [os.dup(1), os.dup(2)]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        try:
            code = autoopt_main(arguments)
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            for number, stream in enumerate(streams, start=1):
                os.dup2(stream, number)
                os.close(stream)
        err.seek(0)
        return code, err.read()


def main(folder: Path, sizes: list[str]) -> dict[str, Any]:
    home = folder / "home"
    home.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={sizes[0]}", "tmpfs", str(home)], check=True)
    results: dict[str, Any] = {"small": []}
    for size in sizes:
        mount(home, f"size={size}")
        results["small"].append(said(folder, *RUN))
    mount(home, "size=100m")
    results["large"] = said(folder, *RUN)
    results["verified"] = said(folder, "store", "verify")
    results["left"] = left(home)
    mount(home, "ro")
    results["read"] = {" ".join(arguments): said(folder, *arguments) for arguments in READ}
    results["written"] = said(folder, *RUN, "--fresh")
    roomy = fill(folder / "roomy", width=8192)
    results["roomy"] = said(roomy, *RUN)
    results["roomy left"] = left(roomy / "home")
    return results


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), sys.argv[2:])))
