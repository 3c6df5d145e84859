"""Bytes, CPU time and memory of passes on a large model, and the bytes that the store holds afterwards.

    python -m benchmarks.scale.large_model [--megabytes 500] [--passes NAME,NAME] [--decoder FOLDER]

Makes a chain of matrix products of that size, or takes the decoder that `benchmarks/language/make_random.py` wrote,
stores it, and runs each pass on the model of the one before, as workers do. Prints for each pass what it read and wrote
(of the page cache too), its CPU time and the peak memory, and for each model how many bytes it added to the store.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from autoopt.model.admit import admit_model
from autoopt.model.io import save
from autoopt.model.model_file import ModelFile
from autoopt.passes.request import PassRequest, PassStep
from autoopt.passes.runner import execute
from autoopt.store import open_store

Result = TypeVar("Result")
WIDTH = 2048
LAYER_MEGABYTES = WIDTH * WIDTH * 4 // 2**20


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


def measured(name: str, work: Callable[[], Result]) -> Result:
    """Do the work and print what it took."""
    began, cpu, before = time.monotonic(), time.process_time(), _bytes_moved()
    Path("/proc/self/clear_refs").write_text("5")  # begins the peak of memory anew
    result = work()
    read, written = (after - earlier for after, earlier in zip(_bytes_moved(), before, strict=True))
    seconds = f"{time.monotonic() - began:7.1f} s, {time.process_time() - cpu:6.1f} s of CPU"
    peak = _status("VmHWM") * 1024
    megabytes = f"read {read / 1e6:6.0f} MB, written {written / 1e6:6.0f} MB, peak memory {peak / 1e6:6.0f} MB"
    print(f"{name:<28}{seconds}, {megabytes}", flush=True)
    return result


def artifact_bytes(home: Path) -> int:
    """The bytes of the artifacts of a store."""
    return sum(file.stat().st_size for file in (home / "artifacts").rglob("*") if file.is_file())


def _status(field: str) -> int:
    """A number of the kernel's about this process."""
    fields = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields[field].split()[0])


def _bytes_moved() -> tuple[int, int]:
    """The bytes that this process has read and written so far."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["rchar"]), int(fields["wchar"])


def main() -> None:
    """Run the passes and print a line for each step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--decoder", type=Path)
    parser.add_argument("--passes", default="constant_folding,name_fix,simplify,dynamic_quantization")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, open_store(None, Path(name, "home")) as store:
        folder = Path(name)
        if options.decoder:
            admit_model(options.decoder / "random_weights.onnx", folder / "source")
        else:
            save(layered_model(options.megabytes), folder / "source")
        digest = measured("store the source", partial(store.artifacts.put, folder / "source", consume=True))
        for number, pass_name in enumerate(options.passes.split(",")):
            before = artifact_bytes(store.home)
            model = ModelFile(str(store.artifacts.path(digest)))
            split_folder = store.artifacts.split_folder
            request = PassRequest(model, (PassStep(pass_name),), folder / str(number), split_folder=split_folder)
            (step,) = measured(pass_name, partial(execute, request)).steps
            if step.path is None:
                print(f"  {step.outcome} {step.message}")
                continue
            digest = measured("  store", partial(store.artifacts.put, step.path, step.digest, consume=True))
            print(f"  {(artifact_bytes(store.home) - before) / 1e6:.3f} MB more in the store")
        stored = sum(artifact.bytes for artifact in store.artifacts.all())
        print(f"models of {stored / 1e6:.0f} MB in {artifact_bytes(store.home) / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
