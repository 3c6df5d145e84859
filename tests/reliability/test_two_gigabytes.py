"""Models that are large for protobuf, or for the memory of a worker: passes take them or refuse them in words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from builders import model, tensor, write
from onnx import TensorProto, helper

from autoopt.dag.compiler.pruning import Facts
from autoopt.dag.compiler.requirements import Requirements, pass_infos
from autoopt.engine.tools.apply import PassFailed, PassSettings, apply_pass
from autoopt.json_codec import from_json, to_json
from autoopt.model.files import bytes_in
from autoopt.model.model_file import ModelFile
from autoopt.outcome import Outcome
from autoopt.passes.request import RUN_PASSES, PassReply, PassRequest, PassStep
from autoopt.registry import BUILT_IN, REQUIRED, registry
from autoopt.target import Accelerator
from autoopt.workers import WorkerPool

LAYERS = 9
CPU = "CPUExecutionProvider"
LIBRARIES = 400 << 20
"""Memory for the code and the data of all libraries that passes import."""


def passes() -> list[str]:
    """The built-in passes of the CPU that need no parameters."""
    names = []
    for name in BUILT_IN:
        info = registry().info(name)
        runs_here = not info.missing and CPU in (info.accelerators or (CPU,))
        if runs_here and all(parameter.default is not REQUIRED for parameter in info.parameters):
            names.append(name)
    return names


def write_model(folder: Path, width: int) -> Path:
    """Layers of MatMul and Relu, whose weights are written one by one, with data beside the model."""
    rng = np.random.default_rng(0)
    nodes, weights = [], []
    with (folder / "weights.bin").open("wb") as file:
        for layer in range(LAYERS):
            weight = TensorProto(name=f"w{layer}", data_type=1, dims=[width, width], data_location=TensorProto.EXTERNAL)
            weight.external_data.add(key="location", value="weights.bin")
            weight.external_data.add(key="offset", value=str(file.tell()))
            file.write((rng.standard_normal((width, width), np.float32) / width**0.5).tobytes())
            weights.append(weight)
            nodes.append(helper.make_node("MatMul", [f"x{layer}", f"w{layer}"], [f"m{layer}"], f"matmul{layer}"))
            nodes.append(helper.make_node("Relu", [f"m{layer}"], [f"x{layer + 1}"], f"relu{layer}"))
    made = model(nodes, [tensor("x0", ["batch", width])], [tensor(f"x{LAYERS}", ["batch", width])], {})
    made.graph.initializer.extend(weights)
    np.savez(folder / "data.npz", x0=np.abs(rng.standard_normal((16, width), np.float32)))
    return write(made, folder)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of 2.4 GB, above protobuf's 2 GiB."""
    return write_model(tmp_path_factory.mktemp("large"), 8192)


@pytest.mark.soak
@pytest.mark.parametrize("name", passes())
def test_a_pass_takes_a_large_model_or_refuses_it_in_words(name: str, large: Path, tmp_path: Path) -> None:
    """Needs 12 GB of memory."""
    outcome, message = Outcome.OK, ""
    try:
        apply_pass(name, large, tmp_path / "out", options=PassSettings(str(large.with_name("data.npz"))))
    except PassFailed as error:
        outcome, message = error.outcome, str(error)
    assert outcome in (Outcome.OK, Outcome.REFUSED), message
    assert "serialize" not in message


@pytest.fixture(scope="module")
def medium(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of 151 MB."""
    return write_model(tmp_path_factory.mktemp("medium"), 2048)


@pytest.mark.parametrize("copies", [1, *(pytest.param(copies, marks=pytest.mark.soak) for copies in range(2, 9))])
def test_no_pass_runs_out_of_memory(copies: int, medium: Path, tmp_path: Path) -> None:
    """Limit the worker to this many copies of the model, in addition to its libraries."""
    infos = pass_infos(Accelerator())
    requirements = Requirements(infos, Facts(Accelerator()))
    failures = []
    with WorkerPool(size=1, memory=LIBRARIES + copies * bytes_in(medium.parent)) as pool:
        for name in passes():
            required, _ = requirements.missing(infos(name), frozenset())
            steps = tuple(PassStep(info.name) for info in (*required, infos(name)))
            data = str(medium.with_name("data.npz"))
            request = PassRequest(ModelFile(str(medium)), steps, tmp_path / name, data=data)
            result = pool.call(RUN_PASSES, to_json(request), timeout=600)
            if result.value is None:
                failures.append(f"{name}: {result.message}")
                continue
            last = from_json(PassReply, result.value).steps[-1]
            if not last.outcome.good and last.outcome is not Outcome.REFUSED:
                failures.append(f"{name}: {last.pass_name} ended {last.outcome}: {last.message}")
    assert not failures, "\n".join(failures)
