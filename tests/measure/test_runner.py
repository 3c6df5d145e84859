"""Models of awkward kinds run over data: item by item, in batches, with state."""

from __future__ import annotations

import builders
import numpy as np
import pytest
from onnx import TensorProto, helper

from autoopt.data.dataset import DataSet
from autoopt.errors import InputError
from autoopt.measure.inference import ModelRunner, plain
from autoopt.measure.quality.predictions import stack_or_list
from autoopt.measure.request import MeasureRequest
from autoopt.model import io
from autoopt.model.model_file import ModelFile

FLOAT, INTEGER, TEXT = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING


def start(folder, proto, data=None, **settings) -> ModelRunner:
    path = str(io.save(proto, folder))
    request = MeasureRequest.from_json({"candidate": {"path": path}, "metrics": [], "settings": settings, "data": data})
    return ModelRunner.open(ModelFile(path), request)


def one_node(op, shape, out_shape=None, dtype=FLOAT, **attributes):
    x, y = builders.tensor("x", shape, dtype), builders.tensor("y", out_shape or shape, dtype)
    return builders.model([helper.make_node(op, ["x"], ["y"], **attributes)], [x], [y], {})


def counting(data: DataSet, running: ModelRunner):
    """The items' outputs, and how many inferences they took."""
    calls = 0
    run = running.run

    def counted(feed):
        nonlocal calls
        calls += 1
        return run(feed)

    running.run = counted
    return list(running.items(data)), calls


def test_a_free_first_dimension_takes_batches(tmp_path):
    data = DataSet({"x": np.arange(800, dtype=np.float32).reshape(100, 8)})
    items, calls = counting(data, start(tmp_path, one_node("Neg", ["n", 8])))
    assert calls < 20
    np.testing.assert_array_equal(np.asarray(stack_or_list([i[0] for i in items])), -data.columns["x"])


def test_large_items_are_run_one_by_one(tmp_path):
    image = np.zeros((17, 3, 640, 640), np.float32)
    running = start(tmp_path, one_node("Neg", ["n", 3, "h", "w"]))
    assert running.batch_size(DataSet({"x": image})) == 1
    assert running.batch_size(DataSet({"x": image[..., :320, :320]})) == 6


def test_a_model_that_decides_by_the_whole_batch_is_run_one_by_one(tmp_path):
    """The first two items alone decide alike, the others do not."""
    values = [1, 2, -3, 4, -5, *[6, -7] * 10]
    data = DataSet({"x": np.array(values, np.float32)[:, None]})
    branches = {}
    for name, op in (("then_branch", "Identity"), ("else_branch", "Neg")):
        output = helper.make_tensor_value_info(name, FLOAT, None)
        branches[name] = helper.make_graph([helper.make_node(op, ["x"], [name])], name, [], [output])
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["sum", "zero"], ["positive"]),
        helper.make_node("If", ["positive"], ["y"], **branches),
    ]
    x, y = builders.tensor("x", ["n", 1]), builders.tensor("y", ["n", 1])
    running = start(tmp_path, builders.model(nodes, [x], [y], {"zero": np.zeros((), np.float32)}))
    items, _ = counting(data, running)
    assert np.asarray(stack_or_list([item[0] for item in items])).ravel().tolist() == list(np.abs(values))


def test_a_model_that_mixes_items_is_run_one_by_one(tmp_path):
    data = DataSet({"x": np.random.default_rng(0).standard_normal((20, 8)).astype(np.float32)})
    running = start(tmp_path, one_node("Softmax", ["n", 8], axis=0))
    items, _ = counting(data, running)
    np.testing.assert_array_equal(np.asarray(stack_or_list([i[0] for i in items])), np.ones((20, 8), np.float32))


def test_few_items_are_not_run_twice_to_compare_batches(tmp_path):
    data = DataSet({"x": np.ones((16, 8), np.float32)})
    items, calls = counting(data, start(tmp_path, one_node("Neg", ["n", 8])))
    assert (len(items), calls) == (16, 16)


def test_a_fixed_batch_is_filled_up_and_cut_again(tmp_path):
    data = DataSet({"x": np.arange(10, dtype=np.float32).reshape(10, 1)})
    items, calls = counting(data, start(tmp_path, one_node("Neg", [4, 1])))
    assert calls == 3
    assert [float(i[0][0, 0]) for i in items] == [-float(n) for n in range(10)]


def test_a_fixed_batch_of_one_is_run_one_by_one(tmp_path):
    data = DataSet({"x": np.ones((3, 5), np.float32)})
    items, calls = counting(data, start(tmp_path, one_node("Neg", [1, 5])))
    assert (len(items), calls) == (3, 3)


def test_a_model_without_a_batch_dimension_gets_bare_items(tmp_path):
    data = DataSet({"x": np.arange(12, dtype=np.float32).reshape(4, 3)})
    items, _ = counting(data, start(tmp_path, one_node("Neg", [3])))
    np.testing.assert_array_equal(np.asarray(stack_or_list([i[0] for i in items])), -data.columns["x"])


def test_state_is_fed_back_and_starts_again(tmp_path):
    nodes = [helper.make_node("Add", ["x", "state"], ["sum"]), helper.make_node("Identity", ["sum"], ["next"])]
    inputs = [builders.tensor("x", [1, 1]), builders.tensor("state", [1, 1])]
    outputs = [builders.tensor("sum", [1, 1]), builders.tensor("next", [1, 1])]
    proto = builders.model(nodes, inputs, outputs, {})
    data = DataSet({"x": np.ones((6, 1), np.float32)})
    for settings, expected in (({}, [1, 2, 3, 4, 5, 6]), ({"reset_every": 2}, [1, 2, 1, 2, 1, 2])):
        running = start(tmp_path, proto, state={"next": "state"}, **settings)
        assert [float(i[0].item()) for i in running.items(data)] == expected
        assert [float(i[0].item()) for i in running.items(data)] == expected
    data = DataSet({"x": np.ones((6, 1), np.float32), "state": np.full((6, 1), 10, np.float32)})
    running = start(tmp_path, proto, {"path": "x.npz", "state": {"next": "state"}, "starts": [0, 4]})
    for _ in range(2):
        assert [float(i[0].item()) for i in running.items(data)] == [11, 12, 13, 14, 11, 12]
    with pytest.raises(InputError, match="state"):
        start(tmp_path, proto, state={"nxt": "state"})
    nodes.append(helper.make_node("Concat", ["sum", "x"], ["wide"], axis=1))
    proto = builders.model(nodes, inputs, [builders.tensor("wide", [1, 2])], {})
    with pytest.raises(InputError, match=r"the output has shape \[1, 2\], the input \[1, 1\]"):
        start(tmp_path, proto, state={"wide": "state"})


def test_texts_go_in_and_come_out(tmp_path):
    data = DataSet({"x": np.array([["a"], ["b"]], object)})
    items, _ = counting(data, start(tmp_path, one_node("Identity", ["n", 1], dtype=TEXT)))
    assert [i[0].item() for i in items] == ["a", "b"]


def test_an_optional_input_may_be_missing(tmp_path):
    tensor_type = helper.make_tensor_type_proto(FLOAT, [2])
    x = helper.make_value_info("x", helper.make_optional_type_proto(tensor_type))
    y = builders.tensor("y", [], TensorProto.BOOL)
    proto = builders.model([helper.make_node("OptionalHasElement", ["x"], ["y"])], [x], [y], {})
    running = start(tmp_path, proto)
    assert running.inputs[0].optional
    assert running.feed({}) == {}
    with pytest.raises(InputError, match="'x'"):
        start(tmp_path / "plain", one_node("Neg", [2, 2])).feed({"z": np.zeros(1), "w": np.zeros(1)})


def test_items_of_different_shapes_are_run_as_they_are(tmp_path):
    data = DataSet({}, None, {"x": [np.ones((1, n), np.float32) for n in (2, 5, 3)]})
    items, _ = counting(data, start(tmp_path, one_node("Neg", ["n", "m"])))
    assert [i[0].shape for i in items] == [(1, 2), (1, 5), (1, 3)]


def test_several_outputs_stay_together(tmp_path):
    nodes = [helper.make_node("Neg", ["x"], ["a"]), helper.make_node("Abs", ["x"], ["b"])]
    outs = [builders.tensor("a", ["n", 2]), builders.tensor("b", ["n", 2])]
    proto = builders.model(nodes, [builders.tensor("x", ["n", 2])], outs, {})
    data = DataSet({"x": -np.ones((3, 2), np.float32)})
    for item in start(tmp_path, proto).items(data):
        assert [v.tolist() for v in item] == [[[1, 1]], [[1, 1]]]


def test_data_of_another_type_is_cast_to_the_models(tmp_path):
    feed = start(tmp_path, one_node("Neg", ["n", 2], dtype=INTEGER)).feed({"x": np.array([[1.0, 2.0]])})
    assert feed["x"].dtype == np.int64


def test_maps_are_compared_as_numbers():
    np.testing.assert_array_equal(plain([{"a": 0.25, "b": 0.75}, {"a": 1.0, "b": 0.0}]), [[0.25, 0.75], [1.0, 0.0]])
    for other in ([], [{"a": 1.0}, {"b": 1.0}], [np.ones(2)]):
        assert plain(other) is other


@pytest.mark.parametrize(("config", "expected"), [({}, "1000"), ({"session.intra_op.spin_duration_us": "5"}, "5")])
def test_threads_of_idle_sessions_rest_unless_the_candidate_says_otherwise(tmp_path, config, expected):
    path = str(io.save(one_node("Relu", [1, 4]), tmp_path))
    request = MeasureRequest.from_json({"candidate": {"path": path}, "metrics": []})
    options = {"config": config} if config else {}
    session = ModelRunner.open(ModelFile(path, options), request).session
    assert session.get_session_options().get_session_config_entry("session.intra_op.spin_duration_us") == expected


@pytest.mark.parametrize(("threads", "expected"), [(0, 1), (2, 2)])
def test_a_session_that_nobody_times_leaves_the_cores_to_others(tmp_path, threads, expected):
    path = str(io.save(one_node("Neg", ["n", 8]), tmp_path))
    document = {"candidate": {"path": path}, "metrics": [], "target": {"threads": threads}}
    runner = ModelRunner.open(ModelFile(path), MeasureRequest.from_json(document), timed=False)
    options = runner.session.get_session_options()
    assert options.intra_op_num_threads == expected
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
