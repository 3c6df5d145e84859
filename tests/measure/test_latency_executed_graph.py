"""Models for which the runtime executes the same graph need not be timed against each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import builders
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from autoopt.measure.latency import executed_graph, meter
from autoopt.measure.latency.executed_graph import executed_graphs
from autoopt.measure.request import SAME_GRAPH, WORK, MeasureRequest
from autoopt.measure.settings import MeasurementSettings
from autoopt.metrics import Estimate
from autoopt.model import io, splitting
from autoopt.model.model_file import ModelFile


def renamed() -> Any:
    """The MLP with an Identity, which onnxruntime removes, and other names within."""
    made = builders.mlp()
    made.graph.node[0].output[0] = "hidden"
    made.graph.node[1].input[0] = "copy"
    made.graph.node.insert(1, helper.make_node("Identity", ["hidden"], ["copy"], "identity"))
    return made


def branch(factor: float) -> Any:
    """An If whose branches scale a value of the enclosing graph."""
    branches = {}
    for name, scale in (("then_branch", factor), ("else_branch", 2.0)):
        constant = helper.make_node("Constant", [], [f"{name} scale"], value_float=scale)
        scaled = helper.make_node("Mul", ["x", f"{name} scale"], [f"{name} y"])
        branches[name] = helper.make_graph([constant, scaled], name, [], [builders.tensor(f"{name} y", [4])])
    nodes = [helper.make_node("If", ["flag"], ["y"], **branches)]
    inputs = [builders.tensor("flag", [], TensorProto.BOOL), builders.tensor("x", [4])]
    return builders.model(nodes, inputs, [builders.tensor("y", [4])], {})


def is_same(request: MeasureRequest) -> bool:
    """True if the graphs are known and the same."""
    graph, source_graph = executed_graphs(request)
    return graph != "" and graph == source_graph


def request_for(folder: Path, candidate: Any, source: Any, **options: Any) -> MeasureRequest:
    """A request to compare two models; the candidate has these session options."""
    return MeasureRequest(
        candidate=ModelFile(str(io.save(candidate, folder / "candidate")), options),
        source=ModelFile(str(io.save(source, folder / "source"))),
        metrics=("latency_p50",),
        settings=MeasurementSettings(seconds=0.2, quiet_seconds=0, replicas=2),
    )


def test_a_rewrite_that_the_runtime_makes_itself_changes_nothing(tmp_path: Path) -> None:
    request = request_for(tmp_path, renamed(), builders.mlp())
    assert is_same(request)
    reply = meter.measure(request)
    assert reply.ratios == {"latency_p50": Estimate.exact(1.0)}
    assert reply.details[SAME_GRAPH] is True
    assert reply.metrics["latency_p50"].value > 0


def test_a_known_digest_of_the_source_is_taken_over(tmp_path: Path) -> None:
    request = request_for(tmp_path, renamed(), builders.mlp())
    graph, _ = executed_graphs(request)
    assert executed_graphs(replace(request, executed_graphs=("", "known"))) == (graph, "known")


def test_other_weights_are_another_graph(tmp_path: Path) -> None:
    request = request_for(tmp_path, builders.mlp(seed=1), builders.mlp())
    assert not is_same(request)
    assert meter.measure(request).details[SAME_GRAPH] is False


def work_of(folder: Path, model: Any) -> str:
    """The digest of a model's work; empty if values that it computes may change it."""
    request = request_for(folder, model, builders.mlp(5))
    return str(executed_graph.measure(request).details[WORK])


def quantized(seed: int, zero_point: int = 3) -> Any:
    """A quantized Gemm with weights of its own."""
    rng = np.random.default_rng(seed)
    weights = {
        "w": rng.integers(-128, 127, (8, 4)).astype(np.int8),
        "scale": np.float32(rng.uniform(0.01, 0.1)),
        "zero": np.uint8(zero_point),
        "weight zero": np.int8(0),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("MatMulInteger", ["q", "w", "zero", "weight zero"], ["y"]),
    ]
    outputs = [builders.tensor("y", [1, 4], TensorProto.INT32)]
    return builders.model(nodes, [builders.tensor("x", [1, 8])], outputs, weights)


def reshaped(sizes: list[int], offset: float) -> Any:
    """A Reshape, whose sizes count, and an Add of so few values that they might be sizes."""
    nodes = [helper.make_node("Reshape", ["x", "sizes"], ["r"]), helper.make_node("Add", ["r", "offset"], ["y"])]
    weights = {"sizes": np.array(sizes, np.int64), "offset": np.float32(offset)}
    return builders.model(nodes, [builders.tensor("x", [12])], [builders.tensor("y", sizes)], weights)


def sparse(*numbers: float) -> Any:
    """A product with a sparse matrix that has these numbers on its diagonal."""
    made = builders.model(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        [builders.tensor("x", [1, 4])],
        [builders.tensor("y", [1, 4])],
        {},
    )
    values = numpy_helper.from_array(np.array(numbers, np.float32), "w")
    places = numpy_helper.from_array(np.arange(len(numbers)) * 5, "w_places")
    made.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [4, 4]))
    return made


def test_other_sparse_weights_are_another_graph(tmp_path: Path) -> None:
    graph, source_graph = executed_graphs(request_for(tmp_path, sparse(1, 2, 3), sparse(1, 2, 4)))
    assert "" != graph != source_graph


def test_models_that_differ_in_the_values_of_weights_do_the_same_work(tmp_path: Path) -> None:
    works = [work_of(tmp_path / str(seed), builders.mlp(seed=seed)) for seed in (0, 1)]
    assert works[0] == works[1] != ""
    wider = work_of(tmp_path / "wider", builders.mlp(32))
    assert wider not in ("", works[0])
    quantized_works = [work_of(tmp_path / f"q{seed}", quantized(seed)) for seed in (0, 1)]
    assert quantized_works[0] == quantized_works[1] != ""


def test_values_that_may_change_the_work_count(tmp_path: Path) -> None:
    assert work_of(tmp_path / "zero", quantized(0, zero_point=0)) != work_of(tmp_path / "other", quantized(0))
    known = work_of(tmp_path / "known", reshaped([3, 4], 1.0))
    assert work_of(tmp_path / "again", reshaped([3, 4], 1.0)) == known != ""
    assert work_of(tmp_path / "sizes", reshaped([4, 3], 1.0)) != known
    assert work_of(tmp_path / "few", reshaped([3, 4], 2.0)) != known


def test_work_that_depends_on_computed_values_is_not_known(tmp_path: Path) -> None:
    assert work_of(tmp_path / "branch", branch(3.0)) == ""
    nodes = [helper.make_node("NonZero", ["x"], ["y"])]
    outputs = [builders.tensor("y", [1, "found"], TensorProto.INT64)]
    assert work_of(tmp_path / "found", builders.model(nodes, [builders.tensor("x", [4])], outputs, {})) == ""


def cut(length: str) -> Any:
    """A table of which as many rows are used as a value, or the size of one, says."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("ReduceMax", ["h"], ["largest"], keepdims=0),
        helper.make_node("Cast", ["largest"], ["computed"], to=TensorProto.INT64),
        helper.make_node("Size", ["h"], ["size"]),
        helper.make_node("Reshape", [length, "one"], ["end"]),
        helper.make_node("Slice", ["table", "zero", "end"], ["rows"]),
        helper.make_node("MatMul", ["rows", "w"], ["y"]),
    ]
    weights = {"w": np.eye(8, dtype=np.float32), "table": np.ones((512, 8), np.float32)}
    sizes = {"zero": np.array([0], np.int64), "one": np.array([1], np.int64)}
    inputs = [builders.tensor("x", ["batch", 8])]
    return builders.model(nodes, inputs, [builders.tensor("y", ["rows", 8])], weights | sizes)


def test_work_is_not_known_if_sizes_are_computed_from_weights(tmp_path: Path) -> None:
    assert work_of(tmp_path / "computed", cut("computed")) == ""
    assert work_of(tmp_path / "size", cut("size")) != ""


def test_what_is_computed_twice_counts_twice(tmp_path: Path) -> None:
    """Weights stored twice keep the runtime from joining two products, which takes twice as long."""
    weight = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    inputs, outputs = [builders.tensor("x", [1, 8])], [builders.tensor("y", [1, 8])]
    first, second = (helper.make_node("MatMul", ["x", w], [f"{w} x"]) for w in ("w", "v"))
    product = helper.make_node("Mul", ["w x", "v x"], ["y"])
    twice = builders.model([first, second, product], inputs, outputs, {"w": weight, "v": weight.copy()})
    square = helper.make_node("Mul", ["w x", "w x"], ["y"])
    once = builders.model([first, square], inputs, outputs, {"w": weight})
    assert not is_same(request_for(tmp_path, once, twice))
    assert work_of(tmp_path / "once", once) != work_of(tmp_path / "twice", twice) != ""


def regions(op_type: str, width: int, **attributes: Any) -> Any:
    """A pooling of regions that the model computes."""
    nodes = [
        helper.make_node("MatMul", ["f", "w"], ["regions"]),
        helper.make_node(op_type, ["x", "regions", "images"][: 3 if width == 4 else 2], ["y"], **attributes),
    ]
    inputs = [builders.tensor("x", [1, 2, 9, 9]), builders.tensor("f", [3, 8])]
    weights = {"w": np.ones((8, width), np.float32), "images": np.zeros(3, np.int64)}
    return builders.model(nodes, inputs, [builders.tensor("y", [3, 2, 2, 2])], weights)


def test_work_is_not_known_if_the_sizes_of_regions_are_computed(tmp_path: Path) -> None:
    assert work_of(tmp_path / "align", regions("RoiAlign", 4, output_height=2, output_width=2)) == ""
    assert work_of(tmp_path / "pool", regions("MaxRoiPool", 5, pooled_shape=[2, 2])) == ""


def lstm(length: int) -> Any:
    """A quantized LSTM over the first `length` of 20 steps."""
    names = ["x", "w", "r", "b", "lengths", "", "", "", "scale", "zero", "scale", "zero"]
    nodes = [helper.make_node("DynamicQuantizeLSTM", names, ["y"], domain="com.microsoft", hidden_size=8)]
    weights = {
        "w": np.ones((1, 4, 32), np.int8),
        "r": np.ones((1, 8, 32), np.int8),
        "b": np.zeros((1, 64), np.float32),
        "lengths": np.array([length], np.int32),
        "scale": np.ones(1, np.float32),
        "zero": np.zeros(1, np.int8),
    }
    inputs, outputs = [builders.tensor("x", [20, 1, 4])], [builders.tensor("y", [20, 1, 1, 8])]
    return with_ort_operators(builders.model(nodes, inputs, outputs, weights))


def attention(rows: int) -> Any:
    """A quantized attention to the first `rows` of 16."""
    names = ["x", "w", "b", "scale", "scale", "rows", "zero", "weight zero"]
    nodes = [helper.make_node("QAttention", names, ["y"], domain="com.microsoft", num_heads=2)]
    weights = {
        "w": np.ones((8, 24), np.int8),
        "b": np.zeros(24, np.float32),
        "scale": np.float32(0.1),
        "rows": np.array([rows], np.int32),
        "zero": np.uint8(3),
        "weight zero": np.int8(0),
    }
    inputs, outputs = [builders.tensor("x", [1, 16, 8], TensorProto.UINT8)], [builders.tensor("y", [1, 16, 8])]
    return with_ort_operators(builders.model(nodes, inputs, outputs, weights))


def with_ort_operators(model: Any) -> Any:
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return model


@pytest.mark.parametrize("make", [lstm, attention])
def test_lengths_and_masks_in_quantized_operators_count(tmp_path: Path, make: Callable[[int], Any]) -> None:
    known = work_of(tmp_path / "known", make(16))
    assert work_of(tmp_path / "again", make(16)) == known != ""
    assert work_of(tmp_path / "shorter", make(2)) not in ("", known)


@pytest.mark.parametrize(
    ("dtype", "tiny", "width"),
    [(np.float32, 1e-21, 32), (np.float32, 1e-41, 8), (np.float64, 1e-310, 32), (np.float64, 1e-160, 32)],
)
def test_weights_whose_products_are_denormal_count(tmp_path: Path, dtype: Any, tiny: float, width: int) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("MatMul", ["h", "w"], ["y"])]
    inputs, outputs = [builders.tensor("x", [1, width], kind)], [builders.tensor("y", [1, width], kind)]
    works = []
    for value in (1.0, 2.0, tiny):
        model = builders.model(nodes, inputs, outputs, {"w": np.full((width, width), value, dtype)})
        works.append(work_of(tmp_path / str(value), model))
    assert works[0] == works[1] != ""
    assert works[2] not in ("", works[0])


@pytest.mark.parametrize("width", [16, 64], ids=["within the graph", "in a file of their own"])
def test_weights_are_compared_wherever_the_runtime_writes_them(tmp_path: Path, width: int) -> None:
    source = builders.mlp(width)
    assert is_same(request_for(tmp_path / "same", _with_producer(builders.mlp(width)), source))
    assert not is_same(request_for(tmp_path / "other", builders.mlp(width, seed=1), source))


def test_graphs_within_graphs_are_compared_too(tmp_path: Path) -> None:
    assert is_same(request_for(tmp_path / "same", branch(3.0), _with_producer(branch(3.0))))
    assert not is_same(request_for(tmp_path / "other", branch(4.0), branch(3.0)))


def _with_producer(made: Any) -> Any:
    made.producer_name = "another file"
    return made


def test_a_model_that_was_optimized_before_may_skip_the_optimizations(tmp_path: Path) -> None:
    source = builders.mlp()
    assert not is_same(request_for(tmp_path / "a", renamed(), source, graph_optimization_level="disable"))
    assert is_same(request_for(tmp_path / "b", renamed(), source, graph_optimization_level="extended"))


@pytest.mark.parametrize("options", [{"intra_op_num_threads": 1}, {"enable_cpu_mem_arena": False}])
def test_other_session_options_have_to_be_measured(tmp_path: Path, options: dict[str, Any]) -> None:
    assert not is_same(request_for(tmp_path, renamed(), builders.mlp(), **options))


def test_start_up_and_rivals_have_to_be_measured(tmp_path: Path) -> None:
    request = request_for(tmp_path, renamed(), builders.mlp())
    assert not is_same(replace(request, metrics=("latency_p50", "cold_start")))
    assert not is_same(replace(request, rivals=(request.candidate,)))
    assert not is_same(replace(request, source=None))
    assert request.source is not None
    assert not is_same(replace(request, candidate=request.source))


def test_a_model_that_the_runtime_refuses_is_left_to_the_measurement(tmp_path: Path) -> None:
    broken = builders.mlp()
    broken.graph.node[1].op_type = "NoSuchOperator"
    assert not is_same(request_for(tmp_path, broken, builders.mlp()))


def test_weights_are_compared_however_they_are_stored(tmp_path: Path) -> None:
    plain, listed = builders.mlp(), builders.mlp()
    for tensor in listed.graph.initializer:
        values = np.frombuffer(tensor.raw_data, np.float32).tolist()
        tensor.ClearField("raw_data")
        tensor.float_data.extend(values)
    assert is_same(request_for(tmp_path, listed, plain))


@pytest.mark.parametrize("width", [64, 256])  # a weight of the smallest size that is split, and a larger one
def test_a_split_model_executes_the_graph_of_the_whole_one(
    width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splitting, "SPLIT_ABOVE", 1)
    weight = np.random.default_rng(0).standard_normal((width, 16)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    model = builders.model(nodes, [builders.tensor("x", [1, width])], [builders.tensor("y", [1, 16])], {"w": weight})
    request = request_for(tmp_path, model, model)
    (tmp_path / "split").mkdir()
    candidate = ModelFile(str(splitting.save_split(model, tmp_path / "split")))
    written = bytes_written()
    executed_graphs(replace(request, candidate=candidate, executed_graphs=("", "known")))
    if width == 256:
        assert bytes_written() - written < weight.nbytes, "it wrote weights that the store has"
    assert is_same(replace(request, candidate=candidate))
    assert executed_graph.measure(replace(request, candidate=candidate)).details[WORK] != ""


def bytes_written() -> int:
    """The bytes that this process has written so far."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["wchar"])
