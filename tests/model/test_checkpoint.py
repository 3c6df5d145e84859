"""Models of Hugging Face's transformers as folders."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from builders import mlp, write
from interpreters import interpreter

from autoopt.errors import InputError
from autoopt.model.checkpoint import export, is_checkpoint, task_of
from autoopt.problem.model_folders import read_models

LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
MAKE = """
import transformers
shape = dict(vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2)
transformers.LlamaForCausalLM(transformers.LlamaConfig(**shape)).save_pretrained("llama")
shape = dict(vocab_size=64, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2, decoder_start_token_id=0)
transformers.T5ForConditionalGeneration(transformers.T5Config(**shape)).save_pretrained("t5")
"""


def checkpoint(folder: Path, **config: object) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(b"")
    return folder


def test_a_folder_with_onnx_models_is_used_as_it_is(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m", **LLAMA)
    assert is_checkpoint(folder)
    write(mlp(), folder)
    assert not is_checkpoint(folder)
    first, parts = read_models([str(folder)], tmp_path / "home")
    assert (first, parts) == (str(folder / "model.onnx"), {})


def test_pickled_weights_are_no_checkpoint(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "m", **LLAMA)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert not is_checkpoint(folder)


@pytest.mark.parametrize(
    ("config", "message"),
    [({}, "names no architecture"), ({**LLAMA, "auto_map": {"AutoModel": "net.py"}}, "code that the folder brings")],
)
def test_a_configuration_that_cannot_be_exported_is_named(
    tmp_path: Path, config: dict[str, object], message: str
) -> None:
    folder = checkpoint(tmp_path / "m", **config)
    with pytest.raises(InputError, match=f"config.json.*{message}"):
        export({"source": str(folder), "dest": str(tmp_path)})


@pytest.mark.parametrize(
    ("architecture", "supported", "expected"),
    [
        ("LlamaForCausalLM", ["feature-extraction", "text-generation", "text-generation-with-past"], 2),
        ("GPT2LMHeadModel", ["text-generation", "text-generation-with-past"], 1),
        ("T5ForConditionalGeneration", ["feature-extraction", "text2text-generation-with-past"], 1),
        ("WhisperForConditionalGeneration", ["audio-classification", "automatic-speech-recognition-with-past"], 1),
        ("CLIPModel", ["feature-extraction", "zero-shot-image-classification"], 1),
        ("BertForSequenceClassification", ["feature-extraction", "text-classification"], 1),
        ("BertModel", ["feature-extraction", "feature-extraction-with-past"], 0),
    ],
)
def test_the_task_has_the_head_and_the_cache_of_the_architecture(
    architecture: str, supported: list[str], expected: int
) -> None:
    assert task_of(architecture, supported) == supported[expected]


@pytest.mark.service
@pytest.mark.xdist_group("torch")
def test_a_folder_is_exported_once_and_planned_under_its_name(tmp_path: Path) -> None:
    python = interpreter(tmp_path / "env", "torch", "optimum-onnx")
    environ = {**os.environ, "AUTOOPT_HOME": str(tmp_path / "home")}
    made = subprocess.run([python, "-c", MAKE], cwd=tmp_path, env=environ, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr

    def plan(model: str) -> str:
        command = [python, "-m", "autoopt", "plan", model]
        return subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=True).stdout

    shown = plan("llama")
    assert shown.startswith("llama: ")
    assert "goal: maximize tokens_per_second" in shown
    (model,) = (tmp_path / "home" / "exported").glob("*/llama/model.onnx")
    before = model.stat().st_mtime_ns
    assert plan("llama") == shown
    assert model.stat().st_mtime_ns == before
    (encoder,) = subprocess.run(
        [
            python,
            "-c",
            "from autoopt.problem.model_folders import models_of;"
            " import pathlib, sys; print(*models_of('t5', pathlib.Path(sys.argv[1])))",
            tmp_path / "home",
        ],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert encoder == "decoder encoder"
