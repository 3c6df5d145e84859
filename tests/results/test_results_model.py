"""Models of a result."""

from __future__ import annotations

import json

from autoopt.json_codec import from_json
from autoopt.metrics import Estimate
from autoopt.results import SOURCE, Baseline, ModelResult


def test_a_model_is_read_back_as_it_was_written() -> None:
    model = ModelResult("a", "/m", {"x": [1, 2]}, "c", ("c",), {"c": {"y": True}}, {"size": 1.0}, flags=("busy",))
    assert from_json(ModelResult, json.loads(json.dumps(model.to_json()))) == model


def test_a_model_has_the_keys_that_users_know() -> None:
    assert list(ModelResult().to_json()) == [
        "artifact", "path", "session_options", "chain", "passes", "params", "metrics", "ratios", "point", "flags",
        "intervals", "measured", "intermediate", "steps", "trial",
    ]  # fmt: skip


def test_the_candidate_is_the_artifact_with_its_session_options() -> None:
    assert ModelResult("a").candidate.key != ModelResult("a", session_options={"x": 1}).candidate.key


def test_the_baseline_is_a_model_with_ratios_of_exactly_one() -> None:
    model = Baseline("s", "/m", {"latency_p50": 2.0, "cosine": 0.0}).model
    assert (model.chain, model.is_source) == (SOURCE, True)
    assert model.ratios == {"latency_p50": Estimate.exact(1.0)}  # none of a metric that is zero
