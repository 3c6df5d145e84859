"""The names of models that belong together, and the models of a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoopt.errors import InputError
from autoopt.spec.model_parts import is_part, models_in, parse_parts


def test_models_are_named_on_the_command_line() -> None:
    assert parse_parts(["encoder=a.onnx", "decoder=b=c.onnx"]) == {"encoder": "a.onnx", "decoder": "b=c.onnx"}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["a=x.onnx", "a=y.onnx"], "two models are named 'a'"),
        (["a=x.onnx", "y.onnx"], "model 2: is not NAME=MODEL"),
        (["a=x.onnx"], "a: names one model; give its path alone"),
        (["a.b=x.onnx", "c=y.onnx"], "'a.b' has a dot"),
        (["a/b=x.onnx", "c=y.onnx"], "model 1: is not NAME=MODEL"),
    ],
)
def test_wrong_names_are_refused(arguments: list[str], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        parse_parts(arguments)


@pytest.mark.parametrize("argument", ["a=x.onnx", "a=http://host/x.onnx?sig=1"])
def test_a_named_model_is_a_part(argument: str) -> None:
    assert is_part(argument)


@pytest.mark.parametrize(
    "argument", ["x.onnx", "=x.onnx", "a=", "./a=b.onnx", "http://host/x.onnx?sig=1", "C:a=b.onnx"]
)
def test_paths_and_urls_are_no_parts(argument: str) -> None:
    assert not is_part(argument)


@pytest.mark.parametrize(
    ("files", "models"),
    [
        (["encoder_model", "decoder_model", "decoder_with_past_model"], ["decoder", "decoder_with_past", "encoder"]),
        (["encoder_model", "decoder_model", "decoder_model_merged"], ["decoder", "encoder"]),
        (["decoder_model", "decoder_model_fp16", "decoder_model_merged", "encoder_model"], ["decoder", "encoder"]),
        (["onnx/model", "onnx/model_fp16", "onnx/model_q4f16", "onnx/model_quantized"], ["model"]),
        (["onnx/encoder_model_int8", "onnx/encoder_model", "onnx/decoder_model"], ["decoder", "encoder"]),
        (["model_int8"], ["model_int8"]),
        (["encoder/model", "decoder/model"], ["decoder", "encoder"]),
        (["all/encoder_model", "all/decoder_model"], ["decoder", "encoder"]),
    ],
)
def test_the_models_of_a_folder_are_found(tmp_path: Path, files: list[str], models: list[str]) -> None:
    for name in files:
        path = tmp_path / f"{name}.onnx"
        path.parent.mkdir(exist_ok=True)
        path.touch()
    assert sorted(models_in(tmp_path)) == models


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no \.onnx file in this folder or its folder onnx"):
        models_in(tmp_path)


def test_weights_without_a_model_are_answered_with_the_export(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(InputError, match=r"export it to ONNX first: optimum-cli export onnx --model FOLDER"):
        models_in(tmp_path)
