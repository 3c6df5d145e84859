"""The command line that repeats a run."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoopt.cli.data_options import DataOptions
from autoopt.engine.inputs.request import RunRequest
from autoopt.engine.planning.goal import GoalOptions
from autoopt.engine.tools.run_command import run_command
from autoopt.spec.proposal_options import ProposalOptions

NUMBER = st.floats(0.125, 200, width=16)
ARRAYS = st.fixed_dictionaries(
    {},
    optional={
        "label": st.sampled_from(["y", "the label"]),
        "inputs": st.sampled_from(["a", "a,b c"]),
        "mean": NUMBER.map(str),
        "std": st.lists(NUMBER, min_size=3, max_size=3).map(lambda values: ",".join(map(str, values))),
    },
)
IMAGES = st.fixed_dictionaries(
    {},
    optional={
        "label": st.just("labels.csv"),
        "image_size": st.sampled_from(["32x48", "224x224"]),
        "grayscale": st.just(True),
        "scale": NUMBER,
        "mean": NUMBER.map(str),
        "layout": st.sampled_from(["NCHW", "NHWC"]),
    },
)


def options_of(words: list[str]) -> dict[str, Any]:
    """The fields of `DataOptions` in a command line."""
    fields: dict[str, Any] = {}
    while words:
        name = words.pop(0).removeprefix("--").replace("-", "_")
        value: Any = True if name == "grayscale" else words.pop(0)
        fields[name] = float(value) if name == "scale" else value
    return fields


def repeated(config: Any) -> Any:
    """The data configuration of the command that repeats a run on this one."""
    words = shlex.split(run_command({"dag": "m.onnx", "data": config}))
    assert words[:4] == ["autoopt", "run", "m.onnx", "--data"]
    return DataOptions(**options_of(words[5:])).apply(words[4])


@given(ARRAYS)
def test_options_for_arrays_give_the_same_data_again(options: dict[str, Any]) -> None:
    config = DataOptions(**options).apply("my data.npz")
    assert repeated(config) == config


@given(IMAGES)
def test_options_for_images_give_the_same_data_again(tmp_path_factory: Any, options: dict[str, Any]) -> None:
    folder = tmp_path_factory.mktemp("images")
    (folder / "a.png").touch()
    config = DataOptions(**options).apply(str(folder))
    assert repeated(config) == config


def test_goal_proposal_search_and_calibration_are_options() -> None:
    request = RunRequest(
        dag="/m.onnx",
        model="/m.onnx",
        data={"path": "/e.csv", "label_col": "y"},
        calibration={"path": "/c.csv", "label_col": "y"},
        goal=GoalOptions("size", "f1", 0.02),
        proposal_options=ProposalOptions(execution_provider="cpu", fidelity=False, keep_signature=True),
        search={"trials": 3, "order": "pass-by-pass", "stop_early": False},
        measurement={"image_size": [320, 320]},
    )
    assert run_command(request.to_json()) == (
        "autoopt run /m.onnx --data /e.csv --label y --image-size 320x320 --calibration /c.csv "
        "--minimize size --metric f1 --max-drop 0.02 --ep cpu --no-fidelity --keep-signature "
        "--trials 3 --search order=pass-by-pass --search stop_early=false"
    )


@pytest.mark.parametrize(
    "request_",
    [
        {"dag": {"content": "{}"}},
        {"dag": "m.onnx", "data": {"load_dataset": {"type": "own"}}},
        {"dag": "m.onnx", "data": {"path": "d", "load_dataset": {"type": "own"}, "user_script": "own.py"}},
        {"dag": "m.onnx", "data": {"path": "d", "load_dataset": {"type": "images", "params": {"limit": 3}}}},
        {"dag": "m.onnx", "measurement": {"rounds": 2}},
        {"dag": "m.onnx", "data": "e.npz", "calibration": {"path": "c.csv", "label_col": "y"}},
        {"dag": "m.onnx", "goal": {"objectives": [{"metric": "size", "goal": "minimize"}]}},
    ],
)
def test_what_no_option_says_has_no_command(request_: dict[str, Any]) -> None:
    assert run_command(request_) == ""


def test_models_that_belong_together_are_named(tmp_path: Path) -> None:
    request = {"dag": "a.onnx", "parts": {"encoder": "a.onnx", "decoder": "b.onnx"}}
    assert run_command(request) == "autoopt run encoder=a.onnx decoder=b.onnx"
