"""Profiles of dynamic shapes: their checks, their requests, and the mean over them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import builders
import numpy as np
import pytest
from fake_machine import Machine, MakeSession
from hypothesis import given
from hypothesis import strategies as st
from measure_helpers import sigmoid

from autoopt.data import DataConfig
from autoopt.errors import InputError
from autoopt.measure import inference
from autoopt.measure.latency import meter
from autoopt.measure.latency.comparison import Comparison
from autoopt.measure.latency.meter import measure
from autoopt.measure.latency.prepare import OpenSessions, Profile, SharedRunners, read_profiles, request_for
from autoopt.measure.latency.reply import geometric_means
from autoopt.measure.latency.timer import Subject
from autoopt.measure.latency.timing import Measurement
from autoopt.measure.request import MeasureRequest
from autoopt.measure.settings import MeasurementSettings
from autoopt.metrics import Estimate
from autoopt.model import io
from autoopt.model.model_file import ModelFile
from autoopt.target import Target

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


@pytest.fixture
def request_(tmp_path: Path) -> MeasureRequest:
    source = ModelFile(str(io.save(builders.mlp(), tmp_path / "source")))
    return MeasureRequest(
        candidate=replace(source, session_options={"graph_optimization_level": "disable"}),
        source=source,
        settings=MeasurementSettings(replicas=2, target_width=0.1),
        brief=True,
        reuses_source=True,
    )


class Openings:
    """Makes subjects on a fake machine, and counts the sessions of each model."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.opened: list[ModelFile] = []

    def subject_of(self, model: ModelFile) -> Subject:
        make: MakeSession = self.machine.model(1000 if not model.session_options else 500)

        def make_counted(number: int) -> Callable[[], None]:
            self.opened.append(model)
            return make(number)

        return Subject(make_counted)

    def measure(self, sessions: OpenSessions, request: MeasureRequest) -> float:
        source_subject = sessions.reusing(request, self.subject_of)(request.source)
        comparison = Comparison(self.subject_of(request.candidate), source_subject)
        if request.is_source:
            comparison = Comparison(source_subject, None)
        Measurement([comparison], request.settings, request.brief).run()
        return comparison.estimate().value


def test_later_first_looks_open_sessions_of_the_candidate_only(machine: Machine, request_: MeasureRequest) -> None:
    openings, sessions = Openings(machine), OpenSessions()
    assert openings.measure(sessions, request_) == pytest.approx(0.5, rel=0.02)
    assert openings.opened.count(request_.source) == 2
    later = replace(request_, settings=replace(request_.settings, incumbent_ratio=0.5, source_ms=1.0))
    for _ in range(3):
        assert openings.measure(sessions, later) == pytest.approx(0.5, rel=0.02)
    assert openings.opened.count(request_.source) == 2
    assert openings.opened.count(request_.candidate) == 8


def test_the_first_measurement_of_the_source_leaves_its_sessions(machine: Machine, request_: MeasureRequest) -> None:
    openings, sessions = Openings(machine), OpenSessions()
    assert request_.source is not None
    openings.measure(sessions, replace(request_, candidate=request_.source))
    openings.measure(sessions, request_)
    assert openings.opened.count(request_.source) == 2


def test_measurements_that_decide_get_new_sessions(machine: Machine, request_: MeasureRequest) -> None:
    openings, sessions = Openings(machine), OpenSessions()
    for _ in range(2):
        openings.measure(sessions, replace(request_, reuses_source=False))
    assert openings.opened.count(request_.source) == 4


@pytest.mark.parametrize(
    "other",
    [
        {"target": Target(threads=2)},
        {"settings": MeasurementSettings(replicas=2, target_width=0.1, batch_size=4)},
        {"metrics": ("latency_p50", "cold_start")},
    ],
    ids=str,
)
def test_sessions_that_differ_are_not_reused(
    machine: Machine, request_: MeasureRequest, other: dict[str, object]
) -> None:
    openings, sessions = Openings(machine), OpenSessions()
    openings.measure(sessions, request_)
    openings.measure(sessions, replace(request_, **other))
    assert openings.opened.count(request_.source) == 4


@pytest.fixture
def request_of_two(tmp_path: Path) -> MeasureRequest:
    """A decoder beside its source, which has other weights."""
    candidate = str(io.save(builders.decoder(seed=1), tmp_path / "candidate"))
    source = str(io.save(builders.decoder(), tmp_path / "source"))
    settings = MeasurementSettings(seconds=0.1, quiet_seconds=0, replicas=1, new_tokens=3)
    metrics = ("latency_p50", "tokens_per_second")
    return MeasureRequest(ModelFile(candidate), ModelFile(source), metrics=metrics, settings=settings)


def test_a_model_with_the_same_options_is_opened_once(request_of_two: MeasureRequest) -> None:
    model = request_of_two.candidate
    runners = SharedRunners(request_of_two, shared=True)
    first = runners.open(model, 0)
    assert runners.open(model, 0) is first
    assert runners.open(model, 1) is not first
    assert runners.open(replace(model, session_options={"intra_op_num_threads": 1}), 0) is not first
    assert runners.replicas == 2
    runners.close()
    assert runners.replicas is None
    assert runners.open(model, 0) is not first


def test_a_prompt_and_its_steps_share_sessions(request_of_two: MeasureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[tuple[str, int]] = []
    make_session = inference.make_session

    def noted(
        path: str, options: dict[str, int], provider: str, threads: int, timed: bool = True, **more: str
    ) -> object:
        if timed:
            opened.append((path, options.get("intra_op_num_threads", threads)))
        return make_session(path, options, provider, threads, timed=timed, **more)

    monkeypatch.setattr(inference, "make_session", noted)
    reply = meter.measure(request_of_two)
    assert reply.ratios.keys() == {"latency_p50", "tokens_per_second"}
    assert len(opened) == len(set(opened))
