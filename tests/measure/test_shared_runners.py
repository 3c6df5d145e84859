"""Models that are opened once for several measurements."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import builders
import pytest

from autoopt.measure.inference import runner
from autoopt.measure.latency import meter
from autoopt.measure.latency.shared_runners import SharedRunners
from autoopt.measure.request import MeasureRequest
from autoopt.measure.settings import MeasurementSettings
from autoopt.model import io
from autoopt.model.model_file import ModelFile


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


def test_models_that_are_not_shared_are_not_kept(request_of_two: MeasureRequest) -> None:
    runners = SharedRunners(request_of_two)
    assert runners.open(request_of_two.candidate, 0) is not runners.open(request_of_two.candidate, 0)
    assert runners.replicas is None


def test_a_prompt_and_its_steps_share_sessions(request_of_two: MeasureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[tuple[str, int]] = []
    make_session = runner.make_session

    def noted(
        path: str, options: dict[str, int], provider: str, threads: int, timed: bool = True, **more: str
    ) -> object:
        if timed:
            opened.append((path, options.get("intra_op_num_threads", threads)))
        return make_session(path, options, provider, threads, timed=timed, **more)

    monkeypatch.setattr(runner, "make_session", noted)
    reply = meter.measure(request_of_two)
    assert reply.ratios.keys() == {"latency_p50", "tokens_per_second"}
    assert len(opened) == len(set(opened))
