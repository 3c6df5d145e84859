"""The decisions of a proposal in words, and its budget."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from proposal_cases import CNN, LABELLED, TRANSFORMER, TREES, inputs_of, model

from autoopt.dag.compiler.pruning import Reason
from autoopt.dag.proposal.decisions import Effort, decisions, effort_for
from autoopt.dag.proposal.templates import MINUTES, TABLES, TEMPLATES, TRIALS, Method, provider_profile
from autoopt.model.inspection import Inspection
from autoopt.registry import registry
from autoopt.spec.proposal_options import PRECISIONS, ProposalOptions
from autoopt.target import EXECUTION_PROVIDERS

INT8 = Method(("dynamic", "static"), "{nodes} quantization of MatMul")


def decided(
    inspection: Inspection = CNN,
    options: ProposalOptions | None = None,
    methods: dict[str, Method] | None = None,
    reasons: dict[str, Reason] | None = None,
    **data: Any,
) -> dict[str, str]:
    options = options or ProposalOptions()
    found = decisions(options, inputs_of(inspection, **data), options.target(), methods or {}, reasons or {})
    return {decision.what: decision.why for decision in found}


def reasons_against(text: str, *nodes: str) -> dict[str, Reason]:
    return dict.fromkeys(nodes, Reason("level", text))


def test_target_and_level_come_first() -> None:
    assert list(decided().items())[:2] == [
        ("target cpu, CPUExecutionProvider", "default"),
        ("level 3", "all passes and values"),
    ]
    options = ProposalOptions(device="gpu", level=0)
    assert list(decided(options=options).items())[:2] == [
        ("target gpu, CUDAExecutionProvider", "as requested"),
        ("level 0", "lossless passes only"),
    ]


def test_passes_that_are_skipped_for_one_reason_share_a_line() -> None:
    reasons = {**reasons_against("too high", "fuse", "graph"), **reasons_against("no Pad", "pads")}
    found = decided(reasons=reasons)
    assert found["transformer fusion, ort graph optimization skipped"] == "too high"
    assert found["pad folding skipped"] == "no Pad"


def test_recurrent_layers_that_have_no_integer_form_are_named() -> None:
    recurrent = model("Conv", "GRU")
    name, reason = "GRU not in int8", "onnxruntime has 8-bit kernels only for LSTM"
    assert decided(recurrent, methods={"int8": INT8})[name] == reason
    assert name not in decided(recurrent, methods={"int8": INT8}, reasons=reasons_against("no", "dynamic", "static"))
    assert name not in decided(model("Conv", "LSTM"), methods={"int8": INT8})


def test_methods_that_are_tried_name_their_nodes() -> None:
    assert decided(methods={"int8": INT8})["int8"] == "trying dynamic and static quantization of MatMul"
    one = decided(methods={"int8": INT8}, reasons=reasons_against("no data", "static"))
    assert one["int8"] == "trying dynamic quantization of MatMul"
    assert one["int8 static not tried"] == "no data"


def test_a_run_names_what_is_tried_and_what_data_would_change() -> None:
    methods = {"int8": INT8, "int4": Method(("weights",), "blocks")}
    reasons = {"static": Reason("inspection", "slow"), "weights": Reason("no-data", "needs data")}

    def said(**options: Any) -> tuple[list[str], list[str]]:
        chosen = ProposalOptions(**options)
        found = list(decisions(chosen, inputs_of(CNN), chosen.target(), methods, reasons))
        shown = [decision.what for decision in found if not decision.is_detail and not decision.tried]
        return [decision.tried for decision in found if decision.tried], shown

    assert said() == (["int8 (dynamic)"], ["int4 not tried"])
    assert "int8 static not tried" in said(precision="int8")[1], "it was asked for"


def test_precisions_that_are_not_tried_for_one_reason_share_a_line() -> None:
    methods = {"int8": INT8, "int4": Method(("weights",), "block-wise quantization"), "mixed": Method((), "unknown")}
    found = decided(methods=methods, reasons=reasons_against("needs data", "dynamic", "static", "weights"))
    assert found["int8, int4 not tried"] == "needs data"
    assert found["mixed not tried"] == "unknown"
    assert not any(what.startswith("int8 dynamic") for what in found)


def test_different_reasons_against_one_precision_are_told_apart() -> None:
    reasons = {**reasons_against("slow", "dynamic"), **reasons_against("no data", "static")}
    found = decided(methods={"int8": INT8}, reasons=reasons)
    assert (found["int8 dynamic not tried"], found["int8 static not tried"]) == ("slow", "no data")


def test_single_precision_is_mentioned_only_if_it_does_not_fit() -> None:
    methods = {"fp32": Method((), "single precision, as in the model")}
    assert not any("fp32" in what for what in decided(methods=methods))
    found = decided(options=ProposalOptions(memory=1000), methods=methods)
    assert found["fp32 not tried"] == "its 40000 bytes exceed the target's memory of 1000"


def test_preparations_of_old_formats_and_open_shapes() -> None:
    old = replace(CNN, ir_version=3, opsets={"": 9}, dynamic_dims=("batch",))
    found = decided(old, ProposalOptions(execution_provider="qnn"))
    assert found["IR upgrade"] == "the file has IR version 3"
    assert found["opset upgrade"] == "the model has opset 9; tried with and without"
    assert found["fixed shapes"] == "QNNExecutionProvider accepts no dynamic ones"
    assert not {"IR upgrade", "opset upgrade", "fixed shapes"} & set(decided(CNN))
    assert "opset upgrade" not in decided(TREES), "a model of another domain has no opset to upgrade"
    ruled_out = reasons_against("no pass changes how decision trees are computed", "opset", "ir")
    assert not {"IR upgrade", "opset upgrade"} & set(decided(old, reasons=ruled_out))


@pytest.mark.parametrize(
    ("data", "quality"),
    [
        ({"evaluation": True, "labels": True}, "measured on the labels"),
        ({"evaluation": True}, "compared with the source model's outputs on the data"),
        ({}, None),
    ],
)
def test_the_measure_of_quality_follows_from_the_data(data: dict[str, Any], quality: str | None) -> None:
    assert decided(TRANSFORMER, **{**dict.fromkeys(LABELLED, False), **data}).get("quality") == quality


@pytest.mark.parametrize(
    ("options", "end"),
    [
        (ProposalOptions(), "shown as unverified. To judge by accuracy, add --data FILE"),
        (
            ProposalOptions(fidelity=True),
            "check the chosen model before you use it. To judge by accuracy, add --data FILE",
        ),
    ],
)
def test_without_data_it_says_how_lossy_models_are_judged(options: ProposalOptions, end: str) -> None:
    without = dict.fromkeys(LABELLED, False)
    methods = {"int8": INT8, "int4": Method(("weights",), "blocks")}
    said = decided(TRANSFORMER, options, methods, **without)["no data"]
    assert said.startswith("int8 and int4 are only compared with your model's outputs on generated inputs")
    assert said.endswith(end)
    reasons = reasons_against("gains nothing on trees", "dynamic", "static")
    assert "no data" not in decided(TREES, options, {"int8": INT8}, reasons, **without), "nothing lossy is tried"


def test_inputs_with_a_default_are_named() -> None:
    found = decided(replace(CNN, overridable=("scale", "shift", "a", "b")))
    assert (
        found["inputs with a default"] == "passes may fix them, so that callers cannot set scale, shift, a and 1 more"
    )


def sized(*ops: str, parameters: int) -> Inspection:
    return Inspection((), (), {"": 17}, 8, dict.fromkeys(ops, 1), parameters, 4 * parameters)


@pytest.mark.parametrize(
    ("inspection", "reason"),
    [
        (sized("ai.onnx.ml::TreeEnsembleClassifier", parameters=0), "no matrix product or convolution"),
        (
            sized("MatMul", "Relu", parameters=1103),
            "the model has 1103 weights; most of an inference is the call itself",
        ),
    ],
)
def test_models_with_little_to_gain_get_few_trials_and_a_reason(inspection: Inspection, reason: str) -> None:
    effort = effort_for(inspection, 3)
    assert reason in effort.reason
    assert (effort.trials, effort.minutes) == (6, 2)


@pytest.mark.parametrize("level", range(4))
@pytest.mark.parametrize("ops", [("Conv",), ("MatMul",)])
def test_other_models_get_the_budget_of_the_level(level: int, ops: tuple[str, ...]) -> None:
    parameters = 100 if "Conv" in ops else 100_000
    assert effort_for(sized(*ops, parameters=parameters), level) == Effort(TRIALS[level], MINUTES[level])


PROFILES = TABLES.providers


@pytest.mark.parametrize("name", PROFILES)
def test_every_provider_has_a_method_or_a_reason_for_each_precision(name: str) -> None:
    methods = PROFILES[name].methods
    assert tuple(methods) == PRECISIONS
    for method in methods.values():
        assert method.text
        assert "{nodes}" not in method.text or method.nodes
        assert all(TEMPLATES[node].lossy for node in method.nodes)


@pytest.mark.parametrize("name", PROFILES)
def test_fixed_parameters_belong_to_their_pass(name: str) -> None:
    for node, params in PROFILES[name].fixed.items():
        info = registry().info(TEMPLATES[node].pass_name)
        for parameter, value in params.items():
            assert info.parameter(parameter).check(value) is None


def test_the_table_names_providers_of_the_runtime() -> None:
    assert set(PROFILES) <= {*EXECUTION_PROVIDERS, "other"}
    assert provider_profile("NobodysExecutionProvider") is PROFILES["other"]


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_requested_precision_is_the_only_one(name: str, precision: str) -> None:
    assert list(PROFILES[name].chosen(precision)) == [precision]


@pytest.mark.parametrize("name", PROFILES)
def test_by_default_all_precisions_worth_trying_are_chosen(name: str) -> None:
    chosen = PROFILES[name].chosen(None)
    assert "fp32" in chosen
    assert all(method.auto for method in chosen.values())
    assert all(method.nodes for precision, method in chosen.items() if precision != "fp32")
    assert list(chosen) == [precision for precision in PRECISIONS if precision in chosen]


def test_a_cpu_does_not_try_half_precision_unless_it_is_requested() -> None:
    cpu = provider_profile("CPUExecutionProvider")
    assert set(cpu.chosen(None)) == {"fp32", "int8", "int4"}
    assert cpu.chosen("fp16")["fp16"].nodes == ("half",)
