"""Nodes, values and chains that a model, its target and its data rule out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proposal_cases import CNN, LABELLED, TRANSFORMER, TREES, inputs_of, model

from autoopt.dag.proposal.inputs import conditions
from autoopt.dag.proposal.narrowing import Narrowing
from autoopt.dag.proposal.proposal_priors import ruled_out, value_cuts
from autoopt.dag.proposal.templates import TABLES, TEMPLATES, provider_profile
from autoopt.model.inspection import Inspection
from autoopt.spec.proposal_options import ProposalOptions
from autoopt.spec.targets import TargetSpec

CPU = ProposalOptions().target()
TINY = model("MatMul", "Softmax", parameters=3000)
LOSSY = [node for node, template in TEMPLATES.items() if template.lossy]


def rule(node: str, inspection: Inspection, target: TargetSpec = CPU, **data: Any) -> tuple[str, str] | None:
    reason = ruled_out(node, inputs_of(inspection, **data), target, 3)
    return None if reason is None else (reason.rule, reason.text)


@pytest.mark.parametrize(
    ("node", "inspection", "text"),
    [
        ("fuse", CNN, "no attention, GELU or LayerNorm in this model"),
        ("pads", TRANSFORMER, "no convolution in this model to absorb the padding"),
        ("dynamic", model("Conv"), "the model has only convolutions, which get slower without calibration"),
        (
            "weights",
            replace(CNN, layer_parameters={"Conv": 9900, "Gemm": 100}),
            "99% of the layers' weights are in Conv, which it leaves in float",
        ),
        (
            "static",
            replace(model("GRU", "MatMul"), layer_parameters={"GRU": 9800, "MatMul": 200}),
            "98% of the layers' weights are in GRU, which it leaves in float",
        ),
        ("static", TREES, "lower precision gains nothing on trees"),
        ("half", model("Add"), "lower precision gains nothing on a model without matrix products and convolutions"),
        (
            "dynamic",
            replace(model("STFT"), op_counts={"STFT": 1, "MatMul": 1}),
            "the model's only product is the filter bank of a spectrum, which needs floats",
        ),
        ("session", TREES, "no session option matters to this model"),
        ("simplify", TREES, "no pass changes how decision trees are computed"),
        ("ir", TREES, "no pass changes how decision trees are computed"),
        ("opset", TREES, "no pass changes how decision trees are computed"),
        ("dynamic", TINY, "integers cost more than they save with 3000 weights; --precision int8 tries them"),
    ],
)
def test_the_operators_of_a_model_rule_nodes_out(node: str, inspection: Inspection, text: str) -> None:
    assert rule(node, inspection) == ("inspection", text)


@pytest.mark.parametrize(
    "inspection",
    [
        TRANSFORMER,
        model("Erf"),
        replace(model(), op_counts={"ReduceMean": 2, "Sqrt": 1, "MatMul": 1}),
        replace(model("Softmax"), op_counts={"Softmax": 1, "MatMul": 3, "Transpose": 1}),
    ],
)
def test_fusable_operators_are_recognized_whole_and_in_parts(inspection: Inspection) -> None:
    assert rule("fuse", inspection) is None


def test_a_single_mean_is_no_layer_normalization() -> None:
    assert rule("fuse", replace(model(), op_counts={"ReduceMean": 1, "Sqrt": 3, "MatMul": 21})) is not None


def test_two_products_beside_a_softmax_are_no_attention() -> None:
    assert rule("fuse", replace(model(), op_counts={"Softmax": 1, "MatMul": 2})) is not None


def test_what_a_pass_could_change_beside_decision_trees_is_simplified() -> None:
    assert rule("simplify", model("ai.onnx.ml::TreeEnsembleClassifier", "MatMul")) is None


@pytest.mark.parametrize(
    ("inspection", "data"),
    [
        (TINY, {"smaller_counts": True}),
        (replace(TINY, parameters=10_000), {}),
        (model("Conv", "Gemm", parameters=3000), {}),
        (model("If", "MatMul", body_counts={"MatMul": 2}), {}),
        (model("MatMul", "QuantizeLinear", parameters=3000), {}),
    ],
)
def test_integers_are_tried_unless_the_model_is_tiny(inspection: Inspection, data: dict[str, Any]) -> None:
    assert rule("static", inspection, **data) is None


@pytest.mark.parametrize(
    ("branching", "narrowing", "is_tried"),
    [
        (("If",), Narrowing({"sr": 16000}), True),
        (("If",), Narrowing(), False),
        (("If", "Loop"), Narrowing({"sr": 16000}), False),
    ],
)
def test_layers_in_branches_count_where_the_data_decide_between_them(
    branching: tuple[str, ...], narrowing: Narrowing, is_tried: bool
) -> None:
    inspection = model(*branching, "Conv", body_counts={"Conv": 2})
    assert (rule("selective", inspection, narrowing=narrowing) is None) == is_tried


def test_an_mlp_with_a_softmax_has_no_attention() -> None:
    inspection = replace(model("Softmax"), op_counts={"Softmax": 1, "MatMul": 3})
    assert rule("fuse", inspection) == ("inspection", "no attention, GELU or LayerNorm in this model")


@pytest.mark.parametrize("node", LOSSY)
@pytest.mark.parametrize("data", [{}, {"calibration": True}])
def test_nothing_lossy_is_tried_without_data_to_judge_it(node: str, data: dict[str, Any]) -> None:
    nothing = dict.fromkeys(LABELLED, False)
    text = "needs data. Add --data FILE, or --set fidelity=true to compare outputs on generated inputs"
    assert rule(node, TRANSFORMER, **{**nothing, **data}) == ("no-data", text)
    assert rule(node, TRANSFORMER, **{**nothing, **data, "fidelity": True}) is None
    assert rule(node, TRANSFORMER, **{**nothing, **data, "evaluation": True}) is None


@given(st.integers(1, 10**12), st.integers(1, 10**12), st.sampled_from(LOSSY))
def test_a_target_s_memory_rules_out_what_cannot_fit(size: int, memory: int, node: str) -> None:
    target = ProposalOptions(memory=memory).target()
    inspection = replace(TRANSFORMER, bytes=size)
    found = rule(node, inspection, target)
    assert (found is not None) == (TEMPLATES[node].size * size > memory)
    assert found is None or found[0] == "memory"
    assert ("floats_fit" in conditions(inputs_of(inspection), target, 3)) == (size <= memory)


def test_only_some_providers_need_fixed_shapes() -> None:
    moving = inputs_of(replace(CNN, dynamic_dims=("batch",)))
    targets = {name: ProposalOptions(execution_provider=name).target() for name in TABLES.providers if name != "other"}
    needing = {name for name, target in targets.items() if "open_shapes" in conditions(moving, target, 3)}
    assert needing == {"QNNExecutionProvider"}
    assert "open_shapes" not in conditions(inputs_of(CNN), ProposalOptions(execution_provider="qnn").target(), 3)


def cuts(
    node: str, name: str, inspection: Inspection, level: int = 3, provider: str = "cpu", **templates: Any
) -> dict[str, str]:
    """Value -> reason of the cuts of one parameter."""
    target = ProposalOptions(execution_provider=provider).target()
    fixed = provider_profile(target.execution_provider).fixed
    nodes = {node: templates.get("template", TEMPLATES[node])}
    found = value_cuts(nodes, fixed, inputs_of(inspection), target, level)
    return {str(p.values[node][name]): p.reason for p in found if name in p.values[node]}


def test_a_level_leaves_values_to_higher_levels() -> None:
    assert cuts("simplify", "engine", CNN, level=1) == {"onnxsim": "needs --set level=3"}
    assert cuts("simplify", "engine", CNN, level=3) == {}


@pytest.mark.parametrize(
    ("node", "name", "inspection", "expected"),
    [
        ("dynamic", "op_types", CNN, {"[]": "the model has convolutions, which get slower without calibration"}),
        (
            "dynamic",
            "op_types",
            model("MatMul"),
            {"['MatMul', 'Attention', 'LSTM']": "same as all operators: the model has no others to quantize"},
        ),
        ("dynamic", "op_types", model("MatMul", "Gather"), {}),
        (
            "static",
            "op_types",
            model("Conv", "Relu"),
            {"['Conv', 'Gemm', 'MatMul']": "same as all operators: the model has hardly any others"},
        ),
        ("static", "op_types", model("Conv", "Softmax"), {}),
        ("static", "calibrate_method", CNN, {}),
    ],
)
def test_values_that_make_no_difference_or_harm_are_cut(
    node: str, name: str, inspection: Inspection, expected: dict[str, str]
) -> None:
    assert cuts(node, name, inspection) == expected


def test_cuda_graphs_need_fixed_shapes() -> None:
    moving = replace(CNN, dynamic_dims=("batch", "height", "width", "depth"))
    found = cuts("session", "enable_cuda_graph", moving, provider="cuda", template=TEMPLATES["cuda_session"])
    assert found == {"True": "needs fixed shapes; batch, height, width is dynamic"}


def test_cpu_layouts_are_tried_on_the_cpu_only() -> None:
    assert cuts("graph", "level", CNN) == {}
    assert cuts("graph", "level", CNN, provider="cuda") == {
        "all": "includes CPU layouts, which this provider cannot run"
    }


def test_session_levels_that_cannot_matter_are_not_tried() -> None:
    layout = "same as the default level: only convolutions and pooling have another layout"
    assert cuts("session", "graph_optimization_level", CNN) == {}
    assert cuts("session", "graph_optimization_level", TRANSFORMER) == {"extended": layout}
    assert set(cuts("session", "graph_optimization_level", TREES)) == {"extended", "basic"}
