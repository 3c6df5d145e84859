"""Session options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bench import step
from micro_models import MODELS

from autoopt.passes.base import PassContext, Refused, SessionOptions
from autoopt.passes.runtime import SessionTuning
from autoopt.registry import registry
from autoopt.space import Categorical
from autoopt.target import Accelerator


def tuned(before: dict[str, Any], accelerator: Accelerator | None = None, **params: Any) -> dict[str, Any]:
    tuning = SessionTuning(**params)
    tuning.context = PassContext(
        Path(), Path(), accelerator or Accelerator(), session_options=SessionOptions(dict(before))
    )
    tuning.run(tuning.context.session_options)
    return tuning.context.session_options


def test_the_candidate_has_other_options_and_the_same_model(tmp_path: Path) -> None:
    result = step(tmp_path, MODELS["mlp"](), "session_tuning", graph_optimization_level="basic", allow_spinning=False)
    assert (result["outcome"], result["path"]) == ("ok", None)
    assert result["session_options"] == {
        "graph_optimization_level": "basic",
        "config": {"session.intra_op.allow_spinning": "0"},
    }


def test_defaults_of_the_runtime_are_unchanged(tmp_path: Path) -> None:
    asked = {"graph_optimization_level": "all", "execution_mode": "sequential", "enable_mem_pattern": True}
    result = step(tmp_path, MODELS["mlp"](), "session_tuning", **asked, allow_spinning=True)
    assert (result["outcome"], result["session_options"]) == ("unchanged", {})


def test_a_default_resets_an_earlier_option() -> None:
    assert tuned({"graph_optimization_level": "basic", "io_binding": False}, graph_optimization_level="all") == {}


def test_options_add_up() -> None:
    before = {"config": {"session.dynamic_block_base": "4"}, "disabled_optimizers": ["ReshapeFusion"]}
    after = tuned(before, set_denormal_as_zero=True, disabled_optimizers=["ConvBNFusion"], intra_op_num_threads=2)
    assert after == {
        "config": {"session.dynamic_block_base": "4", "session.set_denormal_as_zero": "1"},
        "disabled_optimizers": ["ConvBNFusion", "ReshapeFusion"],
        "intra_op_num_threads": 2,
    }


def test_unknown_optimizers_are_refused(tmp_path: Path) -> None:
    result = step(tmp_path, MODELS["mlp"](), "session_tuning", disabled_optimizers=["ConvBNFussion"])
    assert (result["outcome"], "did you mean 'ConvBNFusion'" in result["message"]) == ("refused", True)


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
def test_threads_for_branches_are_searched_only_with_parallel_execution(mode: str) -> None:
    space = registry().info("session_tuning").parameter("inter_op_num_threads").search
    branch = space.choose({"execution_mode": mode})  # type: ignore[union-attr]
    assert (repr(branch) == "IGNORED") == (mode == "sequential")


def test_threads_are_searched_where_the_target_lists_several() -> None:
    """None is the target's default, all of them."""

    def search(accelerator: Accelerator) -> Any:
        return registry().info("session_tuning", accelerator).parameter("intra_op_num_threads").search

    assert search(Accelerator()) is None
    several = Accelerator(threads=(1, 2, 0))
    assert search(several) == Categorical(1, 2, None)
    assert tuned({}, several, intra_op_num_threads=2) == {"intra_op_num_threads": 2}
    assert tuned({}, several, intra_op_num_threads=None, graph_optimization_level="all") == {}


def test_cuda_has_its_own_options() -> None:
    def names(provider: str) -> set[str]:
        info = registry().info("session_tuning", Accelerator("gpu", provider))
        return {parameter.name for parameter in info.parameters}

    cuda = names("CUDAExecutionProvider")
    assert {"enable_cuda_graph", "cudnn_conv_algo_search", "io_binding"} <= cuda
    assert "x64quantprecision" not in cuda
    assert not {"enable_cuda_graph", "io_binding"} & names("CPUExecutionProvider")
    gpu = Accelerator("gpu", "CUDAExecutionProvider")
    after = tuned({}, gpu, enable_cuda_graph=True, cudnn_conv_algo_search="HEURISTIC", io_binding=True)
    assert after == {
        "io_binding": True,
        "provider_options": {"cudnn_conv_algo_search": "HEURISTIC", "enable_cuda_graph": "1"},
    }


def test_options_of_a_provider_are_searched_and_those_that_change_results_are_refused() -> None:
    tensorrt = Accelerator("gpu", "TensorrtExecutionProvider")
    described = registry().info("session_tuning")
    parameter = next(each for each in described.parameters if each.name == "provider_options")
    offered = SessionTuning.offer(parameter, tensorrt)
    assert isinstance(offered.search, Categorical)
    assert tuned({}, tensorrt, provider_options=offered.search.values()[1])["provider_options"]
    with pytest.raises(Refused, match="trt_fp16_enable changes results"):
        tuned({}, tensorrt, provider_options={"trt_fp16_enable": "1"})
