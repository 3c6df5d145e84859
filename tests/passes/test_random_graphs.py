"""Random graphs with adversarial constants keep their results through every pass that promises it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import pytest
from bench import saved, step
from random_graphs import Rng, random_graph

from autoopt.model import io
from autoopt.model.session import make_session
from autoopt.passes.verification.output_comparison import compare_outputs
from autoopt.passes.verification.rounding import NoiseSource, SpreadMeter

INPUTS: Final = (0, -0.0, 1, -1, 2, 0.5, -3, 6, 1e-10, -1e-10, 1e-3, 40)
SEEDS: Final = 4
PASSES: Final = (
    *("simplify", "onnxslim", "onnxsim", "onnxscript_optimize", "onnxoptimizer", "rewrite_rules", "constant_folding"),
    *("common_subexpression_elimination", "merge_reshapes", "local_rewrites", "ort_graph_optimization"),
    *("transformer_fusion", "opset_conversion", "quant_pre_process", "inline_functions", "expand_functions"),
)
PLAIN: Final = {"graph_optimization_level": "disable", "intra_op_num_threads": 1}
Run = Callable[[Any], list[Any]]


def runner(model: onnx.ModelProto, folder: Path) -> Run:
    """A function that runs the model on an input."""
    session = make_session(io.save(model, folder), PLAIN)
    return lambda x: list(session.run(None, {"x": x}))


def differs(before: list[Any], after: list[Any]) -> bool:
    """Tell if outputs differ by more than rounding, or in what is infinite or not a number."""
    for one, other in zip(before, after, strict=True):
        scale = np.abs(one[np.isfinite(one)]).max(initial=0)
        if not np.allclose(one, other, rtol=1e-4, atol=1e-6 * scale + 1e-37, equal_nan=True):
            return True
    return False


def is_ill_conditioned(run: Run, x: Any, rng: Rng) -> bool:
    """Tell if changes of the input by rounding change the outputs as much."""
    return any(differs(run(x), run(x * (1 + 3e-7 * rng.standard_normal(x.shape)).astype(np.float32))) for _ in range(4))


def is_rounding(model: onnx.ModelProto, x: Any, before: list[Any], after: list[Any]) -> bool:
    """Tell if rounding inside the model explains a difference, such as that of a quantizer between two steps."""
    spreads = SpreadMeter(NoiseSource(model), {"x": x}, before).spreads
    return compare_outputs(before, after, "equal", spreads).status == "same"


@pytest.mark.parametrize("name", PASSES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_results_of_random_graphs_stay_equal(name: str, tmp_path: Path) -> None:
    for seed in range(SEEDS):
        rng = np.random.default_rng([seed, PASSES.index(name)])
        model = random_graph(rng)
        result = step(tmp_path, model, name)
        if result["outcome"] != "ok":
            continue
        run, changed = runner(model, tmp_path / "before"), runner(saved(result), tmp_path / "after")
        for _ in range(4):
            x = rng.choice(np.array(INPUTS, np.float32), (2, 3))
            before, after = run(x), changed(x)
            if differs(before, after) and not is_rounding(model, x, before, after):
                assert is_ill_conditioned(run, x, rng), f"{seed}: {onnx.printer.to_text(model)}"
