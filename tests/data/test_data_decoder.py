from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import builders
import numpy as np
import onnx
import onnxruntime as ort
import pytest

from autoopt.data.decoder import Decoder, align, decoder_of
from autoopt.data.fit import InputSpec, fit, specs_of
from autoopt.data.sources import synthetic
from autoopt.errors import InputError
from autoopt.model.roles import input_roles

SHAPES = {
    "input_ids": ("batch", "seq"),
    "attention_mask": ("batch", "total"),
    "position_ids": ("batch", "seq"),
    "past_key_values.0.key": ("batch", 2, "past", 4),
}


def decoder_with(shapes: Mapping[str, tuple[int | str, ...]]) -> Decoder | None:
    """The decoder whose inputs have these shapes."""
    return decoder_of(input_roles([InputSpec(name, "tensor(float)", shape) for name, shape in shapes.items()]))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("decoder") / "decoder.onnx"
    onnx.save(builders.decoder(), file)
    return file


@pytest.fixture(scope="module")
def session(path: Path) -> ort.InferenceSession:
    return ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def test_a_decoder_is_known_by_tokens_and_cache() -> None:
    decoder = decoder_with(SHAPES)
    assert decoder.derived == ("attention_mask", "position_ids")
    assert dict(decoder.cache) == {"past_key_values.0.key": 2}


@pytest.mark.parametrize(
    "shapes",
    [
        {"input_ids": ("batch", "seq"), "attention_mask": ("batch", "seq")},
        {"x": ("batch", "seq"), "past": ("batch", 2, "past", 4)},
        {"input_ids": ("batch", "seq"), "past_state": ("batch", 8)},
        {"input_ids": ("batch", "seq"), "past_key_values.0.encoder.key": ("batch", 2, "encoder", 4)},
        {"input_ids": ("batch", "seq"), "past_key_values.0.key": ("batch", 2, 32, 4)},
    ],
)
def test_other_models_are_no_decoders_with_a_cache(shapes: dict[str, tuple[int | str, ...]]) -> None:
    assert decoder_with(shapes) is None


def test_keys_and_values_in_one_input_have_the_sequence_on_the_axis_with_its_name() -> None:
    decoder = decoder_with({"input_ids": ("b", "s"), "past_0": (2, "b", 4, "past_seq_len", 8)})
    assert decoder.cache == {"past_0": 3}
    assert decoder.outputs(["logits", "present_0"]) == {"present_0": "past_0"}


def test_outputs_without_a_counterpart_give_no_pairs() -> None:
    decoder = decoder_with(SHAPES)
    assert decoder.outputs(["present.0.key", "logits"]) == {"present.0.key": "past_key_values.0.key"}
    assert decoder.outputs(["logits"]) == {}


def test_tokens_alone_run_as_a_prompt(session: ort.InferenceSession) -> None:
    tokens = np.array([[3, 1, 4], [1, 5, 9]])
    feed = fit({"ids": tokens}, specs_of(session))
    assert feed["past_key_values.0.key"].shape == (2, 2, 0, 4)
    assert feed["attention_mask"].tolist() == [[1, 1, 1], [1, 1, 1]]
    assert feed["position_ids"].tolist() == [[0, 1, 2], [0, 1, 2]]
    assert session.run(["logits"], feed)[0].shape == (2, 3, 16)


def test_a_step_with_the_cache_continues_the_prompt(session: ort.InferenceSession) -> None:
    specs = specs_of(session)
    whole = session.run(["logits"], fit({"input_ids": np.array([[3, 1, 4, 1]])}, specs))[0]
    _, key, value = session.run(None, fit({"input_ids": np.array([[3, 1, 4]])}, specs))
    step = {"input_ids": np.array([[1]]), "past_key_values.0.key": key, "past_key_values.0.value": value}
    feed = fit(step, specs)
    assert feed["position_ids"].tolist() == [[3]]
    assert feed["attention_mask"].shape == (1, 4)
    np.testing.assert_allclose(session.run(["logits"], feed)[0][:, 0], whole[:, 3], rtol=1e-4)


def test_what_the_data_give_stays(session: ort.InferenceSession) -> None:
    mask = np.array([[0, 1, 1]])
    feed = fit({"input_ids": np.array([[3, 1, 4]]), "attention_mask": mask}, specs_of(session))
    assert feed["attention_mask"].tolist() == mask.tolist()


def test_data_without_tokens_are_refused(session: ort.InferenceSession) -> None:
    columns = {"attention_mask": np.ones((1, 3), int), "position_ids": np.ones((1, 3), int)}
    with pytest.raises(InputError, match="no data for the model's input 'input_ids'"):
        fit(columns, specs_of(session))


@pytest.mark.parametrize(
    ("arguments", "past"), [({}, 0), ({"open_size": 8}, 8), ({"dimensions": {"past_sequence_length": 5}}, 5)]
)
def test_generated_inputs_are_a_prompt_that_runs(
    path: Path, session: ort.InferenceSession, arguments: dict[str, object], past: int
) -> None:
    data = synthetic.load(str(path), items=2, **arguments)  # type: ignore[arg-type]  # arguments of several types
    feed = {name: arrays[0] for name, arrays in data.uneven.items()}
    count = feed["input_ids"].shape[1]
    assert feed["attention_mask"].tolist() == [[1] * (past + count)]
    assert feed["position_ids"][0].tolist() == list(range(past, past + count))
    assert feed["past_key_values.0.key"].shape[2] == past
    assert np.isfinite(session.run(["logits"], feed)[0]).all()


def test_aligned_feeds_fit_and_mask_the_padding_of_all_but_the_first_sequence() -> None:
    decoder = decoder_with(SHAPES)
    assert decoder is not None
    feed = {
        "input_ids": np.ones((2, 3), np.int64),
        "attention_mask": np.zeros((2, 4), np.int32),
        "past_key_values.0.key": np.ones((2, 2, 4, 4), np.float32),
    }
    aligned = align(feed, decoder)
    assert aligned["attention_mask"].tolist() == [[1] * 7, [0, 0, 1, 1, 1, 1, 1]]
    assert aligned["attention_mask"].dtype == np.int32
