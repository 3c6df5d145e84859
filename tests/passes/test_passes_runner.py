"""The worker functions `run` and `describe`."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from script_passes import SCRIPT, steps

from autoopt.errors import InputError
from autoopt.model.files import digest_folder
from autoopt.model.model_file import ModelFile
from autoopt.passes.request import PassRequest, PassStep
from autoopt.passes.runner import describe, run
from autoopt.registry import info_from_json

BLOCK = 64 << 20
PROLOGUE = f"""
import os
from contextlib import suppress
from autoopt.passes.runner import reused_memory
from autoopt.memory import resident

def added():
    return resident(os.getpid()) - before

def use():
    block = bytearray(b"x") * {BLOCK}

before = resident(os.getpid())
"""


def test_steps_in_one_load_give_the_same_models_as_single_steps(tmp_path: Path) -> None:
    names = ("name_fix", "shape_inference", "constant_folding", "batchnorm_folding")
    gathered = steps(tmp_path / "all", "conv_batchnorm", *names)
    folder, single = tmp_path / "all" / "source", []
    for i, name in enumerate(names):
        one = run({
            "model": {"path": str(folder / "model.onnx")},
            "steps": [{"pass": name}],
            "output": str(tmp_path / f"one{i}"),
        })["steps"][0]  # fmt: skip
        single.append((one["outcome"], one["digest"]))
        folder = Path(one["path"]) if one["path"] else folder
    assert [(s["outcome"], s["digest"]) for s in gathered] == single
    assert [s["outcome"] for s in gathered] == ["ok", "ok", "unchanged", "ok"]


def test_every_changed_step_leaves_its_own_model(tmp_path: Path) -> None:
    first, second = steps(tmp_path, "conv_batchnorm", "name_fix", "batchnorm_folding")
    for number, step in enumerate((first, second)):
        folder = Path(step["path"])
        assert folder == tmp_path / "out" / str(number)
        assert step["digest"] == digest_folder(folder)
        assert step["bytes"] == (folder / "model.onnx").stat().st_size
    assert first["digest"] != second["digest"]
    assert second["equivalence"]["status"] == "same"
    assert second["session_options"] == {"intra_op_num_threads": 1}


def test_the_step_in_progress_is_known_while_a_call_goes_on(tmp_path: Path) -> None:
    steps(tmp_path, "conv_batchnorm", "name_fix", "batchnorm_folding")
    model = ModelFile(str(tmp_path / "model.onnx"))
    request = PassRequest(model, (PassStep("name_fix"), PassStep("batchnorm_folding")), tmp_path / "out")
    assert request.step_in_progress() == PassStep("batchnorm_folding")
    assert PassRequest(model, (PassStep("name_fix"),), tmp_path / "elsewhere").step_in_progress() is None


def test_an_unknown_pass_is_the_users_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'simplify'"):
        steps(tmp_path, "relu_only", "simplfy")


def test_an_alias_stands_for_its_pass(tmp_path: Path) -> None:
    (step,) = steps(tmp_path, "conv_batchnorm", "fuse_bn_into_conv")
    assert (step["pass"], step["outcome"]) == ("batchnorm_folding", "ok")


def test_describe_includes_the_script(script: str) -> None:
    told = describe({"user_script": script, "accelerator": {"device": "cpu"}})
    infos = {info["name"]: info_from_json(info) for info in told["passes"]}
    assert told["source_digest"] == hashlib.sha256(SCRIPT.encode()).hexdigest()
    assert infos["smaller"].source_digest == told["source_digest"]
    assert infos["smaller"].parameter("size").search is not None
    assert infos["add_note"].summary == "Leaves a note."
    assert infos["simplify"].source_digest == ""
    assert infos["uses"].user_script


def added_bytes(body: str) -> list[int]:
    """The numbers that a script prints in a fresh process."""
    script = PROLOGUE + dedent(body)
    out = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=300)
    return [int(line) for line in out.stdout.split()]


def test_freed_blocks_are_used_again_and_returned_at_the_end() -> None:
    inside, after = added_bytes("""
        with reused_memory():
            use()
            print(added())
        print(added())
    """)
    assert inside > BLOCK // 2
    assert after < BLOCK // 2


@pytest.mark.parametrize("enabled", [True, False])
def test_blocks_in_cycles_are_returned_too(enabled: bool) -> None:
    (after,) = added_bytes(f"""
        class Cycle:
            pass

        with reused_memory({enabled}):
            cycle = Cycle()
            cycle.itself, cycle.block = cycle, bytearray(b"x") * (64 << 20)
            del cycle
        print(added())
    """)
    assert after < BLOCK // 2


def test_blocks_are_returned_at_once_after_an_error() -> None:
    (after,) = added_bytes("""
        with suppress(ValueError), reused_memory():
            use()
            raise ValueError
        use()
        print(added())
    """)
    assert after < BLOCK // 2
