"""autoopt from outside: commands in process groups of their own, their exit codes, files and documents.

Nothing here imports autoopt, so that the promises stay tested whatever its packages look like.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import builders
import numpy as np
import onnxruntime
import psutil
from children import start_process

HANG_SECONDS = 120.0
"""Limit of a wait. It ends a test that hangs; no test depends on its length."""

DAG = """\
name: small
passes:
  tidy: {pass: shape_inference}
  names: {pass: expand_functions}
  quant:
    pass: dynamic_quantization
    params: {weight_type: {search: [QInt8, QUInt8]}, per_channel: {search: [true, false]}}
chains: [[names, tidy, quant], [tidy]]
objectives: [{metric: size}]
constraints: [{metric: cosine, min: 0.9}]
search: {sampler: surrogate, trials: 4, seed: 5}
measurement: {seconds: 0.05, replicas: 1, target_width: 2.0, rounds: 0}
"""
"""Its results do not depend on time, and its passes load no library that takes long."""
RUN = ("run", "dag.yaml", "--model", "model.onnx", "--engine", "inline", "--json")
WAITING_SCRIPT = '''\
import time
from pathlib import Path

from autoopt import register

HERE = Path(__file__).parent


@register("waits")
def waits(model):
    """Returns the first model at once; then waits until it may go on."""
    try:
        (HERE / "first").touch(exist_ok=False)
    except FileExistsError:
        (HERE / "waits").touch()
        while not (HERE / "go").exists():
            time.sleep(0.02)
    return model
'''
"""A pass that stops a run at the second of its trials, until there is a file `go`."""
WAITING_DAG = """\
name: waiting
user_script: script.py
passes: {wait: {pass: waits}, quant: {pass: dynamic_quantization}}
chains: [[wait, quant], [quant, wait]]
objectives: [{metric: size}]
constraints: [{metric: cosine, min: 0.9}]
measurement: {seconds: 0.05, replicas: 1, target_width: 2.0, rounds: 0}
"""


class Said(NamedTuple):
    """Exit code, standard output and standard error of a command."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The JSON document on standard output."""
        return json.loads(self.out)


Command = Callable[..., Said]
"""`command(folder, "runs", "--json")`."""


class Place:
    """A folder of a user, with a home, temporary files and a Prefect profile of its own."""

    def __init__(self, folder: Path):
        self.folder, self.home, self.temporary = folder, folder / ".home", folder / ".tmp"
        self.temporary.mkdir(parents=True, exist_ok=True)
        unwanted = ("AUTOOPT_DB_URL", "AUTOOPT_DATA_ROOT", "AUTOOPT_SCRIPTS")
        kept = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT_") and k not in unwanted}
        own = {"AUTOOPT_HOME": self.home, "PREFECT_HOME": folder / ".prefect", "TMPDIR": self.temporary}
        self.environment = {**kept, **{name: str(path) for name, path in own.items()}}

    def __truediv__(self, name: str) -> Path:
        return self.folder / name

    def write(self, name: str, text: str | bytes) -> Path:
        """A file in the folder."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def start(self, *arguments: str | Path, wrap: tuple[str, ...] = (), **more: Any) -> subprocess.Popen[str]:
        """`autoopt` with these arguments, in a process group of its own; `more` are environment variables."""
        return start_process(
            [*wrap, sys.executable, "-m", "autoopt", *map(str, arguments)],
            cwd=self.folder,
            env={**self.environment, **more},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def finish(
        self, process: subprocess.Popen[str], *codes: int, before: str = "", limit: float = HANG_SECONDS
    ) -> Said:
        """What a command has said that ends with one of `codes` (0 if none are given), never with a traceback."""
        out, err = process.communicate(timeout=limit)
        said = Said(process.returncode, out, before + err)
        assert said.code in (codes or (0,)), said
        assert "Traceback" not in said.err, said.err
        assert "internal error" not in said.err, said.err
        return said

    def call(self, *arguments: str | Path, codes: tuple[int, ...] = (0,), **more: Any) -> Said:
        """What a command says that ends with one of `codes`."""
        return self.finish(self.start(*arguments, **more), *codes)

    def refused(self, *arguments: str | Path, codes: tuple[int, ...] = (2,), **more: Any) -> str:
        """The one line of a command that ends with exit code 2."""
        return one_line(self.call(*arguments, codes=codes, **more))

    def processes(self) -> list[psutil.Process]:
        """What runs for this home, and has not ended."""
        found, name = [], os.fsencode(f"AUTOOPT_HOME={self.home}\0")
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                own = Path(f"/proc/{process.pid}/environ").read_bytes()
                if name in own + b"\0" and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def nothing_left(self) -> None:
        """Wait until no process of this home runs; then no temporary file is there."""
        wait_for(lambda: not self.processes(), f"processes are left: {self.processes()}")
        files = [path for folder in (self.temporary, self.home / "work") for path in folder.glob("*")]
        assert not files


def filled(folder: Path, dag: str = DAG, width: int = 32) -> Place:
    """A user's folder with `model.onnx` and `dag.yaml`."""
    place = Place(folder)
    write_model(place / "model.onnx", width=width)
    place.write("dag.yaml", dag)
    return place


def one_line(said: Said) -> str:
    """The one printable line that a command has said on standard error."""
    assert said.out == "", said
    assert said.err.count("\n") == 1, said.err
    assert said.err[:-1].isprintable(), said.err
    return said.err[:-1]


def wait_for(happened: Callable[[], Any], otherwise: str) -> None:
    """Wait until something has happened. The deadline only ends a test that hangs."""
    deadline = time.monotonic() + HANG_SECONDS
    while not happened():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.02)


def wait_for_file(path: Path, process: subprocess.Popen[str]) -> None:
    """Wait until a file is there, which a running command writes."""
    wait_for(lambda: path.exists() or process.poll() is not None, f"no {path}")
    assert path.exists(), process.communicate()


def read_until(process: subprocess.Popen[str], text: str) -> str:
    """Standard error of a command up to the line with `text`."""
    assert process.stderr is not None
    read, hangs = "", threading.Timer(HANG_SECONDS, kill_group, [process])
    hangs.start()
    try:
        for line in process.stderr:
            read += line
            if text in line:
                return read
    finally:
        hangs.cancel()
    raise AssertionError(f"never said {text!r}:\n{read}")


def kill_group(process: subprocess.Popen[str], number: int = signal.SIGKILL) -> None:
    """Send a signal to a command and to all that it has started in its group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def write_model(path: Path, seed: int = 0, width: int = 32) -> Path:
    """A small classifier: `x` [batch, 8] to `y` [batch, 4]."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(builders.mlp(width=width, seed=seed).SerializeToString())
    return path


def write_data(path: Path, model: Path, shift: int = 0, seed: int = 0) -> Path:
    """400 items that the model classifies without a mistake; with `shift`, only half of them."""
    x = np.random.default_rng(seed).standard_normal((400, 8)).astype(np.float32)
    y = onnxruntime.InferenceSession(model.read_bytes()).run(["y"], {"x": x})[0].argmax(axis=1)
    y[::2] += shift
    np.savez(path, x=x, label=y % 4)
    return path


def answer(document: Any) -> Any:
    """What of a run's document does not depend on time."""
    best, metrics = document["best"], ("size", "accuracy", "cosine", "cost")
    return {
        "trials": document["trials"],
        "baseline": [document["baseline"]["metrics"].get(name) for name in metrics],
        "best": best and [best["artifact"], best["chain"], best["point"], *(best["metrics"].get(m) for m in metrics)],
    }
