"""The points that the search of a proposal starts with."""

from __future__ import annotations

from proposal_cases import CNN, TRANSFORMER, TREES, model, proposed

from autoopt.model.inspection import Inspection
from autoopt.spec.proposal_options import ProposalOptions


def first(inspection: Inspection, options: ProposalOptions | None = None) -> dict[str, list[dict[str, object]]]:
    """Chain -> the points that it starts with, their lossy nodes only."""
    _, plan = proposed(inspection, options)
    points: dict[str, list[dict[str, object]]] = {}
    for chain in plan.chains():
        for point in chain.prior:
            lossy = {**point.get("static", {}), **point.get("dynamic", {}), **point.get("selective", {})}
            points.setdefault(chain.name, []).append(lossy)
    return points


def test_all_preparation_comes_before_each_kind_of_quantization() -> None:
    points = first(CNN)
    assert points["names -> simplify -> fold"] == [{}]
    convolutions, everything = points["names -> simplify -> fold -> static"]
    assert convolutions["op_types"] == ["Conv", "Gemm", "MatMul"]
    assert everything["op_types"] == []
    assert convolutions["activation_type"] == everything["activation_type"] == "QUInt8"
    assert "names -> simplify -> fuse -> dynamic" in first(TRANSFORMER)


def test_recurrent_layers_are_tried_in_float_and_at_run_time() -> None:
    static = first(model("Conv", "LSTM", "MatMul"))["names -> simplify -> static"]
    assert [values["dynamic_ops"] for values in static] == [[], ["LSTM"], ["LSTM"]]


def test_one_thread_is_tried_first_if_threads_are_searched() -> None:
    _, plan = proposed(CNN, ProposalOptions(threads="1,all"))
    (chain,) = [chain for chain in plan.chains() if chain.name == "names -> simplify -> fold -> session"]
    assert [point["session"]["intra_op_num_threads"] for point in chain.prior] == [1]


def test_nothing_lossy_is_tried_first_where_nothing_lossy_is_tried() -> None:
    assert list(first(TREES)) == ["names -> simplify"]
    assert list(first(CNN, ProposalOptions(level=1))) == ["names -> simplify -> fold"]


def test_the_original_precision_is_left_out_if_another_one_is_required() -> None:
    chains = first(CNN, ProposalOptions(precision="int8"))
    assert chains
    assert "names -> simplify -> fold" not in chains
