"""The real command in processes of its own, on a small model and a small DAG whose results do not depend on time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from builders import mlp, write
from children import HANG_SECONDS, start_process

# Passes and a sampler that load no further libraries: a command with its two workers takes a third less time.
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
constraints: [{metric: size, max_ratio: 1.0}, {metric: cosine, min: 0.99}]
search: {sampler: surrogate, trials: 4, seed: 5}
measurement: {seconds: 0.05, replicas: 1, target_width: 2.0, rounds: 0}
"""
RUN = ("run", "dag.yaml", "--model", "model.onnx", "--engine", "inline", "--json")


class Said(NamedTuple):
    """Exit code, standard output and standard error of a command."""

    code: int
    out: str
    err: str


Command = Callable[..., Said]


class Prefect(NamedTuple):
    """A running server: the address of its API, and the folder of all that it keeps."""

    url: str
    folder: Path


def fill(folder: Path, dag: str = DAG, width: int = 32) -> Path:
    """`dag.yaml` and `model.onnx` in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    write(mlp(width=width), folder)
    (folder / "dag.yaml").write_text(dag)
    return folder


def environment(folder: Path, **more: str) -> dict[str, str]:
    """This process's, with the home in `folder` and nothing of Prefect's or of another database."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT_") and k != "AUTOOPT_DB_URL"}
    return {**kept, "AUTOOPT_HOME": str(folder / "home"), "PREFECT_HOME": str(folder / "prefect"), **more}


def start(folder: Path, *arguments: str, **more: str) -> subprocess.Popen[str]:
    """`autoopt` with these arguments in `folder`, in a process group of its own; `more` are environment variables."""
    return start_process(
        [sys.executable, "-m", "autoopt", *arguments],
        cwd=folder,
        env=environment(folder, **more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str], code: int = 0, said: str = "") -> Any:
    """The JSON document of a command that ends with `code`. `said`: what was read of its standard error before."""
    stdout, stderr = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == code, said + stderr
    assert "Traceback" not in stderr
    return json.loads(stdout or "null")


def until(process: subprocess.Popen[str], text: str) -> str:
    """Read standard error up to the line with `text`; what was read."""
    assert process.stderr is not None
    read = ""
    hangs = threading.Timer(HANG_SECONDS, process.kill)
    hangs.start()
    try:
        for line in process.stderr:
            read += line
            if text in line:
                return read
    finally:
        hangs.cancel()
    raise AssertionError(f"it never said {text!r}:\n{read}")
