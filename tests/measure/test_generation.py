"""Prompts and the steps that follow them, with the cache."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import builders
import model_sets
import numpy as np
import pytest

from autoopt.data import DataConfig
from autoopt.errors import InputError
from autoopt.measure.inference import ModelRunner, with_batch_size
from autoopt.measure.latency import meter
from autoopt.measure.latency.busy import Load
from autoopt.measure.latency.generation import steps_after
from autoopt.measure.request import MeasureRequest
from autoopt.measure.settings import MeasurementSettings
from autoopt.measure.two_ratios import TwoRatios
from autoopt.metrics import Estimate
from autoopt.model import io
from autoopt.model.model_file import ModelFile

GENERATION = ("time_to_first_token", "tokens_per_second")
TOKENS = np.array([[3, 1, 4], [1, 5, 9]])


@pytest.fixture
def request_of_two(tmp_path: Path) -> MeasureRequest:
    """A decoder beside its source, which has other weights."""
    candidate = str(io.save(builders.decoder(seed=1), tmp_path / "candidate"))
    source = str(io.save(builders.decoder(), tmp_path / "source"))
    settings = MeasurementSettings(seconds=0.2, quiet_seconds=0, replicas=2, new_tokens=3)
    return MeasureRequest(ModelFile(candidate), ModelFile(source), metrics=GENERATION, settings=settings)


def test_steps_with_the_cache_equal_the_whole_text(request_of_two: MeasureRequest) -> None:
    runner = ModelRunner.open(request_of_two.candidate, request_of_two)
    steps = steps_after(runner, runner.feed({"input_ids": TOKENS}), 4)
    text = np.concatenate([TOKENS, TOKENS, TOKENS[:, :1]], axis=1)
    whole = runner.session.run(["logits"], runner.feed({"input_ids": text}))[0]
    for _ in range(2):  # after the last step the prompt's cache is back
        for number in range(4):
            logits = steps()[0]  # type: ignore[index]  # the outputs of the session
            np.testing.assert_allclose(logits[:, 0], whole[:, 3 + number], rtol=1e-4, atol=1e-5)


def test_padding_before_a_prompt_stays_masked(request_of_two: MeasureRequest) -> None:
    runner = ModelRunner.open(request_of_two.candidate, request_of_two)
    mask, places = np.array([[0, 1, 1], [1, 1, 1]]), np.array([[0, 0, 1], [0, 1, 2]])
    prompt = runner.feed({"input_ids": TOKENS, "attention_mask": mask, "position_ids": places})
    step = steps_after(runner, prompt, 2).inputs[1]
    assert step["attention_mask"].tolist() == [[0, 1, 1, 1, 1], [1, 1, 1, 1, 1]]
    assert step["position_ids"].tolist() == [[3], [4]]


def test_a_prompt_and_its_steps_are_measured_beside_the_source(request_of_two: MeasureRequest) -> None:
    reply = meter.measure(replace(request_of_two, metrics=("latency_p50", *GENERATION)))
    assert reply.metrics["time_to_first_token"] == reply.metrics["latency_p50"]
    assert reply.ratios["time_to_first_token"] == reply.ratios["latency_p50"]
    rate, source, ratio = (
        estimates["tokens_per_second"] for estimates in (reply.metrics, reply.source_metrics, reply.ratios)
    )
    assert 0 < rate.low <= rate.value <= rate.high
    assert 0 < ratio.low < ratio.high
    assert 0 < source.low <= source.high
    assert reply.details["tokens_per_second"]["pairs"] > 0  # type: ignore[index,call-overload]  # JSON


def test_on_several_threads_of_a_busy_machine_one_thread_counts_too(
    request_of_two: MeasureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    several = ModelFile(request_of_two.candidate.path, {"intra_op_num_threads": 2})
    request = with_batch_size(replace(request_of_two, candidate=several), 1)
    monkeypatch.setattr(Load, "between", lambda before, after: Load(cores=2.0))
    reply = meter.measure(replace(request, settings=replace(request.settings, precedence=False)))
    both = TwoRatios.of(reply.details["tokens_per_second"])  # type: ignore[arg-type]  # JSON
    assert reply.ratios["tokens_per_second"].value == pytest.approx(both.combined().value, rel=0.01)


def test_a_model_set_is_measured_by_its_prompt_and_its_tokens(request_of_two: MeasureRequest, tmp_path: Path) -> None:
    description = model_sets.write_description(tmp_path, model_sets.write_set(tmp_path, merged=True))
    texts, steps = model_sets.TEXTS, np.arange(32)[None]  # far more than a prompt takes
    more = {"decoder_input_ids": texts[:, :1], "generated_ids": np.repeat(steps, len(texts), 0)}
    data = DataConfig(path=str(model_sets.write_texts(tmp_path, **more)))
    candidate = ModelFile(str(description), {"enable_mem_pattern": False})
    models = {"candidate": candidate, "source": ModelFile(str(description))}
    reply = meter.measure(replace(request_of_two, **models, metrics=("latency_p50", *GENERATION), data=data))
    assert reply.metrics["time_to_first_token"].value < reply.metrics["latency_p50"].value
    tokens_ms = 1e3 / reply.metrics["tokens_per_second"].value
    assert tokens_ms < reply.metrics["latency_p50"].value
    assert set(reply.ratios) == {"latency_p50", *GENERATION}


def test_the_source_itself_has_ratios_of_one(request_of_two: MeasureRequest) -> None:
    assert request_of_two.source is not None
    reply = meter.measure(replace(request_of_two, candidate=request_of_two.source))
    assert [reply.ratios[name] for name in GENERATION] == [Estimate.exact(1.0)] * 2


def test_a_model_without_a_cache_is_refused(request_of_two: MeasureRequest, tmp_path: Path) -> None:
    other = ModelFile(str(io.save(builders.mlp(), tmp_path / "mlp")))
    with pytest.raises(InputError, match="need a decoder with a cache"):
        meter.measure(replace(request_of_two, candidate=other, source=None))


def test_items_with_a_filled_cache_are_no_prompts(request_of_two: MeasureRequest) -> None:
    settings = replace(request_of_two.settings, dimensions={"past_sequence_length": 5})
    with pytest.raises(InputError, match="fill the cache with 5 tokens"):
        meter.measure(replace(request_of_two, settings=settings, source=None))
