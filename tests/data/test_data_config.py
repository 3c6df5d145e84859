"""Data configs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from autoopt.data import (
    DataConfig,
    register_dataloader,
    register_load_dataset,
    register_post_process,
    register_pre_process,
)
from autoopt.data.config import BUILT_IN, component, resolve_path
from autoopt.errors import InputError
from autoopt.spec.data import DataSpec

NAMES = st.text("abcdef", min_size=1, max_size=6)


CONFIGS = st.fixed_dictionaries(
    {"path": NAMES},
    optional={
        "pre_process": st.fixed_dictionaries({"type": NAMES, "params": st.dictionaries(NAMES, st.integers())}),
        "batch_size": st.integers(0, 64),
        "sample_ratio": st.floats(0.01, 1.0),
        "limit": st.integers(1, 100),
        "state": st.dictionaries(NAMES, NAMES),
        "meta_data": st.dictionaries(NAMES, NAMES),
    },
)


@given(CONFIGS)
def test_a_config_survives_json(config):
    parsed = DataConfig.parse(config)
    assert DataConfig.parse(parsed.to_json()) == parsed


def test_a_path_is_short_for_a_config():
    assert DataConfig.parse("x.npz") == DataConfig.parse({"path": "x.npz"})


def test_a_number_of_numpy_is_a_number():
    assert DataConfig.parse({"path": "x", "limit": np.int64(5)}).to_json() == {"path": "x", "limit": 5}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"pth": "x"}, "pth"),
        ({"path": "x", "limit": True}, "limit: expected int"),
        ({}, "needs one of"),
        ("", "path: is empty"),
        ({"path": "x", "data_name": "y"}, "excludes"),
        ({"path": "x", "sample_ratio": 0}, "sample_ratio"),
        ({"path": "x", "pre_process": {"kind": "y"}}, "pre_process"),
        ({"path": "x", "starts": [0]}, "starts: needs state"),
        ({"path": "x", "state": {"a": "b"}, "starts": [-1]}, "starts: must be numbers of items"),
        ({"path": "x", "state": {"a": "b"}, "starts": [0], "reset_every": 2}, "starts: excludes reset_every"),
    ],
)
def test_a_wrong_config_is_refused_in_one_line_that_names_the_field(config, words):
    with pytest.raises(InputError) as caught:
        DataConfig.parse(config)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_texts_that_name_no_file_stay_as_they_are(tmp_path):
    (tmp_path / "float32").mkdir()
    (tmp_path / "set").mkdir()
    (tmp_path / "x.npz").touch()
    cast = {"type": "cast", "params": {"dtype": "float32"}}
    own = {"type": "mine", "params": {"where": ".", "up": "..", "nothing": "", "odd": "~nobody\0" + "x" * 5000}}
    config = DataConfig.parse({"path": "x.npz", "pre_process": cast, "post_process": own}).resolved(tmp_path)
    assert (config.pre_process.params, config.post_process.params) == (cast["params"], own["params"])
    named = {"load_dataset": {"type": "huggingface", "params": {"data_name": "./set", "split": "set"}}}
    params = DataConfig.parse(named).resolved(tmp_path).load_dataset.params
    assert params == {"data_name": str(tmp_path / "set"), "split": "set"}


def test_configs_and_meters_load_without_heavy_libraries():
    code = (
        "import sys, autoopt.data, autoopt.measure.meters, autoopt.measure.settings, autoopt.measure.constraints;"
        "heavy = {'numpy', 'onnx', 'onnxruntime', 'sklearn', 'scipy'} & set(sys.modules);"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_named_configs_are_written_once_and_used_by_name():
    spec = DataSpec.model_validate(
        {"configs": {"val": {"path": "e.npz", "limit": 5}, "far": "f.npz"}, "evaluation": "val", "latency": "far"}
    )
    assert spec.resolved("evaluation", Path("/data")) == {"path": "/data/e.npz", "limit": 5}
    assert spec.resolved("latency", Path("/data")) == "/data/f.npz"
    assert spec.resolved("calibration", Path("/data")) is None
    with pytest.raises(ValidationError, match="data config"):
        DataSpec.model_validate({"configs": {"val": 3}})


@pytest.mark.parametrize(
    ("folder", "text", "expected"),
    [
        ("/a", "b.npz", "/a/b.npz"),
        ("/a", "/b.npz", "/b.npz"),
        ("/a", "s3://b/c.npz", "s3://b/c.npz"),
        ("s3://a", "b.npz", "s3://a/b.npz"),
        ("s3://a", "/b.npz", "/b.npz"),
    ],
)
def test_relative_paths_start_from_folders_and_urls(folder: str, text: str, expected: str) -> None:
    assert resolve_path(folder, text) == expected


@pytest.mark.parametrize(("kind", "name"), [(k, n) for k, names in BUILT_IN.items() for n in names])
def test_every_built_in_component_can_be_imported(kind, name):
    assert callable(component(kind, name))


@pytest.mark.parametrize(
    ("kind", "register"),
    [
        ("load_dataset", register_load_dataset),
        ("pre_process", register_pre_process),
        ("post_process", register_post_process),
        ("dataloader", register_dataloader),
    ],
)
def test_a_registered_function_is_found_by_kind_and_name(kind, register):
    name = f"mine of {kind}"

    @register(name)
    def function():
        """Do nothing."""

    assert component(kind, name) is function
    with pytest.raises(InputError, match="unknown"):
        component("post_process" if kind != "post_process" else "dataloader", name)


def test_an_unknown_component_is_refused_with_the_nearest():
    with pytest.raises(InputError, match="unknown pre_process 'reshpe'; did you mean 'reshape'"):
        component("pre_process", "reshpe")
    with pytest.raises(InputError, match="known: default, shuffle"):
        component("dataloader", "zzzzzz")


def test_built_in_names_cannot_be_registered():
    with pytest.raises(InputError, match="pre_process 'cast' is registered twice"):
        register_pre_process("cast")(lambda data: data)


def test_a_reloaded_script_registers_again_but_another_may_not():
    source = "def twin(data): return data"
    for file, refused in (("one.py", False), ("one.py", False), ("two.py", True)):
        space = {}
        exec(compile(source, file, "exec"), space)
        if refused:
            with pytest.raises(InputError, match="registered twice"):
                register_pre_process("twin")(space["twin"])
        else:
            register_pre_process("twin")(space["twin"])
            assert component("pre_process", "twin") is space["twin"]
