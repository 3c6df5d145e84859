"""How the models of a set connect, and what is wrong if they do not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoopt.engine.parts.connections import connect
from autoopt.model.inspection import Inspection, ValueSpec
from autoopt.spec.source import FieldError


def model(inputs: str, outputs: str) -> Inspection:
    """A model with these names; caches have a shape, tokens two dimensions, all else one."""
    return Inspection(tuple(map(_value, inputs.split())), tuple(map(_value, outputs.split())), {"": 17}, 8, {}, 0, 0)


def _value(name: str) -> ValueSpec:
    if name.startswith(("past", "present")):
        return ValueSpec(name, "float32", ("batch", 2, "past", 4))
    if name.endswith(("input_ids", "attention_mask")):
        return ValueSpec(name, "int64", ("batch", "sequence"))
    return ValueSpec(name, "float32", ("batch",))


ENCODER = model("input_ids attention_mask", "last_hidden_state")
CACHE = "past_key_values.0.decoder.key past_key_values.0.encoder.key"
PRESENT = "present.0.decoder.key present.0.encoder.key"
FIRST = model("input_ids encoder_hidden_states encoder_attention_mask", f"logits {PRESENT}")
FURTHER = model(f"input_ids encoder_attention_mask {CACHE}", "logits present.0.decoder.key")


def connected(**parts: Inspection):
    return connect(dict.fromkeys(parts, ""), parts, {})


def test_an_encoder_feeds_a_decoder_by_the_names_of_exporters() -> None:
    found = connected(decoder=FIRST, decoder_with_past=FURTHER, encoder=ENCODER)
    assert list(found.parts) == ["encoder", "decoder", "decoder_with_past"]
    assert found.connections["decoder.encoder_hidden_states"] == "encoder.last_hidden_state"
    assert found.connections["decoder_with_past.encoder_attention_mask"] == "attention_mask"
    assert found.inputs == {"input_ids": "encoder.input_ids", "attention_mask": "encoder.attention_mask"}
    assert (found.generation.first, found.generation.further) == ("decoder", "decoder_with_past")
    assert found.generation.prompt == "decoder_input_ids"
    assert found.generation.fixed == ("past_key_values.0.encoder.key",)
    assert found.generation.cache["past_key_values.0.decoder.key"] == "present.0.decoder.key"


def test_a_merged_decoder_takes_prompts_and_further_tokens() -> None:
    merged = model(f"input_ids encoder_hidden_states use_cache_branch {CACHE}", f"logits {PRESENT}")
    generation = connected(encoder=ENCODER, decoder=merged).generation
    assert (generation.first, generation.further, generation.branch) == ("decoder", "decoder", "use_cache_branch")


def test_two_decoders_without_an_encoder_take_the_prompt_as_their_own_tokens() -> None:
    first = model("input_ids attention_mask", "logits present.0.key")
    further = model("input_ids attention_mask past_key_values.0.key", "logits present.0.key")
    generation = connected(prompt=first, step=further).generation
    assert (generation.prompt, generation.mask) == ("input_ids", "attention_mask")


def test_other_models_connect_by_equal_names_or_by_what_the_user_says() -> None:
    front, back = model("image", "features"), model("features size", "scores")
    assert connected(back=back, front=front).connections["back.features"] == "front.features"
    back = model("x", "scores")
    given = {"back.x": "front.features"}
    found = connect({"front": "", "back": ""}, {"front": front, "back": back}, given)
    assert found.generation is None
    assert found.connections == {"front.image": "image", "back.x": "front.features"}


STEP = model("input_ids past_key_values.0.key", "logits present.0.key")
PAIR = {"a": model("x", "y"), "b": model("y", "w")}


@pytest.mark.parametrize(
    ("parts", "given", "reason", "remedy"),
    [
        ({"a": model("x", "y"), "b": model("z", "w")}, {}, "'a' takes nothing from the other models", ""),
        ({"prompt": model("input_ids", "logits present.1.key"), "step": STEP}, {}, "takes nothing from the other", ""),
        (PAIR, {"b.yy": "a.y"}, "no input 'b.yy'", "did you mean 'b.y'"),
        (PAIR, {"q.q": "a.y"}, "no input 'q.q'", "inputs: a.x, b.y"),
        (PAIR, {"b.y": "a.yy"}, "no output 'a.yy'", "did you mean 'a.y'"),
        ({"a": model("w", "y"), "b": model("y", "w")}, {}, "take values from each other", ""),
        ({**PAIR, "c": model("x", "y")}, {}, "a.y and c.y both give b.y", "choose one: connections: {b.y: a.y}"),
        ({**PAIR, "c": model("x", "y")}, {"b.y": "a.y"}, "'c' takes nothing", ""),
    ],
)
def test_what_does_not_connect_is_named(
    parts: dict[str, Inspection], given: dict[str, str], reason: str, remedy: str
) -> None:
    with pytest.raises(FieldError, match=reason) as error:
        connect(dict.fromkeys(parts, ""), parts, given)
    assert remedy in error.value.remedy


def test_the_users_connection_decides_between_several() -> None:
    parts = {"a": model("x", "y z"), "b": model("y", "w")}
    assert connect(dict.fromkeys(parts, ""), parts, {}).connections["b.y"] == "a.y"
    assert connect(dict.fromkeys(parts, ""), parts, {"b.y": "a.z"}).connections["b.y"] == "a.z"
    three = {**PAIR, "c": model("x", "y")}
    assert list(connect(dict.fromkeys(three, ""), three, {"b.y": "c.y", "c.x": "a.y"}).parts) == ["a", "c", "b"]


def test_a_decoder_without_a_cache_runs_again_over_all_tokens() -> None:
    plain = model("input_ids encoder_hidden_states", "logits")
    generation = connected(encoder=ENCODER, decoder=plain).generation
    assert (generation.first, generation.further, generation.cache) == ("decoder", "decoder", {})
    assert generation.own_inputs == {"input_ids"}


def test_inputs_of_the_set_are_listed_once_with_the_first_part_that_takes_them() -> None:
    parts = {"front": model("image size", "features"), "back": model("features size", "scores")}
    inputs = connect(dict.fromkeys(parts, ""), parts, {}).inputs
    assert inputs == {"image": "front.image", "size": "front.size"}


@given(st.permutations(["front", "middle", "back"]))
def test_parts_run_after_those_that_feed_them_in_whatever_order_they_are_named(names: list[str]) -> None:
    models = {"front": model("image", "a"), "middle": model("a", "b"), "back": model("b", "scores")}
    parts = {name: models[name] for name in names}
    assert list(connected(**parts).parts) == ["front", "middle", "back"]
