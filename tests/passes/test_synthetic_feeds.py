"""Synthetic inputs."""

from __future__ import annotations

from pathlib import Path

import builders
import numpy as np
import pytest
from micro_models import MODELS, made, normal

from autoopt.model import io
from autoopt.passes.verification.equivalence import Reference, run_once
from autoopt.passes.verification.synthetic_feeds import cast_feeds, synthetic_feeds, unusual_feeds


@pytest.mark.parametrize("name", [name for name in MODELS if name != "double_names"])
def test_feeds_run_and_are_the_same_every_time(name: str, tmp_path: Path) -> None:
    model = MODELS[name]()
    first, again = next(synthetic_feeds(model)), next(synthetic_feeds(model))
    for key, array in first.items():
        np.testing.assert_array_equal(array, again[key])
    run_once(io.save(model, tmp_path), first)


def test_indices_stay_within_their_table() -> None:
    ids = next(synthetic_feeds(MODELS["int64_ids"]()))["ids"]
    assert ids.min() >= 0
    assert 2 < ids.max() < 50


def test_lengths_are_those_of_the_input_that_they_belong_to() -> None:
    model = made("g (float[N, M] sound, int64[N] sound_lens) => (float[N, M] y) { y = Relu (sound) }")
    for feed in synthetic_feeds(model):
        assert (feed["sound_lens"] == feed["sound"].shape[1]).all()


def test_kinds_that_the_user_gives_come_before_names() -> None:
    model = made("g (float[N, M] sound, int64[N] count) => (float[N, M] y) { y = Relu (sound) }")
    for feed in synthetic_feeds(model, roles={"count": "length"}):
        assert (feed["count"] == feed["sound"].shape[1]).all()


def test_sounds_are_longer_than_the_window_of_a_spectrum() -> None:
    """onnxruntime divides by zero in some spectra of shorter ones, which ends the process."""
    model = made("g (float[N, M] waveform, float[N, K] other) => (float[N, M] y) { y = Relu (waveform) }")
    for feed in synthetic_feeds(model):
        assert feed["waveform"].shape[1] > 400
        assert feed["other"].shape[1] <= 224


def test_open_dimensions_use_the_sizes_of_the_narrower_model() -> None:
    model, narrow = MODELS["mlp"](), MODELS["mlp"]()
    narrow.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 7
    assert next(synthetic_feeds(model, narrow))["x"].shape == (7, 64)


def test_dimensions_are_tried_until_the_model_runs(tmp_path: Path) -> None:
    model = made("g (float[N, 1, H, W] x) => (float[N, 1, P, Q] y) { y = Conv (x, w) }", w=normal(1, 1, 40, 40))
    reference = Reference(io.save(model, tmp_path), model)
    reference.run()
    assert reference.feeds is not None
    assert reference.feeds["x"].shape == (1, 1, 64, 64)


def test_images_have_the_channels_of_the_convolution_that_reads_them() -> None:
    model = made("g (float[N, C, H, W] x) => (float[N, P, Q, R] y) { y = Conv (x, w) }", w=normal(4, 3, 3, 3))
    assert {feed["x"].shape[1] for feed in synthetic_feeds(model)} == {3}


def test_feeds_are_cast_to_another_signature() -> None:
    model = made("g (int32[2] x) => (int32[2] y) { y = Identity (x) }")
    cast = cast_feeds({"x": np.array([1, 2], np.int64)}, model)
    assert cast is not None
    assert cast["x"].dtype == np.int32
    assert cast_feeds({"x": np.zeros((3, 3), np.int64)}, model) is None
    assert cast_feeds({"z": np.zeros(2, np.int64)}, model) is None


def test_a_decoder_gets_tokens_and_a_cache_that_belong_together(tmp_path: Path) -> None:
    feeds = next(synthetic_feeds(builders.decoder()))
    assert feeds["past_key_values.0.key"].shape == (2, 2, 8, 4)
    assert feeds["attention_mask"].tolist() == [[1] * 16, [0] * 4 + [1] * 12]
    assert feeds["position_ids"].tolist() == [list(range(8, 16))] * 2
    assert run_once(io.save(builders.decoder(), tmp_path / "decoder"), feeds)


@pytest.mark.parametrize("others", [{}, {"x": np.ones((2, 3), np.float32)}])
def test_both_values_of_a_switch_are_tried(others: dict[str, np.ndarray]) -> None:
    feeds = {**others, "use_cache_branch": np.array([True]), "mask": np.array([True, False])}
    unusual = unusual_feeds(feeds)
    assert {bool(each["use_cache_branch"][0]) for each in [feeds, *unusual]} == {True, False}
    assert all(each["mask"].tolist() == [True, False] for each in unusual)
