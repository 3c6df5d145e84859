"""The model card of a package."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autoopt.report.model_card import Card, model_card
from autoopt.results import RunResult

PROVIDER = "CPUExecutionProvider"


@pytest.fixture
def card(data: dict[str, Any]) -> Card:
    measured = {"items": 1000, "rounds": 4, "disturbed_rounds": 1, "threads": 2}
    constraints = [{"metric": "accuracy", "max_drop": 0.01}]
    result = RunResult.from_json({**data, "best": {**data["best"], "measured": measured}, "constraints": constraints})
    assert result.best is not None
    return Card(
        result=result,
        model=result.best,
        name="cnn",
        source="/models/cnn.onnx",
        source_digest="5" * 64,
        licence="MIT",
        steps=(("simplify", {}), ("static_quantization", {"per_channel": True})),
        provider=PROVIDER,
        environment={"cpu": {"model": "Some CPU", "cores": 8}, "os": "Linux", "python": "CPython 3.12"},
        runtime={"onnxruntime": "1.31.1", "numpy": "2.4.6"},
    )


def test_it_says_what_the_model_is_and_how_it_was_made(card: Card) -> None:
    text = model_card(card)
    assert text.startswith("# cnn, optimized by autoopt\n\nMade by `fold -> static`: 3.3x faster (3.2 to 3.4)")
    assert "| accuracy | 99.50 % | 99.50 % | on 1000 items |" in text
    assert "From `/models/cnn.onnx` (SHA-256 `5555" in text
    assert "licence: MIT." in text
    assert "1. `simplify`\n2. `static_quantization`: per_channel=true\n" in text


def test_it_says_where_it_was_measured_and_what_limits_it(card: Card) -> None:
    text = model_card(card)
    assert "- CPU: Some CPU, 8 cores" in text
    assert "- runtime: onnxruntime 1.31.1, numpy 2.4.6" in text
    assert f"- session: {PROVIDER}, 2 threads, batch size 1" in text
    assert "4 times; other programs or the host disturbed 1 of 4 measurements, which the ranges include" in text
    assert "- required: accuracy may get worse by at most 0.01" in text


def test_what_makes_the_result_doubtful_is_a_limit(card: Card) -> None:
    warning = "WARNING: accuracy is at chance"
    doubtful = replace(card, result=replace(card.result, notes=(warning, "a note"), warnings=(warning,)))
    assert "- WARNING: accuracy is at chance\n" in model_card(doubtful)
    assert "a note" not in model_card(doubtful)


def test_generated_and_missing_inputs_are_said(card: Card) -> None:
    generated = model_card(replace(card, generated_inputs=True, licence=""))
    assert "holds generated inputs" in generated
    assert "nothing here says how good the model is at its task" in generated
    assert "state no licence" in generated
    assert "name inputs with `--inputs FILE.npz`" in model_card(replace(card, has_inputs=False))


def test_the_source_itself_is_called_that(card: Card) -> None:
    text = model_card(replace(card, model=replace(card.model, chain="source"), steps=()))
    assert text.startswith("# cnn\n\nThe source model, unchanged")
    assert "autoopt replay" not in text


def test_a_narrower_contract_is_a_limit(card: Card) -> None:
    assert "narrowed_inputs" not in model_card(card)
    steps = (("specialize_inputs", {"values": {"sr": 16000}}),)
    assert "It accepts less than the source model" in model_card(replace(card, steps=steps))
