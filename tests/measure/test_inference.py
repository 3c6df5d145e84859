"""Models of awkward kinds run over data: item by item, in batches, with state."""

from __future__ import annotations

from pathlib import Path

import builders
import numpy as np
import pytest
from measure_helpers import QUICK, bare, sigmoid
from onnx import TensorProto, helper

from autoopt.data import DataConfig
from autoopt.data.dataset import DataSet
from autoopt.errors import InputError
from autoopt.measure import inference, worker
from autoopt.measure.inference import CACHED_DATA_SETS, ModelRunner, evaluation_data, plain
from autoopt.measure.quality.predictions import stack_or_list
from autoopt.measure.request import MeasureRequest, Unmeasurable
from autoopt.measure.settings import MeasurementSettings
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


def test_the_batch_size_of_the_data_is_used_as_far_as_the_model_allows(files, tmp_path):
    models = {
        "free": (str(io.save(builders.mlp(), tmp_path / "free")), 8),
        "one": (str(io.save(builders.mlp(batch=1), tmp_path / "one")), 1),
        "four": (str(io.save(builders.mlp(batch=4), tmp_path / "four")), 4),
        "bare": (bare(tmp_path / "bare"), 1),
        "reshaped": (bare(tmp_path / "reshaped", reshaped=True), 1),
    }
    for path, expected in models.values():
        found = worker.latency(
            {
                "candidate": {"path": path, "session_options": {"graph_optimization_level": "disable"}},
                "source": {"path": path},
                "metrics": ["latency_p50"],
                "data": {"path": files["data"], "batch_size": 8},
                "settings": QUICK,
            }
        )
        assert found["details"]["batch_size"] == expected
        assert set(found["ratios"]) == {"latency_p50"}


def test_items_that_differ_in_shape_are_measured_one_at_a_time(tmp_path):
    (tmp_path / "script.py").write_text(
        "import numpy as np\n"
        "from autoopt.data import register_load_dataset\n"
        "from autoopt.data.dataset import DataSet\n"
        "@register_load_dataset('uneven')\n"
        "def uneven():\n"
        "    return DataSet({}, None, {'x': [np.ones((1, n), np.float32) for n in (2, 5, 3)]})\n"
    )
    data = {"load_dataset": "uneven", "user_script": str(tmp_path / "script.py"), "batch_size": 2}
    payload = {"candidate": {"path": sigmoid(tmp_path)}, "metrics": ["latency_p50"], "data": data, "settings": QUICK}
    assert worker.latency(payload)["details"]["batch_size"] == 1


@pytest.mark.parametrize("meter", ["latency", "memory"])
def test_a_batch_size_in_the_settings_that_the_model_does_not_take_is_named(tmp_path, meter):
    one = str(io.save(builders.mlp(batch=1), tmp_path / "one"))
    words = r"measurement\.batch_size: the model takes 1 item at a time.*, not 8.*; set it to 1$"
    for path in (one, bare(tmp_path / "reshaped", reshaped=True)):
        asked = {"candidate": {"path": path}, "source": {"path": path}, "metrics": [], "settings": {"batch_size": 8}}
        with pytest.raises(Unmeasurable, match=words) as caught:
            getattr(worker, meter)(asked)
        assert "\n" not in str(caught.value)


def test_a_candidate_with_another_batch_than_its_source_is_refused(files, tmp_path):
    four = str(io.save(builders.mlp(batch=4), tmp_path))
    payload = {"candidate": {"path": four}, "source": {"path": files["source"]}, "data": files["data"]}
    with pytest.raises(Unmeasurable, match=r"takes 4 items at a time \(input 'x'\), not 1; set it to 4"):
        worker.latency({**payload, "metrics": ["latency_p50"], "settings": QUICK})
    found = worker.latency({**payload, "metrics": ["latency_p50"], "settings": {**QUICK, "batch_size": 4}})
    assert found["ratios"]["latency_p50"]["low"] > 0


def test_a_batch_that_the_model_does_not_take_is_named_and_the_rest_is_measured(tmp_path):
    path = str(io.save(builders.mlp(batch=1), tmp_path))
    settings = {**QUICK, "throughput": [{"batch_size": 4}, {"batch_size": 1}]}
    found = worker.latency({"candidate": {"path": path}, "metrics": ["latency_p50"], "settings": settings})
    refused, measured = found["details"]["throughput"]
    assert "4" in refused["refused"]
    assert measured["candidate"]["value"] > 0
    assert found["metrics"]["latency_p50"]["value"] > 0


def test_the_source_is_opened_once_to_find_its_batch_size(tmp_path, monkeypatch):
    opened = []
    find = inference._size
    monkeypatch.setattr(inference, "_size", lambda *arguments: opened.append(arguments) or find(*arguments))
    source = str(io.save(builders.mlp(seed=11), tmp_path / "source"))
    for seed in (12, 13):
        candidate = str(io.save(builders.mlp(seed=seed), tmp_path / str(seed)))
        request = {"candidate": {"path": candidate}, "source": {"path": source}, "metrics": ["latency_p50"]}
        worker.latency({**request, "settings": QUICK})
    assert len(opened) == 1


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    empty: dict[str, object] = {}
    monkeypatch.setattr(inference, "_cache", empty)
    return empty


@pytest.fixture
def model(tmp_path: Path) -> ModelFile:
    return ModelFile(str(io.save(builders.mlp(), tmp_path)))


def reshaping(folder: Path, size: int) -> ModelFile:
    """A model of an open dimension that takes only multiples of `size` squared."""
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    x, y = builders.tensor("x", ["batch", "odd"]), builders.tensor("y", ["batch", size, size])
    proto = builders.model(nodes, [x], [y], {"shape": np.array([-1, size, size], np.int64)})
    return ModelFile(str(io.save(proto, folder)))


def test_given_data_are_opened(model: ModelFile, tmp_path: Path) -> None:
    items = np.ones((3, 8), np.float32)
    np.savez(tmp_path / "data.npz", x=items)
    data = evaluation_data(MeasureRequest(model, data=DataConfig.parse(str(tmp_path / "data.npz"))))
    np.testing.assert_array_equal(data.columns["x"], items)


def test_without_data_inputs_are_made_up_for_the_model(model: ModelFile) -> None:
    data = evaluation_data(MeasureRequest(model))
    assert data.name == "synthetic"
    assert {array.shape for array in data.uneven["x"]} == {(1, 8)}


def test_inputs_are_those_of_the_source(model: ModelFile, tmp_path: Path) -> None:
    other = ModelFile(str(io.save(builders.cnn(), tmp_path / "other")))
    data = evaluation_data(MeasureRequest(other, model))
    assert data is evaluation_data(MeasureRequest(model))


def test_sizes_that_the_model_does_not_take_are_replaced(tmp_path: Path) -> None:
    data = evaluation_data(MeasureRequest(reshaping(tmp_path, 8)))
    assert {array.shape for array in data.uneven["x"]} == {(1, 64)}


def test_a_model_that_never_runs_keeps_the_usual_sizes(tmp_path: Path) -> None:
    data = evaluation_data(MeasureRequest(reshaping(tmp_path, 11)))
    assert {array.shape for array in data.uneven["x"]} == {(1, 16)}


def test_settings_size_the_inputs(model: ModelFile) -> None:
    settings = MeasurementSettings(shapes={"x": [5, 8]}, ranges={"x": [2.0, 3.0]})
    data = evaluation_data(MeasureRequest(model, settings=settings))
    assert all(array.shape == (5, 8) and 2 <= array.min() <= array.max() <= 3 for array in data.uneven["x"])


def test_a_model_that_the_runtime_refuses_still_gets_inputs(tmp_path: Path) -> None:
    proto = builders.mlp()
    proto.graph.node[1].op_type = "NoSuchOperator"
    data = evaluation_data(MeasureRequest(ModelFile(str(io.save(proto, tmp_path)))))
    assert data.uneven["x"]


def test_the_last_data_sets_are_cached(model: ModelFile, cache: dict[str, object]) -> None:
    requests = [
        MeasureRequest(model, settings=MeasurementSettings(shapes={"x": [size, 8]}))
        for size in range(1, CACHED_DATA_SETS + 2)
    ]
    first = [evaluation_data(request) for request in requests]
    assert len(cache) == CACHED_DATA_SETS
    assert evaluation_data(requests[-1]) is first[-1]
    assert evaluation_data(requests[0]) is not first[0]


def test_data_that_are_missing_are_named(model: ModelFile) -> None:
    with pytest.raises(InputError, match=r"nowhere\.npz"):
        evaluation_data(MeasureRequest(model, data=DataConfig.parse("/nowhere.npz")))
