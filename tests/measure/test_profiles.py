"""Profiles of dynamic shapes: their checks, their requests, and the mean over them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from measure_helpers import sigmoid

from autoopt.data import DataConfig
from autoopt.errors import InputError
from autoopt.measure.latency.meter import measure
from autoopt.measure.latency.prepare import Profile, read_profiles, request_for
from autoopt.measure.latency.reply import geometric_means
from autoopt.measure.request import MeasureRequest
from autoopt.measure.settings import MeasurementSettings
from autoopt.metrics import Estimate
from autoopt.model.model_file import ModelFile

VALUES = st.floats(0.01, 100)


def request_of(folder, *profiles) -> MeasureRequest:
    settings = MeasurementSettings(profiles=profiles, dimensions={"batch": 2})
    return MeasureRequest(ModelFile(sigmoid(folder)), settings=settings, data=DataConfig.parse("data.npz"))


def test_a_profile_without_a_name_has_its_number(tmp_path) -> None:
    profiles = read_profiles(request_of(tmp_path, {"name": "long"}, {"weight": 3}))
    assert [(profile.name, profile.weight) for profile in profiles] == [("long", 1.0), ("1", 3.0)]


@pytest.mark.parametrize(
    ("profile", "message"),
    [
        ({"dimension": {"n": 2}}, r"profiles\[0\]: no setting 'dimension'; did you mean 'dimensions'"),
        ({"dimensions": {"width": 2}}, r"profiles\[0\].dimensions: no symbolic dimension 'width'; there are: batch"),
        ({"dimensions": [2]}, r"profiles\[0\].dimensions: must be a mapping"),
        ({"dimensions": {"length": "long"}}, "dimensions.length: expected int"),
        ({"shapes": {"y": [2, 8]}}, r"profiles\[0\].shapes: no input 'y'; there are: x"),
        ({"ranges": {"z": [0, 1]}}, r"profiles\[0\].ranges: no input 'z'"),
        ({"weight": 0}, "weight: must be above 0, not 0"),
        ({"weight": "much"}, "weight: expected a number"),
    ],
)
def test_a_profile_that_does_not_fit_the_model_is_refused(tmp_path, profile, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_profiles(request_of(tmp_path, profile))


def test_two_profiles_of_one_name_are_refused(tmp_path) -> None:
    with pytest.raises(InputError, match="two profiles have the name '1'"):
        read_profiles(request_of(tmp_path, {"name": "1"}, {}))


def test_the_request_for_a_profile_has_synthetic_inputs_of_its_sizes(tmp_path) -> None:
    request = request_of(tmp_path, {"shapes": {"x": [1, 5]}})
    single = request_for(request, *read_profiles(request))
    assert single.data is None
    assert single.settings.profiles == ()
    assert single.settings.shapes == {"x": [1, 5]}
    assert single.settings.dimensions == {"batch": 2}
    overriding = request_for(request, Profile(dimensions={"batch": 7}))
    assert overriding.settings.dimensions == {"batch": 7}


def around(value: float) -> dict[str, Estimate]:
    return {"latency_p50": Estimate(value, value / 2, value * 2)}


@given(VALUES, VALUES)
def test_the_mean_is_geometric(one: float, two: float) -> None:
    mean = geometric_means([around(one), around(two)], np.array([0.5, 0.5]))["latency_p50"]
    assert mean.value == pytest.approx((one * two) ** 0.5)
    assert mean.low < mean.value < mean.high
    assert mean.high / mean.value < 2


@given(VALUES, VALUES, st.floats(0.01, 0.99))
def test_weights_move_the_mean(one: float, two: float, weight: float) -> None:
    mean = geometric_means([around(one), around(two)], np.array([weight, 1 - weight]))["latency_p50"]
    assert mean.value == pytest.approx(one**weight * two ** (1 - weight))


def test_a_metric_that_one_profile_lacks_has_no_mean() -> None:
    extra = {**around(1.0), "throughput": Estimate.exact(3.0)}
    assert geometric_means([extra, around(1.0)], np.array([0.5, 0.5])).keys() == {"latency_p50"}


def test_rivals_are_averaged_over_the_profiles_like_the_candidate(tmp_path) -> None:
    request = request_of(tmp_path, {"dimensions": {"length": 8}}, {"dimensions": {"length": 4096}, "weight": 3})
    settings = replace(request.settings, seconds=0.4, quiet_seconds=0, replicas=2)
    rivals = [ModelFile(request.candidate.path, {"graph_optimization_level": level}) for level in ("basic", "disable")]
    request = replace(
        request, settings=settings, source=request.candidate, candidate=rivals[0], rivals=tuple(rivals[1:])
    )
    reply = measure(replace(request, metrics=("latency_p50",)))
    assert len(reply.rivals) == 1
    for single in (reply, *reply.rivals):
        parts = single.details["profiles"].values()
        values = [part["ratios"]["latency_p50"]["value"] for part in parts]
        assert single.ratios["latency_p50"].value == pytest.approx(values[0] ** 0.25 * values[1] ** 0.75)
        shared = [part["shared_variance"] for part in parts]
        assert single.details["shared_variance"] == pytest.approx(shared[0] / 16 + shared[1] * 9 / 16)
