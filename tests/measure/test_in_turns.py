"""Models measured in turns, each in a process of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import builders
import numpy as np
import pytest
from fake_machine import Machine

from autoopt.errors import InputError
from autoopt.measure.intervals.pooling import Observation
from autoopt.measure.latency import in_turns
from autoopt.measure.latency.in_turns import OPEN, TIME, RemoteSubject, Round, measure_round, pooled_ratios
from autoopt.measure.latency.subjects import Subject
from autoopt.measure.request import MeasureRequest
from autoopt.measure.settings import MeasurementSettings
from autoopt.model import io
from autoopt.model.model_file import ModelFile


@pytest.fixture(autouse=True)
def one_process(monkeypatch: pytest.MonkeyPatch) -> list[Subject]:
    """Play the worker of one model in this process."""
    opened: list[Subject] = []
    monkeypatch.setattr(in_turns, "_opened", opened)
    return opened


def call(function: str, payload: Any) -> Any:
    """Call a function of the worker as a pool does: all that crosses is JSON."""
    name = function.rpartition(":")[2]
    return json.loads(json.dumps(getattr(in_turns, name)(json.loads(json.dumps(payload)))))


@pytest.fixture
def remote(tmp_path: Path) -> RemoteSubject:
    request = MeasureRequest(ModelFile(str(io.save(builders.mlp(), tmp_path))))
    return RemoteSubject(call, request)


def test_the_functions_of_the_worker_have_names_that_a_pool_finds() -> None:
    for function in (OPEN, TIME):
        module, _, name = function.partition(":")
        assert (module, callable(getattr(in_turns, name))) == (in_turns.__name__, True)


def test_sessions_open_and_are_timed_in_the_other_process(remote: RemoteSubject, one_process: list[Subject]) -> None:
    for number in range(2):
        replica = remote.add_replica(1e6)
        own = one_process[0].replicas[number]
        assert (replica.cold_start, replica.first_inference) == (own.cold_start, own.first_inference)
        assert replica.warm == own.warm
    assert len(one_process) == 1
    block = remote.time_block(1)
    assert len(block.wall) == len(block.on_core) > 0
    assert (block.wall > 0).all()
    assert [len(r.blocks) for r in remote.replicas] == [0, 0]


@pytest.mark.parametrize("has_core_times", [True, False])
def test_a_block_crosses_as_it_was_timed(
    has_core_times: bool, remote: RemoteSubject, one_process: list[Subject], monkeypatch: pytest.MonkeyPatch
) -> None:
    remote.add_replica(1e6)
    block = one_process[0].time_block(0)
    if not has_core_times:
        block = type(block)(block.wall, block.wall, block.preempted, block.switches, block.helper_switches, True)
    monkeypatch.setattr(one_process[0], "time_block", lambda index: block)
    crossed = remote.time_block(0)
    assert crossed.has_core_times == block.has_core_times
    np.testing.assert_array_equal(crossed.wall, block.wall)
    np.testing.assert_array_equal(crossed.on_core, block.on_core)
    for name in ("preempted", "switches", "helper_switches", "waited"):
        assert getattr(crossed, name) == getattr(block, name)


def test_data_that_cannot_be_read_are_an_error_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "data.npz").write_bytes(b"no archive")
    document = {
        "candidate": {"path": str(io.save(builders.mlp(), tmp_path))},
        "data": str(tmp_path / "data.npz"),
    }
    remote = RemoteSubject(call, MeasureRequest.from_json(document))
    with pytest.raises(InputError):
        remote.add_replica(1e6)


def test_a_round_compares_each_model_with_the_reference(machine: Machine) -> None:
    settings = MeasurementSettings(seconds=1.0, fixed=True, quiet_seconds=0)
    others = {"half": Subject(machine.model(500)), "twice": Subject(machine.model(2000))}
    round_ = measure_round(Subject(machine.model(1000)), others, settings, 3)
    assert not round_.disturbed
    assert {seen.candidate: seen.measurement for seen in round_.observations} == {"half": "3", "twice": "3"}
    ratios = pooled_ratios([round_])
    assert ratios["half"].low <= 0.5 <= ratios["half"].high
    assert ratios["twice"].low <= 2.0 <= ratios["twice"].high


def test_more_rounds_narrow_the_ratios(machine: Machine) -> None:
    settings = MeasurementSettings(seconds=0.5, fixed=True, quiet_seconds=0)
    rounds: list[Round] = []
    for number in range(4):
        subject = Subject(machine.model(900))
        rounds.append(measure_round(Subject(machine.model(1000)), {"model": subject}, settings, number))
    one, four = pooled_ratios(rounds[:1])["model"], pooled_ratios(rounds)["model"]
    assert four.high - four.low < one.high - one.low
    assert all(isinstance(seen, Observation) for round_ in rounds for seen in round_.observations)
