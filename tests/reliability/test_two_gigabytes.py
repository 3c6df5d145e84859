"""A model of 2.4 GB, above protobuf's 2 GiB: passes take it or refuse it in words. Needs 12 GB of memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from builders import model, tensor, write
from onnx import TensorProto, helper

from autoopt.engine.tools.apply import PassFailed, PassSettings, apply_pass
from autoopt.outcome import Outcome
from autoopt.registry import REQUIRED, registry

WIDTH = 8192
LAYERS = 9
CPU = "CPUExecutionProvider"


def passes() -> list[str]:
    """The passes of the CPU that need no parameters."""
    names = []
    for name in registry().names():
        info = registry().info(name)
        runs_here = not info.missing and CPU in (info.accelerators or (CPU,))
        if runs_here and all(parameter.default is not REQUIRED for parameter in info.parameters):
            names.append(name)
    return names


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Layers of MatMul, Add and Relu, whose weights are written one by one, with data beside the model."""
    folder = tmp_path_factory.mktemp("large")
    rng = np.random.default_rng(0)
    nodes, weights = [], []
    with (folder / "weights.bin").open("wb") as file:
        for layer in range(LAYERS):
            weight = TensorProto(name=f"w{layer}", data_type=1, dims=[WIDTH, WIDTH], data_location=TensorProto.EXTERNAL)
            weight.external_data.add(key="location", value="weights.bin")
            weight.external_data.add(key="offset", value=str(file.tell()))
            file.write((rng.standard_normal((WIDTH, WIDTH), np.float32) / WIDTH**0.5).tobytes())
            weights.append(weight)
            nodes.append(helper.make_node("MatMul", [f"x{layer}", f"w{layer}"], [f"m{layer}"], f"matmul{layer}"))
            nodes.append(helper.make_node("Relu", [f"m{layer}"], [f"x{layer + 1}"], f"relu{layer}"))
    made = model(nodes, [tensor("x0", ["batch", WIDTH])], [tensor(f"x{LAYERS}", ["batch", WIDTH])], {})
    made.graph.initializer.extend(weights)
    np.savez(folder / "data.npz", x0=np.abs(rng.standard_normal((16, WIDTH), np.float32)))
    return write(made, folder)


@pytest.mark.soak
@pytest.mark.parametrize("name", passes())
def test_a_pass_takes_a_large_model_or_refuses_it_in_words(name: str, large: Path, tmp_path: Path) -> None:
    outcome, message = Outcome.OK, ""
    try:
        apply_pass(name, large, tmp_path / "out", options=PassSettings(str(large.with_name("data.npz"))))
    except PassFailed as error:
        outcome, message = error.outcome, str(error)
    assert outcome in (Outcome.OK, Outcome.REFUSED), message
    assert "serialize" not in message
