"""Sessions: all options arrive in the runtime, on exactly the provider that was asked for."""

from pathlib import Path

import numpy as np
import pytest

from autoopt.errors import InputError
from autoopt.model.run_package import caller
from autoopt.model.session import make_options, make_session
from autoopt.model.session_options import OPTIMIZERS


def test_known_options_arrive() -> None:
    import onnxruntime as ort

    made = make_options(
        {
            "execution_mode": "parallel",
            "inter_op_num_threads": 2,
            "graph_optimization_level": "basic",
            "enable_mem_pattern": False,
            "enable_cpu_mem_arena": False,
            "config": {"session.intra_op.allow_spinning": "0"},
        },
        threads=3,
    )
    assert made.execution_mode == ort.ExecutionMode.ORT_PARALLEL
    assert made.graph_optimization_level == ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    assert (made.inter_op_num_threads, made.intra_op_num_threads) == (2, 3)
    assert (made.enable_mem_pattern, made.enable_cpu_mem_arena) == (False, False)
    assert made.get_session_config_entry("session.intra_op.allow_spinning") == "0"


def test_an_absent_provider_is_an_error_and_not_the_cpu(model_path: Path) -> None:
    with pytest.raises(InputError, match="CUDAExecutionProvider is not in the installed onnxruntime"):
        make_session(model_path, {}, "CUDAExecutionProvider")


@pytest.mark.parametrize("io_binding", [True, False])
def test_a_session_runs(model_path: Path, io_binding: bool) -> None:
    options = {"io_binding": io_binding, "disabled_optimizers": sorted(OPTIMIZERS)}
    session = make_session(model_path, options)
    x = np.ones((4, 3), np.float32)
    (y,) = caller(session, {"x": x}, is_bound=bool(options.get("io_binding")))()
    np.testing.assert_array_equal(y, x @ np.arange(6, dtype=np.float32).reshape(3, 2))
