"""The meters' worker functions on real models."""

from __future__ import annotations

from typing import get_args

import builders
import numpy as np
import pytest
from measure_helpers import QUICK, ask, sigmoid
from onnx import TensorProto, helper

from autoopt.measure import worker
from autoopt.measure.latency import timer
from autoopt.measure.latency.comparison import StopReason
from autoopt.measure.meters import METERS
from autoopt.measure.request import Unmeasurable
from autoopt.metrics import GENERATION
from autoopt.model import io
from autoopt.outcome import Outcome
from autoopt.workers.protocol import judge

OF_CLASSES = ("accuracy", "top5_accuracy", "f1", "auc")
"""Task metrics that fit the labels of the models here, one class for each item."""
LATENCY = ["latency_p50", "latency_p90", "latency_p99", "latency_mean", "throughput", "cold_start", "first_inference"]


@pytest.mark.parametrize("meter", [m for m in METERS if m.name != "memory"], ids=lambda m: m.name)
def test_every_meter_replies_with_the_requested_metrics(files, meter):
    wanted = [m for m in meter.metrics if m not in GENERATION and (meter.name != "task" or m in OF_CLASSES)]
    function = meter.function.rpartition(":")[2]
    answered = ask(function, files, "other", wanted, **QUICK)
    assert set(answered["metrics"]) == set(wanted)
    if meter.name != "fidelity":
        assert set(answered["source_metrics"]) == set(wanted)
    assert set(answered) == {"metrics", "source_metrics", "ratios", "details", "rivals"}


def test_the_source_itself_is_the_baseline_with_ratios_of_exactly_one(files):
    for candidate in ("source", "copy"):
        found = ask("latency", files, candidate, LATENCY, **QUICK)
        assert found["ratios"] == {n: {"value": 1.0, "low": 1.0, "high": 1.0} for n in LATENCY}
        assert found["metrics"] == found["source_metrics"]
        quality = ask("task", files, candidate, ["accuracy"])
        assert quality["metrics"]["accuracy"]["value"] == 1.0
        assert quality["details"]["drops"]["accuracy"] == {"value": 0.0, "low": 0.0, "high": 0.0}


def test_latency_reports_details(files):
    details = ask("latency", files, "other", ["latency_p50"], **QUICK)["details"]
    assert details["stopped"] in get_args(StopReason)
    assert details["threads"] == 1
    assert 0 < details["effective_repeats"] <= details["pairs"]
    assert {"affinity", "load", "others_load", "quiet"} <= set(details["machine"])
    assert {"busy", "set_aside", "calm"} <= set(details)


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


def test_size_counts_external_data_once_and_nothing_else(tmp_path):
    big = builders.mlp(width=4000)
    path = io.save(big, tmp_path, external=True)
    (tmp_path / "notes.txt").write_text("not part of the model")
    found = worker.size({"candidate": {"path": str(path)}, "metrics": ["size"]})
    assert found["details"]["external"] == (tmp_path / "model.onnx.data").stat().st_size
    assert found["metrics"]["size"]["value"] == found["details"]["external"] + path.stat().st_size


def test_synthetic_inputs_have_sizes_that_the_model_takes(tmp_path):
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    x, y = builders.tensor("x", ["batch", "odd"]), builders.tensor("y", ["batch", 8, 8])
    proto = builders.model(nodes, [x], [y], {"shape": np.array([-1, 8, 8], np.int64)})
    path = str(io.save(proto, tmp_path))
    found = worker.fidelity({"candidate": {"path": path}, "source": {"path": path}, "metrics": ["cosine"]})
    assert found["metrics"]["cosine"]["value"] == pytest.approx(1.0)


def test_profiles_have_the_details_of_one_measurement(tmp_path):
    path = sigmoid(tmp_path)
    profiles = [{"dimensions": {"length": 8}}, {"dimensions": {"length": 4096}, "weight": 3}]
    asked = {
        "candidate": {"path": path, "session_options": {"enable_mem_pattern": False}},
        "source": {"path": path},
        "metrics": ["latency_p50"],
    }
    for earlier, slow in ((1e-9, True), (1e9, False)):
        details = worker.latency({**asked, "settings": {**QUICK, "profiles": profiles, "source_ms": earlier}})[
            "details"
        ]
        parts = list(details["profiles"].values())
        for name in ("pairs", "replicas", "set_aside"):
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
        helper.make_node("RandomUniform", [], ["random"], shape=[1], seed=1.0),
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


def test_occasional_slowness_of_a_real_model_is_in_its_percentiles(tmp_path, monkeypatch):
    monkeypatch.setattr(timer.ThreadUsage, "preempted_share", lambda *_: 0.0)  # other processes may run
    settings = {"seconds": 20.0, "max_pairs": 12, "replicas": 1, "fixed": True, "quiet_seconds": 0}
    path = now_and_then(tmp_path)
    found = worker.latency({"candidate": {"path": path}, "metrics": [], "settings": settings})["metrics"]
    assert found["latency_p99"]["value"] > 2 * found["latency_p50"]["value"]
    assert found["latency_mean"]["value"] > 1.1 * found["latency_p50"]["value"]


def test_throughput_at_concurrency_and_batch_sizes(files):
    table = [{"batch_size": 4, "concurrency": 1}]
    found = ask("latency", files, "other", ["throughput"], **QUICK, concurrency=2, throughput=table)
    rows = {(r["batch_size"], r["concurrency"]): r for r in found["details"]["throughput"]}
    assert set(rows) == {(1, 2), (4, 1)}
    assert found["metrics"]["throughput"] == rows[1, 2]["candidate"]
    assert rows[4, 1]["candidate"]["value"] > 0


@pytest.mark.parametrize(
    ("function", "metrics", "settings", "words"),
    [
        ("task", ["psnr"], {}, "psnr: predictions of shape"),
        ("task", ["accuracy"], {"task_output": "none"}, "no output 'none'"),
        ("fidelity", ["cosine"], {"state": {"none": "x"}}, "state 'none'"),
    ],
)
def test_data_and_settings_that_do_not_fit_are_the_users_mistake(files, function, metrics, settings, words):
    with pytest.raises(Unmeasurable, match=words) as caught:
        ask(function, files, "source", metrics, **settings)
    assert judge(caught.value)[0] is Outcome.REFUSED
