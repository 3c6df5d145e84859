"""A whole run on a large model: time, memory and disk of planning, simplifying, quantizing, measuring and packaging.

    python -m benchmarks.scale.large_run [--megabytes 2200] [--workers 1] [--folder FOLDER] [--decoder FOLDER]

Makes a chain of matrix products of that size and runs `autoopt run` on it with the chains `simplify` and
`simplify -> dynamic_quantization`. With `--decoder`, takes the decoder that `benchmarks/language/make_random.py` wrote,
with the chains `simplify`, `simplify` with weights in 8 bits, and `simplify -> transformer_fusion` with weights in 4
bits, embeddings and LM head in 8. Prints JSON: `size` of the source; `largest_process` and `all_processes`, the peaks
of the proportional set sizes; `disk`, the peak of all that the run writes (store, temporary files, package), and
`store` and `package` at the end, and `models` in the store, all in bytes. With `--folder`, `file_system` is the peak by
which its file system filled up: blocks that files share count once, and what others write meanwhile counts too. Needs
disk for five times the size.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
import psutil
from onnx import TensorProto, helper, numpy_helper

from autoopt.model.io import save
from autoopt.store import open_store

WIDTH = 2048
LAYER_MEGABYTES = WIDTH * WIDTH * 4 // 2**20
SAMPLE_SECONDS = 0.5
ITEMS = 16
DAG = {
    "name": "large",
    "model": "model.onnx",
    "data": {"evaluation": "items.npz"},
    "passes": {
        "simplify": {"pass": "simplify"},
        "quantize": {"pass": "dynamic_quantization", "params": {"per_channel": True}},
    },
    "chains": [["simplify"], ["simplify", "quantize"]],
    "objectives": [{"metric": "latency_p50", "goal": "minimize"}],
    "measurement": {"replicas": 1, "max_pairs": 5, "seconds": 2.0, "rounds": 0, "quiet_seconds": 0},
    "search": {"strategy": "per-chain", "sampler": "exhaustive", "trials": 10},
}

WEIGHTS = "weight_only_quantization"
DECODER_DAG = {
    **DAG,
    "passes": {
        "simplify": {"pass": "simplify"},
        "fuse": {"pass": "transformer_fusion"},
        "eight": {"pass": WEIGHTS, "params": {"bits": 8}},
        "four": {"pass": WEIGHTS, "params": {"embedding_bits": 8, "head_bits": 8}},
    },
    "chains": [["simplify"], ["simplify", "eight"], ["simplify", "fuse", "four"]],
    "objectives": [{"metric": "tokens_per_second", "goal": "maximize"}],
    "constraints": [{"metric": "perplexity", "max_ratio": 2}],
}


class Peaks:
    """The largest values seen while a command runs."""

    def __init__(self, file_system: Path | None) -> None:
        self._watched = file_system
        self.process = 0
        self.all_processes = 0
        self.disk = 0
        self.file_system = 0

    def sample(self, pid: int, folders: Iterable[Path]) -> None:
        """Take the values of this moment."""
        sizes = [0]
        with suppress(psutil.Error):
            root = psutil.Process(pid)
            for process in [root, *root.children(recursive=True)]:
                with suppress(psutil.Error):
                    sizes.append(process.memory_full_info().pss)
        self.process = max(self.process, max(sizes))
        self.all_processes = max(self.all_processes, sum(sizes))
        self.disk = max(self.disk, sum(map(bytes_on_disk, folders)))
        if self._watched is not None:
            self.file_system = max(self.file_system, used_bytes(self._watched))


def layered_model(megabytes: int) -> onnx.ModelProto:
    """A chain of MatMul, a constant to fold, Identity and Relu."""
    generator = np.random.default_rng(0)
    nodes, weights, name = [], [], "x"
    for layer in range(max(1, megabytes // LAYER_MEGABYTES)):
        matrix = generator.standard_normal((WIDTH, WIDTH), dtype=np.float32) * np.float32(0.03)
        one = np.ones(1, np.float32)
        weights += [numpy_helper.from_array(matrix, f"w{layer}"), numpy_helper.from_array(one, f"one{layer}")]
        steps = [("Mul", [f"one{layer}"] * 2), ("MatMul", [name, f"w{layer}"])]
        steps += [("Mul", [f"MatMul{layer}.1", f"Mul{layer}.0"]), ("Identity", [f"Mul{layer}.2"])]
        steps += [("Relu", [f"Identity{layer}.3"])]
        for number, (op, inputs) in enumerate(steps):
            nodes.append(helper.make_node(op, inputs, [f"{op}{layer}.{number}"], name=f"{op}{layer}.{number}"))
        name = nodes[-1].output[0]
    signature = [helper.make_tensor_value_info(value, TensorProto.FLOAT, ["n", WIDTH]) for value in ("x", name)]
    graph = helper.make_graph(nodes, "layers", signature[:1], signature[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def bytes_on_disk(folder: Path) -> int:
    """The bytes of a folder; a file with several names counts once."""
    sizes: dict[int, int] = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                status = os.lstat(os.path.join(parent, name))
                sizes[status.st_ino] = status.st_blocks * 512
    return sum(sizes.values())


def used_bytes(folder: Path) -> int:
    """The bytes that are used on the file system of a folder, after all that is written has reached it."""
    subprocess.run(["sync", "--file-system", folder], check=True)
    status = os.statvfs(folder)
    return (status.f_blocks - status.f_bfree) * status.f_frsize


def variant_bytes(home: Path) -> list[int]:
    """The bytes of each model in the store, as if none shared weights."""
    with open_store(None, home) as store:
        return sorted(artifact.bytes for artifact in store.artifacts.all())


def failures(home: Path, run: str) -> list[str]:
    """The messages of the trials that failed."""
    with open_store(None, home) as store:
        return [trial.message for trial in store.trials.all(run) if trial.message]


def write_inputs(folder: Path, megabytes: int) -> int:
    """Write model, data and DAG; returns the bytes of the model."""
    files = folder / "inputs"
    files.mkdir()
    save(layered_model(megabytes), files, external=True)
    size = bytes_on_disk(files)
    items = np.random.default_rng(1).standard_normal((ITEMS, WIDTH), dtype=np.float32)
    np.savez(files / "items.npz", x=items)
    (files / "dag.json").write_text(json.dumps(DAG))
    return size


def decoder_inputs(source: Path, folder: Path) -> int:
    """Write the DAG for a decoder elsewhere; returns the bytes of the model."""
    files = folder / "inputs"
    files.mkdir()
    paths = {name: str(source.resolve() / name) for name in ("random_weights.onnx", "tokens.npz")}
    data = {"evaluation": {"path": paths["tokens.npz"], "label_col": "input_ids"}}
    dag = {**DECODER_DAG, "model": paths["random_weights.onnx"], "data": data}
    (files / "dag.json").write_text(json.dumps(dag))
    return sum(path.stat().st_size for path in source.glob("random_weights.onnx*"))


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=2200)
    parser.add_argument("--workers", default="1")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--decoder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        size = decoder_inputs(options.decoder, folder) if options.decoder else write_inputs(folder, options.megabytes)
        home, temporary, package = folder / "home", folder / "temporary", folder / "package"
        temporary.mkdir()
        environment = {**os.environ, "AUTOOPT_HOME": str(home), "TMPDIR": str(temporary), "CI": "true"}
        command = [sys.executable, "-m", "autoopt", "run", "dag.json", "--json", "-q"]
        command += ["--workers", options.workers, "--out", str(package)]
        used = used_bytes(options.folder) if options.folder else 0
        began = time.monotonic()
        peaks = Peaks(options.folder)
        with (folder / "result.json").open("w") as output:
            process = subprocess.Popen(command, cwd=folder / "inputs", env=environment, stdout=output)
            while process.poll() is None:
                peaks.sample(process.pid, (home, temporary, package))
                time.sleep(SAMPLE_SECONDS)
        if process.returncode:
            sys.exit(process.returncode)
        result = json.loads((folder / "result.json").read_text())
        figures = {
            "status": result["status"],
            "seconds": round(time.monotonic() - began),
            "phases": result["seconds"],
            "trials": result["trials"],
            "size": size,
            "largest_process": peaks.process,
            "all_processes": peaks.all_processes,
            "disk": peaks.disk,
            "file_system": peaks.file_system - used,
            "store": bytes_on_disk(home),
            "package": bytes_on_disk(package),
            "models": variant_bytes(home),
            "failures": failures(home, result["run"]),
        }
        print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
