"""The real command, killed again and again until it has finished; then what it left behind is examined.

    python killed.py FOLDER VARIANT KILLS SEED      prints {"kills", "named", "rounds", "problems": [...]}

FOLDER holds `dag.yaml` and `model.onnx`. VARIANT: `store`, or `naive`, which writes artifacts in place. Every other
kill comes at a named point, the rest at random moments. This process has one thread and has imported everything; it
forks one command after the other, so that starting one costs nothing, and kills only what it forked.
"""

from __future__ import annotations

import json
import os
import random
import select
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import psutil
from children import HANG_SECONDS
from run_comparison import canonical

import autoopt.api  # noqa: F401  these are imported for the forks
import autoopt.cli.run  # noqa: F401
import autoopt.engine.run.session  # noqa: F401
import autoopt.passes.convert.conversions  # noqa: F401
import autoopt.passes.quantize.dynamic  # noqa: F401
import autoopt.passes.shape.inference  # noqa: F401
import autoopt.report.runs.conclusion  # noqa: F401
import autoopt.search.samplers.surrogate  # noqa: F401
import autoopt.search.surrogates.models  # noqa: F401
import autoopt.spec.yaml_reader  # noqa: F401
from autoopt.cli.app import main as autoopt_main
from autoopt.errors import AutooptError
from autoopt.settings import settings
from autoopt.store import faults, open_store
from autoopt.store.files.artifacts import ArtifactFiles
from autoopt.store.maintenance.verify import verify

RUN = ("run", "dag.yaml", "--model", "model.onnx", "--engine", "inline")


def _naive_put(files: ArtifactFiles, source: Path, digest: str | None, consume: bool) -> str:
    """Straight to its place, in two halves, and accept any file there as whole."""
    content = (source / "model.onnx").read_bytes()
    assert digest is not None  # workers always say it
    if not files.folder(digest).exists():
        files.folder(digest).mkdir(parents=True)
        with open(files.folder(digest) / "model.onnx", "wb") as file:
            file.write(content[: len(content) // 2])
            file.flush()
            faults.reached("after copy")
            file.write(content[len(content) // 2 :])
    return digest


def command(home: Path, variant: str) -> tuple[str, ...]:
    """What a user would type now: `resume` where a run was interrupted."""
    if variant == "naive" or not (home / "autoopt.db").exists():
        return RUN
    with open_store(None, home) as store:
        return ("resume", "--engine", "inline") if store.runs.all(status="running") else RUN


def attempt(home: Path, variant: str, fault: str, moment: float | None) -> tuple[int, int]:
    """One command, killed at a named point or after `moment` seconds; its process id and wait status."""
    arguments = command(home, variant)
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            handle = os.open(home.parent / "said.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(handle, 1)
            os.dup2(handle, 2)
            os.environ["AUTOOPT_HOME"] = str(home)
            settings.cache_clear()
            if variant == "naive":
                ArtifactFiles._put = _naive_put  # type: ignore[method-assign]
            faults.arm(fault)
            code = autoopt_main([*arguments, "--json", "--out", str(home.parent / "out")])
        finally:
            os._exit(code)
    if moment is not None:
        ended = os.pidfd_open(pid)
        if not select.select([ended], [], [], moment)[0]:
            os.kill(pid, signal.SIGKILL)
        os.close(ended)
    return os.waitpid(pid, 0)


def orphans(parent: int, seconds: float = HANG_SECONDS) -> list[int]:
    """Workers of a process that has ended that are still there after a while."""
    until = time.monotonic() + seconds
    while True:
        left = [p.pid for p in psutil.process_iter(["cmdline"]) if _works_for(p.info["cmdline"] or [], parent)]
        if not left or time.monotonic() > until:
            return left
        time.sleep(0.05)


def _works_for(words: list[str], parent: int) -> bool:
    return len(words) > 2 and words[-2].endswith("workers/child.py") and words[-1] == str(parent)


def examine(home: Path, expected: Any) -> list[str]:
    """What is wrong with a home whose run has finished."""
    try:
        with open_store(None, home) as store:
            runs = [run.status for run in store.runs.all()]
            problems = [f"{p.kind} {p.digest[:8]}" for p in verify(store).problems]
            problems += [] if runs == ["finished"] else [f"runs: {runs}"]
            if expected is not None and canonical(store, "latest", timed=False) != expected:
                problems.append("different")
            return problems
    except AutooptError as error:
        return [str(error)]


def main(folder: Path, variant: str, kills: int, seed: int) -> dict[str, Any]:
    os.chdir(folder)
    rng, home = random.Random(seed), folder / "home"
    began = time.monotonic()
    assert attempt(home, "store", "", None)[1] == 0, (folder / "said.txt").read_text()
    whole = time.monotonic() - began
    with open_store(None, home) as store:
        expected = canonical(store, "latest", timed=False)
    problems, named, done, rounds, tries = examine(home, expected), 0, 0, 0, 0
    while done < kills:
        shutil.rmtree(home)
        rounds, failures = rounds + 1, 0
        while True:
            tries += 1
            at_point = tries % 2 == 1 and done < kills
            point = faults.POINTS[(seed + tries // 2) % len(faults.POINTS)]
            fault = f"{point}:{rng.randint(1, 4)}" if at_point else ""
            moment = None if at_point or done >= kills else rng.uniform(0.05, 0.5) * whole
            pid, status = attempt(home, variant, fault, moment)
            if os.WIFSIGNALED(status):
                problems += [f"round {rounds}: orphan {left}" for left in orphans(pid)]
                done, named = done + 1, named + at_point
                continue
            failures += os.WEXITSTATUS(status) != 0
            if os.WEXITSTATUS(status) == 0 or failures > 2:
                break
        problems += [f"round {rounds}: exit {os.WEXITSTATUS(status)}"] if failures else []
        problems += [f"round {rounds}: {p}" for p in examine(home, expected)]
    return {"kills": done, "named": named, "rounds": rounds, "problems": problems}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))
