"""The meters' worker functions on real models."""

from __future__ import annotations

import json
from pathlib import Path

import builders
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from autoopt.errors import InputError
from autoopt.measure import worker
from autoopt.measure.latency import timing
from autoopt.measure.meters import METERS, meters_for
from autoopt.measure.request import Unmeasurable
from autoopt.model import io
from autoopt.outcome import Outcome
from autoopt.workers.protocol import judge

QUICK = {"seconds": 0.2, "quiet_seconds": 0, "replicas": 4}
LATENCY = ["latency_p50", "latency_p90", "latency_p99", "latency_mean", "throughput", "cold_start", "first_inference"]


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, str]:
    """A source model, an equal copy, one with other weights, and labelled data that the source gets right."""
    root = tmp_path_factory.mktemp("models")
    source = builders.mlp()
    paths = {
        "source": io.save(source, root / "source"),
        "copy": io.save(source, root / "copy"),
        "other": io.save(builders.mlp(seed=1), root / "other"),
    }
    inputs = np.random.default_rng(0).standard_normal((60, 8)).astype(np.float32)
    labels = run(paths["source"], inputs).argmax(1)
    np.savez(root / "data.npz", x=inputs, labels=labels)
    np.savez(root / "unlabelled.npz", x=inputs)
    return {
        **{n: str(p) for n, p in paths.items()},
        "data": str(root / "data.npz"),
        "plain": str(root / "unlabelled.npz"),
    }


def run(path: Path, x: np.ndarray) -> np.ndarray:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x})[0]


def ask(function, files, candidate, metrics, source="source", data="data", **settings):
    payload = {
        "candidate": {"path": files[candidate], "session_options": {}},
        "source": {"path": files[source], "session_options": {}} if source else None,
        "metrics": metrics,
        "data": files[data] if data else None,
        "target": {"device": "cpu", "execution_provider": "CPUExecutionProvider", "threads": 1},
        "settings": settings,
    }
    answered = getattr(worker, function)(json.loads(json.dumps(payload)))
    json.dumps(answered, allow_nan=False)
    for group in ("metrics", "source_metrics", "ratios"):
        for estimate in answered[group].values():
            assert estimate["low"] <= estimate["value"] <= estimate["high"]
    return answered


@pytest.mark.parametrize("meter", [m for m in METERS if m.name != "memory"], ids=lambda m: m.name)
def test_every_meter_answers_what_it_is_asked_in_its_form(files, meter):
    wanted = [m for m in meter.metrics if m not in ("psnr", "r2", "mse", "mae", "map", "map50", "wer", "perplexity")]
    function = meter.function.rpartition(":")[2]
    answered = ask(function, files, "other", wanted, **QUICK)
    assert set(answered["metrics"]) == set(wanted)
    if meter.name != "fidelity":
        assert set(answered["source_metrics"]) == set(wanted)
    assert set(answered) == {"metrics", "source_metrics", "ratios", "details"}


def test_the_source_itself_is_the_baseline_with_ratios_of_exactly_one(files):
    for candidate in ("source", "copy"):
        found = ask("latency", files, candidate, LATENCY, **QUICK)
        assert found["ratios"] == {n: {"value": 1.0, "low": 1.0, "high": 1.0} for n in LATENCY}
        assert found["metrics"] == found["source_metrics"]
        quality = ask("task", files, candidate, ["accuracy"])
        assert quality["metrics"]["accuracy"]["value"] == 1.0
        assert quality["details"]["drops"]["accuracy"] == {"value": 0.0, "low": 0.0, "high": 0.0}


def test_the_same_model_with_other_session_options_is_measured_against_the_source(files):
    payload = {
        "candidate": {"path": files["source"], "session_options": {"graph_optimization_level": "disable"}},
        "source": {"path": files["source"], "session_options": {}},
        "metrics": ["latency_p50"],
        "settings": QUICK,
    }
    found = worker.latency(payload)
    assert found["details"]["source_repeats"] > 0
    assert found["ratios"]["latency_p50"]["low"] < found["ratios"]["latency_p50"]["high"]


def test_latency_says_how_it_went(files):
    details = ask("latency", files, "other", ["latency_p50"], **QUICK)["details"]
    assert details["stopped"] in ("narrow", "worse", "time", "max repeats")
    assert details["threads"] == 1
    assert details["repeats"] >= details["pairs"] > 0
    assert details["effective_repeats"] <= details["pairs"]
    assert {"affinity", "load", "others_load", "quiet"} <= set(details["machine"])
    assert {"warm_up_calls", "warm_up_settled", "baseline_drift", "baseline_spread", "busy", "outliers"} <= set(details)


def test_a_source_that_the_runtime_refuses_leaves_metrics_without_ratios(files, tmp_path):
    bad = builders.mlp()
    bad.graph.node[1].op_type = "NoSuchOperator"
    broken = {**files, "broken": str(io.save(bad, tmp_path))}
    for function, metric in (("latency", "latency_p50"), ("task", "accuracy")):
        found = ask(function, broken, "source", [metric], source="broken", **QUICK)
        assert set(found["metrics"]) == {metric}
        assert found["ratios"] == found["source_metrics"] == {}
        assert "NoSuchOperator" in found["details"]["source_refused"]
    assert ask("latency", files, "source", ["latency_p50"], source=None, **QUICK)["ratios"] == {}


def test_accuracy_and_its_paired_drop(files):
    found = ask("task", files, "other", ["accuracy", "f1"])
    labels = np.load(files["data"])["labels"]
    expected = np.mean(run(files["other"], np.load(files["data"])["x"]).argmax(1) == labels)
    assert found["metrics"]["accuracy"]["value"] == pytest.approx(expected)
    assert found["details"]["drops"]["accuracy"]["value"] == pytest.approx(1 - expected)
    assert found["details"]["items"] == 60


def test_sequential_stops_at_the_first_subset_that_tells(files, tmp_path):
    x = np.tile(np.load(files["data"])["x"], (20, 1))
    np.savez(tmp_path / "many.npz", x=x, labels=np.tile(np.load(files["data"])["labels"], 20))
    many = {**files, "many": str(tmp_path / "many.npz")}
    wanted = [{"metric": "accuracy", "max_drop": 0.05}]
    found = ask("task", many, "other", ["accuracy"], data="many", sequential=True, constraints=wanted)
    assert found["details"]["items"] < found["details"]["of"] == 1200
    whole = ask("task", many, "other", ["accuracy"], data="many", sequential=True, constraints=[])
    assert whole["details"]["items"] == 1200


def test_task_metrics_without_labels_are_an_error(files):
    with pytest.raises(InputError, match="labelled"):
        ask("task", files, "source", ["accuracy"], data="plain")


def test_fidelity_works_on_data_and_on_made_up_inputs(files):
    for data in ("plain", None):
        same = ask("fidelity", files, "copy", ["cosine", "max_abs_error", "top1_agreement"], data=data)
        assert same["metrics"]["cosine"]["value"] == pytest.approx(1.0)
        assert same["metrics"]["max_abs_error"]["value"] == 0.0
        other = ask("fidelity", files, "other", ["cosine", "top1_agreement"], data=data)
        assert other["metrics"]["cosine"]["value"] < 0.999
        assert set(other["details"]["outputs"]) == {"y"}


def test_size_counts_external_data_once_and_nothing_else(tmp_path):
    big = builders.mlp(width=4000)
    path = io.save(big, tmp_path, external=True)
    (tmp_path / "notes.txt").write_text("not part of the model")
    found = worker.size({"candidate": {"path": str(path)}, "metrics": ["size"]})
    assert found["details"]["external"] == (tmp_path / "model.onnx.data").stat().st_size
    assert found["metrics"]["size"]["value"] == found["details"]["external"] + path.stat().st_size


def test_equal_graphs_with_other_external_data_are_not_the_same_model(tmp_path):
    paths = [str(io.save(builders.mlp(width=400), tmp_path / name, external=True)) for name in ("a", "b")]
    weights = tmp_path / "b" / "model.onnx.data"
    weights.write_bytes((-np.frombuffer(weights.read_bytes(), np.float32)).tobytes())
    payload = {"candidate": {"path": paths[1]}, "source": {"path": paths[0]}, "metrics": ["cosine"]}
    assert worker.fidelity(payload)["metrics"]["cosine"]["value"] < 0.999


def test_made_up_inputs_find_sizes_that_the_model_takes(tmp_path):
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    x, y = builders.tensor("x", ["batch", "odd"]), builders.tensor("y", ["batch", 8, 8])
    proto = builders.model(nodes, [x], [y], {"shape": np.array([-1, 8, 8], np.int64)})
    path = str(io.save(proto, tmp_path))
    found = worker.fidelity({"candidate": {"path": path}, "source": {"path": path}, "metrics": ["cosine"]})
    assert found["metrics"]["cosine"]["value"] == pytest.approx(1.0)


def test_memory_is_that_of_a_fresh_process_with_the_batch_of_the_data(files, tmp_path):
    width, batch = 200_000, 64
    model = {"path": str(io.save(builders.mlp(width=width), tmp_path))}
    data = {"path": files["data"], "batch_size": batch}
    found = worker.memory({"candidate": model, "source": model, "metrics": [], "data": data})
    assert 4 * width * batch < found["metrics"]["peak_memory"]["value"] < 400 << 20
    assert found["metrics"]["arena_memory"]["value"] >= 0
    assert found["ratios"]["peak_memory"]["value"] == 1.0
    assert found["details"]["batch_size"] == batch


def test_memory_of_a_model_that_takes_texts(tmp_path):
    texts = [helper.make_tensor_value_info(name, onnx.TensorProto.STRING, ["n"]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", texts[:1], texts[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    np.savez(tmp_path / "texts.npz", x=np.array(["one", "zwei", "três"]))
    payload = {"candidate": {"path": str(io.save(model, tmp_path))}, "data": str(tmp_path / "texts.npz")}
    found = worker.memory({**payload, "metrics": ["peak_memory"]})
    assert found["metrics"]["peak_memory"]["value"] > 0


def test_memory_over_profiles_is_that_of_the_largest(tmp_path):
    elements = 3 << 20
    profiles = [{"name": "long", "dimensions": {"length": elements}}, {"dimensions": {"length": 8}}]
    payload = {"candidate": {"path": sigmoid(tmp_path)}, "metrics": ["peak_memory"], "settings": {"profiles": profiles}}
    found = worker.memory(payload)
    assert found["metrics"]["peak_memory"]["value"] > 4 * elements
    assert set(found["details"]["profiles"]) == {"long", "1"}


def test_custom_metrics_of_a_user_script(files, tmp_path):
    script = tmp_path / "mine.py"
    script.write_text(
        "from autoopt.measure.quality.custom import register_metric\n"
        "@register_metric('half_right', unit='fraction')\n"
        "def half_right(outputs, labels):\n"
        "    'Half a point for each right item.'\n"
        "    return 0.5 * (outputs[0].argmax(-1) == labels)\n"
        "@register_metric('one_number', direction='minimize')\n"
        "def one_number(outputs, labels):\n"
        "    return 7\n"
    )
    payload = {
        "candidate": {"path": files["other"]},
        "source": {"path": files["source"]},
        "metrics": ["half_right", "one_number"],
        "data": files["data"],
        "user_script": str(script),
    }
    found = worker.custom(payload)
    assert found["source_metrics"]["half_right"]["value"] == 0.5
    assert found["metrics"]["one_number"] == {"value": 7.0, "low": 7.0, "high": 7.0}
    assert found["details"]["drops"]["half_right"]["value"] > 0
    assert [m.name for m in meters_for(["half_right", "size"], custom=["half_right"])] == ["size", "custom"]
    with pytest.raises(InputError, match="no custom metric"):
        worker.custom({**payload, "metrics": ["half_rihgt"]})


def sigmoid(folder) -> str:
    """`x` [batch, length] -> Sigmoid -> `y`."""
    x, y = (builders.tensor(name, ["batch", "length"]) for name in "xy")
    return str(io.save(builders.model([helper.make_node("Sigmoid", ["x"], ["y"])], [x], [y], {}), folder))


def test_profiles_of_dynamic_shapes_are_measured_one_by_one(tmp_path):
    path = sigmoid(tmp_path)
    profiles = [{"name": "short", "dimensions": {"length": 8}}, {"name": "long", "dimensions": {"length": 65536}}]
    found = worker.latency(
        {"candidate": {"path": str(path)}, "metrics": ["latency_p50"], "settings": {**QUICK, "profiles": profiles}}
    )
    by_name = found["details"]["profiles"]
    short, long = (by_name[n]["metrics"]["latency_p50"]["value"] for n in ("short", "long"))
    assert short < long
    assert found["metrics"]["latency_p50"]["value"] == pytest.approx((short * long) ** 0.5)


def test_profiles_tell_together_what_one_measurement_tells(tmp_path):
    path = sigmoid(tmp_path)
    profiles = [{"dimensions": {"length": 8}}, {"dimensions": {"length": 4096}, "weight": 3}]
    asked = {
        "candidate": {"path": path, "session_options": {"graph_optimization_level": "disable"}},
        "source": {"path": path},
        "metrics": ["latency_p50"],
    }
    for earlier, slow in ((1e-9, True), (1e9, False)):
        details = worker.latency({**asked, "settings": {**QUICK, "profiles": profiles, "source_ms": earlier}})[
            "details"
        ]
        parts = list(details["profiles"].values())
        for name in ("pairs", "replicas", "repeats", "source_repeats", "set_aside"):
            assert details[name] == sum(p[name] for p in parts)
        assert set(details["stopped"].split(", ")) == {p["stopped"] for p in parts}
        assert details["source_ms"] == pytest.approx(parts[0]["source_ms"] ** 0.25 * parts[1]["source_ms"] ** 0.75)
        assert (details["pace"] > 1.06) is slow
        assert details["disturbed"] is (slow or any(p["disturbed"] for p in parts))
        assert details["busy"] is any(p["busy"] for p in parts)


def now_and_then(folder) -> str:
    """A model that in one inference of three does four times as much as in the others."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("MatMul", ["a", "w"], ["b"])],
        "body",
        [builders.tensor("i", [], TensorProto.INT64), builders.tensor("go", [], TensorProto.BOOL)]
        + [builders.tensor("a", [256, 256])],
        [builders.tensor("on", [], TensorProto.BOOL), builders.tensor("b", [256, 256])],
    )
    nodes = [
        helper.make_node("RandomUniform", [], ["random"], shape=[1]),
        helper.make_node("Less", ["random", "third"], ["slow"]),
        helper.make_node("Where", ["slow", "many", "few"], ["times"]),
        helper.make_node("Loop", ["times", "", "x"], ["y"], body=body),
    ]
    weights = {
        "third": np.array([0.35], np.float32),
        "many": np.array([80], np.int64),
        "few": np.array([20], np.int64),
        "w": np.linalg.qr(np.random.default_rng(0).standard_normal((256, 256)))[0].astype(np.float32),
    }
    x, y = builders.tensor("x", [256, 256]), builders.tensor("y", [256, 256])
    return str(io.save(builders.model(nodes, [x], [y], weights), folder))


def test_what_a_real_model_does_now_and_then_is_in_its_percentiles(tmp_path, monkeypatch):
    monkeypatch.setattr(timing.ThreadUsage, "preempted_share", lambda *_: 0.0)  # other processes may run
    settings = {"seconds": 20.0, "max_pairs": 24, "replicas": 1, "fixed": True, "quiet_seconds": 0}
    path = now_and_then(tmp_path)
    found = worker.latency({"candidate": {"path": path}, "metrics": [], "settings": settings})["metrics"]
    assert found["latency_p99"]["value"] > 2 * found["latency_p50"]["value"]
    assert found["latency_mean"]["value"] > 1.1 * found["latency_p50"]["value"]


def bare(folder, *, reshaped=False) -> str:
    """`x` [8] -> Neg -> `y`; `reshaped`: `x` [batch, 8], but of the batch only 1 is right."""
    shape = ["batch", 8] if reshaped else [8]
    nodes = [helper.make_node("Neg", ["x"], ["n"]), helper.make_node("Reshape", ["n", "shape"], ["y"])]
    weights = {"shape": np.array([1, 8] if reshaped else [8], np.int64)}
    return str(
        io.save(builders.model(nodes, [builders.tensor("x", shape)], [builders.tensor("y", None)], weights), folder)
    )


def test_the_batch_size_of_the_data_goes_as_far_as_the_model_does(files, tmp_path):
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


def test_items_that_differ_in_shape_are_measured_one_at_a_time_whatever_the_batch_size_of_the_data(tmp_path):
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


def test_a_candidate_of_another_batch_than_its_source_is_refused_in_plain_words(files, tmp_path):
    four = str(io.save(builders.mlp(batch=4), tmp_path))
    payload = {"candidate": {"path": four}, "source": {"path": files["source"]}, "data": files["data"]}
    with pytest.raises(Unmeasurable, match=r"takes 4 items at a time \(input 'x'\), not 1; set it to 4"):
        worker.latency({**payload, "metrics": ["latency_p50"], "settings": QUICK})
    found = worker.latency({**payload, "metrics": ["latency_p50"], "settings": {**QUICK, "batch_size": 4}})
    assert found["ratios"]["latency_p50"]["low"] > 0


def test_throughput_at_concurrency_and_batch_sizes(files):
    table = [{"batch_size": 4, "concurrency": 1}]
    found = ask("latency", files, "other", ["throughput"], **QUICK, concurrency=2, throughput=table)
    rows = {(r["batch_size"], r["concurrency"]): r for r in found["details"]["throughput"]}
    assert set(rows) == {(1, 2), (4, 1)}
    assert found["metrics"]["throughput"] == rows[1, 2]["candidate"]
    assert rows[4, 1]["candidate"]["value"] > 0


def test_a_source_slower_than_it_was_says_that_the_machine_is_not_itself(files):
    for earlier, slow in ((1e-9, True), (1e9, False)):
        details = ask("latency", files, "other", ["latency_p50"], **QUICK, source_ms=earlier)["details"]
        assert (details["pace"] > 1.1) is slow
        assert details["disturbed"] or not slow


def test_a_batch_that_the_model_does_not_take_is_named_and_the_rest_is_measured(tmp_path):
    path = str(io.save(builders.mlp(batch=1), tmp_path))
    settings = {**QUICK, "throughput": [{"batch_size": 4}, {"batch_size": 1}]}
    found = worker.latency({"candidate": {"path": path}, "metrics": ["latency_p50"], "settings": settings})
    refused, measured = found["details"]["throughput"]
    assert "4" in refused["refused"]
    assert measured["candidate"]["value"] > 0
    assert found["metrics"]["latency_p50"]["value"] > 0


def test_compare_models_finds_the_first_layer_that_differs(tmp_path):
    from autoopt.measure.layerwise import compare_models

    source, changed = builders.mlp(), builders.mlp()
    weights = onnx.numpy_helper.to_array(changed.graph.initializer[2]).copy()
    changed.graph.initializer[2].CopyFrom(onnx.numpy_helper.from_array(-weights, "w2"))
    paths = [str(io.save(m, tmp_path / n)) for m, n in ((source, "a"), (changed, "b"))]
    found = compare_models({"source": {"path": paths[0]}, "candidate": {"path": paths[1]}})
    assert [t["name"] for t in found["tensors"]] == ["h", "r", "s", "y"]
    assert found["first_different"] == "s"
    assert found["tensors"][0]["max_abs_error"] == 0
    same = compare_models({"source": {"path": paths[0]}, "candidate": {"path": paths[0]}})
    assert same["first_different"] is None
    assert same["outputs"][0]["cosine"] == pytest.approx(1.0)


def test_compare_models_tells_of_every_output_whatever_its_kind(tmp_path):
    from autoopt.measure.layerwise import compare_models

    def labelled(word: str, parts: int) -> str:
        nodes = [
            helper.make_node(
                "LabelEncoder", ["n"], ["label"], domain="ai.onnx.ml", keys_int64s=[0], values_strings=[word],
                default_string=word,
            ),
            helper.make_node("SplitToSequence", ["x"], ["parts"], axis=1),
            helper.make_node("Concat", ["x"] * parts, ["wide"], axis=1),
        ]  # fmt: skip
        outputs = [
            helper.make_tensor_value_info("label", onnx.TensorProto.STRING, [1]),
            helper.make_tensor_sequence_value_info("parts", onnx.TensorProto.FLOAT, None),
            helper.make_tensor_value_info("wide", onnx.TensorProto.FLOAT, [1, 4 * parts]),
        ]
        inputs = [
            helper.make_tensor_value_info("n", onnx.TensorProto.INT64, [1]),
            helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 4]),
        ]
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
        graph = helper.make_graph(nodes, "g", inputs, outputs)
        return str(io.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / f"{word}{parts}"))

    found = compare_models({"source": {"path": labelled("a", 2)}, "candidate": {"path": labelled("b", 3)}})
    label, parts, wide = found["outputs"]
    assert (label["note"], label["top1_agreement"], label["cosine"]) == ("not numbers", 0.0, None)
    assert (parts["note"], parts["shape"], parts["max_abs_error"]) == ("", [4], 0.0)
    assert wide["note"] == "1x8 and 1x12"


def test_compare_models_says_which_file_is_none(tmp_path):
    from autoopt.measure.layerwise import compare_models

    path = str(io.save(builders.mlp(), tmp_path))
    (tmp_path / "broken.onnx").write_bytes(b"no model at all")
    with pytest.raises(io.Unreadable, match="not an ONNX model"):
        compare_models({"source": {"path": path}, "candidate": {"path": str(tmp_path / "broken.onnx")}})


@pytest.mark.parametrize(
    ("function", "metrics", "settings", "words"),
    [
        ("task", ["psnr"], {}, "psnr: predictions of shape"),
        ("task", ["accuracy"], {"task_output": "none"}, "no output 'none'"),
        ("fidelity", ["cosine"], {"state": {"none": "x"}}, "state 'none'"),
    ],
)
def test_data_and_settings_that_do_not_fit_are_told_from_what_the_runtime_refuses(
    files, function, metrics, settings, words
):
    with pytest.raises(Unmeasurable, match=words) as caught:
        ask(function, files, "source", metrics, **settings)
    assert judge(caught.value)[0] is Outcome.REFUSED


@pytest.mark.parametrize(
    ("profile", "words"),
    [
        ("short", "expected an object"),
        ({"dimension": {"n": 2}}, r"profiles\[0\]: no setting 'dimension'; did you mean 'dimensions'"),
        ({"dimensions": {"length": 2}}, r"profiles\[0\].dimensions: no symbolic dimension 'length'"),
        ({"shapes": {"y": [2, 8]}}, r"profiles\[0\].shapes: no input 'y'; there are: x"),
        ({"weight": 0}, "above 0, not 0"),
    ],
)
def test_a_profile_that_makes_no_sense_is_refused(files, profile, words):
    with pytest.raises(Unmeasurable, match=words):
        ask("latency", files, "source", ["latency_p50"], profiles=[profile])


def test_profiles_of_the_same_name_are_refused(files):
    with pytest.raises(Unmeasurable, match="profiles: two profiles have the name 'a'"):
        ask("latency", files, "source", ["latency_p50"], profiles=[{"name": "a"}, {"name": "a"}])
