"""The session of a model set: what reaches each part, and generation with and without a cache."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import model_sets
import numpy as np
import onnxruntime
import pytest

from autoopt.model.model_file import content_digest, size_of
from autoopt.model.model_set import MODEL_SET, ModelSet, ModelSetSession
from autoopt.model.session import make_session, make_set_session

CONTINUATION = np.array([[7, 1, 8]])


def feed_of(text: np.ndarray, prompt: list[int]) -> dict[str, np.ndarray]:
    inputs = {"input_ids": text[None], "attention_mask": np.ones((1, len(text)), np.int64)}
    return {**inputs, "decoder_input_ids": np.array([prompt]), "generated_ids": CONTINUATION}


def scores_by_hand(paths: dict[str, str], feed: dict[str, np.ndarray]) -> np.ndarray:
    """The scores of all tokens, from one inference of the decoder for prompts over all of them."""
    encoder, decoder = (onnxruntime.InferenceSession(paths[name]) for name in ("encoder", "decoder"))
    encoded = encoder.run(None, {name: feed[name] for name in ("input_ids", "attention_mask")})[0]
    tokens = np.concatenate([feed["decoder_input_ids"], feed["generated_ids"]], axis=1)
    places = np.arange(tokens.shape[1])[None]
    inputs = {"input_ids": tokens, "position_ids": places, "attention_mask": np.ones_like(tokens)}
    return np.asarray(decoder.run(["logits"], {**inputs, "encoder_hidden_states": encoded})[0])


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("prompt", [[3], [3, 5, 9]])
def test_generation_with_a_cache_equals_the_whole_text(tmp_path: Path, merged: bool, prompt: list[int]) -> None:
    session = make_session(model_sets.write_description(tmp_path, model_sets.write_set(tmp_path, merged=merged)))
    feed = feed_of(model_sets.TEXTS[0], prompt)
    expected = scores_by_hand(model_sets.write_set(tmp_path / "pair"), feed)
    assert [output.name for output in session.get_outputs()] == ["logits"]
    np.testing.assert_allclose(session.run(None, feed)[0], expected, rtol=1e-3, atol=1e-4)


def test_without_a_cache_the_decoder_runs_over_all_tokens_again(tmp_path: Path) -> None:
    paths = model_sets.write_set(tmp_path)
    path = model_sets.write_description(tmp_path, {name: paths[name] for name in ("encoder", "decoder")})
    seen: list[int] = []

    def observe(part: str, feed: dict[str, np.ndarray]) -> None:
        if part == "decoder":
            seen.append(feed["input_ids"].shape[1])

    feed = feed_of(model_sets.TEXTS[0], [3, 5])
    scores = make_set_session(path, make_session, observe=observe).run(None, feed)[0]
    assert seen == [2, 3, 4, 5]
    np.testing.assert_allclose(scores, scores_by_hand(paths, feed), rtol=1e-3, atol=1e-4)


def test_greedy_tokens_are_those_of_the_highest_scores(tmp_path: Path) -> None:
    session = make_set_session(model_sets.write_description(tmp_path, model_sets.write_set(tmp_path)), make_session)
    feed = feed_of(model_sets.TEXTS[0], [3])
    tokens = session.generate(feed, 4)
    scores = session.run(None, {**feed, "generated_ids": tokens[:, :3]})[0]
    assert tokens.tolist() == scores.argmax(-1).tolist()


def test_a_part_in_another_precision_takes_what_its_neighbour_gives(tmp_path: Path) -> None:
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    paths = model_sets.write_set(tmp_path)
    feed = feed_of(model_sets.TEXTS[0], [3])
    path = model_sets.write_description(tmp_path, paths)
    expected = make_session(path).run(None, feed)[0]
    onnx.save(convert_float_to_float16(onnx.load(paths["encoder"])), paths["encoder"])
    np.testing.assert_allclose(make_session(path).run(None, feed)[0], expected, atol=0.05)


def test_size_and_identity_cover_all_parts(tmp_path: Path) -> None:
    paths = model_sets.write_set(tmp_path)
    path = str(model_sets.write_description(tmp_path, paths))
    assert sum(size_of(path).values()) == sum(Path(part).stat().st_size for part in paths.values())
    before = content_digest(path)
    description = ModelSet.read(Path(path))
    other = replace(description, parts={**description.parts, "encoder": description.parts["decoder"]})
    (tmp_path / "other").mkdir()
    Path(tmp_path, "other", MODEL_SET).write_text(json.dumps(other.to_json()))
    assert content_digest(str(tmp_path / "other" / MODEL_SET)) != before


def test_options_of_all_parts_add_to_those_of_one(tmp_path: Path) -> None:
    path = model_sets.write_description(tmp_path, model_sets.write_set(tmp_path, merged=True))
    description = ModelSet.read(path)
    parts = {
        name: replace(part, session_options={"intra_op_num_threads": 2}) for name, part in description.parts.items()
    }
    path.write_text(json.dumps(replace(description, parts=parts).to_json()))
    opened: list[int] = []

    def open_part(file: Path, options: object) -> onnxruntime.InferenceSession:
        session = make_session(file, options)  # type: ignore[arg-type]  # JSON
        opened.append(session.get_session_options().intra_op_num_threads)
        return session

    ModelSetSession(path, open_part)
    assert opened == [2, 2]
