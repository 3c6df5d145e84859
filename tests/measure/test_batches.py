"""Batches for latency and memory."""

from __future__ import annotations

import builders
import pytest
from measure_helpers import QUICK, bare, sigmoid

from autoopt.measure import inference, worker
from autoopt.measure.request import Unmeasurable
from autoopt.model import io


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
