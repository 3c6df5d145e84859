"""Data configs and their digests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from autoopt.data import DataConfig, digest
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


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"pth": "x"}, "pth"),
        ({}, "needs one of"),
        ({"path": "x", "data_name": "y"}, "excludes"),
        ({"path": "x", "sample_ratio": 0}, "sample_ratio"),
        ({"path": "x", "pre_process": {"kind": "y"}}, "pre_process"),
    ],
)
def test_a_wrong_config_is_one_line_that_names_the_field(config, words):
    with pytest.raises(InputError) as caught:
        DataConfig.parse(config)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_resolved_paths_are_absolute_and_content_decides_the_digest(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.bin").write_bytes(b"same")
    one, two = digest("x.bin", tmp_path / "a"), digest({"path": "x.bin", "meta_data": {"by": "me"}}, tmp_path / "b")
    assert one == two == digest(DataConfig.parse("x.bin").resolved(tmp_path / "a"))
    (tmp_path / "b" / "x.bin").write_bytes(b"other")
    assert digest("x.bin", tmp_path / "b") != one
    for changed in ({"limit": 3}, {"batch_size": 8}):
        assert digest({"path": "x.bin", **changed}, tmp_path / "a") != one


def test_the_digest_of_a_folder_sees_names_and_nested_files(tmp_path):
    (tmp_path / "d" / "deep").mkdir(parents=True)
    (tmp_path / "d" / "deep" / "x").write_bytes(b"1")
    before = digest("d", tmp_path)
    (tmp_path / "d" / "deep" / "x").rename(tmp_path / "d" / "deep" / "y")
    assert digest("d", tmp_path) != before


def test_a_tokenizer_and_a_script_are_part_of_the_digest(tmp_path):
    for name in ("t.txt", "tok.json", "s.py"):
        (tmp_path / name).write_text("1")
    config = {
        "path": "t.txt",
        "user_script": "s.py",
        "load_dataset": {"type": "text", "params": {"tokenizer": "tok.json"}},
    }
    seen = {digest(config, tmp_path)}
    for name in ("t.txt", "tok.json", "s.py"):
        (tmp_path / name).write_text("22")
        seen.add(digest(config, tmp_path))
    assert len(seen) == 4


@pytest.mark.parametrize("kind", ["load_dataset", "pre_process", "dataloader", "post_process"])
def test_what_a_components_parameters_name_is_absolute_and_part_of_the_digest(tmp_path, kind):
    (tmp_path / "images" / "deep").mkdir(parents=True)
    files = [tmp_path / "a.json", tmp_path / "images" / "deep" / "x", tmp_path / "m.txt"]
    for file in (*files, tmp_path / "x.npz"):
        file.write_text("1")
    params = {"folder": "images", "files": {"boxes": ["a.json", "gone.json"]}, "means": str(files[2]), "sign": "/"}
    config = DataConfig.parse({"path": "x.npz", kind: {"type": "mine", "params": params}}).resolved(tmp_path)
    assert getattr(config, kind).params == {
        "folder": str(tmp_path / "images"),
        "files": {"boxes": [str(files[0]), "gone.json"]},
        "means": str(files[2]),
        "sign": "/",
    }
    assert config.resolved("/") == config
    seen = {digest(config)}
    for file in files:
        file.write_text("22")
        seen.add(digest(config))
    assert len(seen) == 4


def test_texts_that_are_no_paths_stay_what_they_are(tmp_path):
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


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"gone\.npz"):
        digest("gone.npz", tmp_path)


def test_configs_and_meters_load_without_heavy_libraries():
    code = (
        "import sys, autoopt.data, autoopt.measure.meters, autoopt.measure.settings, autoopt.measure.constraints;"
        "heavy = {'numpy', 'onnx', 'onnxruntime', 'sklearn', 'scipy'} & set(sys.modules);"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_arrays_of_different_lengths_are_named():
    from autoopt.data.dataset import DataSet

    with pytest.raises(InputError, match=r"x 3, labels 2"):
        DataSet({"x": np.zeros((3, 1))}, np.zeros(2))


def test_named_configs_are_written_once_and_used_by_name():
    spec = DataSpec.model_validate(
        {"configs": {"val": {"path": "e.npz", "limit": 5}, "far": "f.npz"}, "evaluation": "val", "latency": "far"}
    )
    assert spec.resolved("evaluation", Path("/data")) == {"path": "/data/e.npz", "limit": 5}
    assert spec.resolved("latency", Path("/data")) == "/data/f.npz"
    assert spec.resolved("calibration", Path("/data")) is None
    with pytest.raises(ValidationError, match="data config"):
        DataSpec.model_validate({"configs": {"val": 3}})
