"""run.py of an exported package: the sentence that compares what it sees with what was recorded.

`tests/engine/test_run_export.py` runs it on real models.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from autoopt.model import run_package
from autoopt.model.run_package import (
    clock_for,
    find_source,
    interval_of,
    judge,
    make_call,
    read_inputs,
    recorded_ratio,
    sha256,
    time_alone,
)
from autoopt.model.session import session_document

RATIO = {"value": 0.5, "low": 0.48, "high": 0.52}
ROUNDS = {"ratios": {"latency_p50": RATIO}, "round_ratios": {"latency_p50": [0.4, 0.51]}}


@pytest.mark.parametrize(
    ("low", "high", "end", "shows"),
    [
        (1.9, 2.1, "the same gain.", True),
        (1.6, 1.8, "the same gain.", True),  # as in the slowest round, but for a tenth
        (2.6, 2.8, "the same gain.", True),
        (3.0, 3.1, "the same gain, or more.", True),
        (1.2, 1.4, "no such gain on this machine.", False),
        (0.7, 0.9, "no such gain on this machine.", False),
        (0.98, 1.05, "cannot tell from no gain; repeat it with --seconds 30.", False),
        (0.9, 1.9, "cannot tell from no gain; repeat it with --seconds 30.", True),
    ],
)
def test_the_gain_here_is_compared_with_the_recorded_rounds(low: float, high: float, end: str, shows: bool) -> None:
    sentence, found = judge((low * high) ** 0.5, low, high, recorded_ratio(ROUNDS))
    assert sentence.endswith(f": {end}")
    assert "autoopt measured 2.00x faster (1.92 to 2.50 in its rounds)" in sentence
    assert found is shows


def test_a_package_that_promises_no_gain_needs_none() -> None:
    recorded = recorded_ratio({"ratios": {"latency_p50": {"value": 1.0, "low": 0.97, "high": 1.03}}})
    sentence, shows = judge(1.01, 0.98, 1.04, recorded)
    assert sentence.endswith(": no gain there, none needed here.")
    assert shows
    slower = recorded_ratio({"ratios": {"latency_p50": {"value": 1.2, "low": 1.1, "high": 1.3}}})
    assert judge(0.84, 0.8, 0.9, slower)[1]  # a smaller model that takes longer


@pytest.mark.parametrize(("here", "shows"), [((1.005, 1.02), False), ((1.02, 1.06), False), ((1.08, 1.2), True)])
def test_a_small_gain_must_show_by_half(here: tuple[float, float], shows: bool) -> None:
    recorded = recorded_ratio({"ratios": {"latency_p50": {"value": 1 / 1.18, "low": 1 / 1.2, "high": 1 / 1.15}}})
    assert judge((here[0] * here[1]) ** 0.5, *here, recorded)[1] is shows


def test_the_interval_of_a_gain_covers_it_in_19_of_20_cases() -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(1000):
        factor, low, high = interval_of(2.0 * np.exp(rng.normal(0, 0.05, 4)))
        assert low < factor < high
        covered += low < 2.0 < high
    assert 930 < covered < 970


def test_packages_without_the_rounds_are_judged_by_the_interval() -> None:
    assert recorded_ratio({"ratios": {"latency_mean": RATIO}}) == {**RATIO, "lowest": 0.48, "highest": 0.52}
    assert recorded_ratio({"ratios": {"size": RATIO}}) is None


def test_a_slower_model_is_called_slower() -> None:
    assert judge(0.5, 0.4, 0.6, recorded_ratio(ROUNDS))[0].startswith("Here 2.00x slower (0.40 to 0.60)")


def test_without_a_recorded_latency_only_the_gain_here_is_said() -> None:
    assert judge(2.0, 1.9, 2.1, None) == ("Here 2.00x faster (1.90 to 2.10); no latency was recorded.", True)


def test_the_source_itself_has_nothing_to_be_compared_with() -> None:
    assert find_source({"chain": "source"}, None) == (None, "This is the source model itself: nothing was faster.")


def test_a_given_source_must_exist(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no such file"):
        find_source({"chain": "fold"}, tmp_path / "none.onnx")


def test_texts_are_read_as_objects(tmp_path: Path) -> None:
    np.savez(tmp_path / "inputs.npz", words=np.array(["a", "b"]), x=np.ones(2))
    feed = read_inputs(tmp_path / "inputs.npz")
    assert (feed["words"].dtype.kind, feed["x"].dtype.kind) == ("O", "f")
    (tmp_path / "bad.npz").write_bytes(b"")
    with pytest.raises(SystemExit, match=r"bad\.npz: cannot be read"):
        read_inputs(tmp_path / "bad.npz")


@pytest.mark.parametrize("io_binding", [False, True])
def test_a_model_is_timed_in_the_session_of_its_document(model_path: Path, io_binding: bool) -> None:
    document: dict[str, Any] = json.loads(json.dumps(session_document({"io_binding": io_binding})))
    call = make_call(model_path, document, {"x": np.ones((2, 3), np.float32)})
    blocks = time_alone(call, clock_for(document), 0.001)
    assert blocks
    assert min(blocks) > 0


def test_a_provider_that_is_not_installed_is_named(model_path: Path) -> None:
    document: dict[str, Any] = json.loads(json.dumps(session_document({})))
    document["inference_session"]["providers"] = ["NoSuchExecutionProvider"]
    with pytest.raises(SystemExit, match="NoSuchExecutionProvider is not in the installed onnxruntime"):
        make_call(model_path, document, {})


def test_missing_libraries_are_named_with_their_remedy() -> None:
    # -S: without site-packages.
    done = subprocess.run([sys.executable, "-S", run_package.__file__], capture_output=True, text=True, check=False)
    remedy = f"pip install -r {Path(run_package.__file__).parent / 'requirements.txt'}"
    assert done.stderr == f"numpy is not installed here; run: {remedy}\n"
    assert done.returncode == 1


@pytest.fixture
def package(model_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package of a model, whose source lies beside it."""
    folder = model_path.parent
    source = tmp_path / "source.onnx"
    source.write_bytes(model_path.read_bytes())
    recipe = {
        "chain": "fold",
        "ratios": {"latency_p50": {"value": 0.01, "low": 0.009, "high": 0.011}},
        "source_files": [{"path": str(source), "sha256": sha256(source)}],
    }
    (folder / "recipe.json").write_text(json.dumps(recipe))
    (folder / "session.json").write_text(json.dumps(session_document({})))
    np.savez(folder / "inputs.npz", x=np.ones((2, 3), np.float32), other=np.zeros(1))
    monkeypatch.setattr(run_package, "FOLDER", folder)
    return folder


def run(folder: Path, *arguments: str) -> int:
    return run_package.main(["--inputs", str(folder / "inputs.npz"), "--seconds", "0.01", *arguments])


def test_a_package_reports_and_compares_with_the_recorded_source(
    package: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(package) == 1  # equal models do not show a gain of 100
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"model    {package / 'model.onnx'}: fold"
    assert lines[1].startswith("session  CPUExecutionProvider, onnxruntime ")
    assert lines[2:4] == ["input    x: float32 [2, 3]", "output   y: float32 [2, 2]"]
    assert lines[4] == f"source   {package.parent / 'source.onnx'}"
    assert "autoopt measured 100.00x faster" in lines[-1]


def test_a_source_that_changed_is_not_compared_with(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (package.parent / "source.onnx").write_bytes(b"another model")
    assert run(package) == 0
    assert "The source model has changed since, so there is nothing to compare with" in capsys.readouterr().out
    (package.parent / "source.onnx").unlink()
    assert run(package) == 0
    assert "The source model is not on this machine" in capsys.readouterr().out


def test_another_model_in_its_place_is_noticed(package: Path) -> None:
    recipe = json.loads((package / "recipe.json").read_text())
    recipe["model_sha256"] = sha256(package / "model.onnx")
    (package / "recipe.json").write_text(json.dumps(recipe))
    (package / "model.onnx").write_bytes((package / "model.onnx").read_bytes() + b"\0")
    with pytest.raises(SystemExit, match=r"model\.onnx: is not the model that was measured"):
        run(package)


def test_a_named_source_replaces_the_recorded_one(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = package.parent / "other.onnx"
    other.write_bytes((package / "model.onnx").read_bytes())
    run(package, "--source", str(other))
    assert f"source   {other}" in capsys.readouterr().out


@pytest.mark.parametrize(("text", "reason"), [(None, "No such file"), ("{", "Expecting property name")])
def test_a_broken_package_names_the_file(package: Path, text: str | None, reason: str) -> None:
    file = package / "recipe.json"
    file.unlink()
    if text is not None:
        file.write_text(text)
    with pytest.raises(SystemExit, match=rf"recipe\.json: cannot be read \(.*{reason}"):
        run(package)


def test_threads_decide_on_the_clock() -> None:
    one = json.loads(json.dumps(session_document({"intra_op_num_threads": 1})))
    four = json.loads(json.dumps(session_document({"intra_op_num_threads": 4})))
    assert clock_for(one, one) is time.thread_time
    assert clock_for(one, four) is time.perf_counter
    one["inference_session"]["providers"] = ["CUDAExecutionProvider"]
    assert clock_for(one) is time.perf_counter


def test_another_version_of_the_runtime_is_remarked() -> None:
    assert run_package.other_version({"runtime": {"onnxruntime-gpu": "0.1"}}) == " (measured with onnxruntime-gpu 0.1)"
    assert run_package.other_version({"runtime": {"onnxruntime": onnxruntime.__version__}}) == ""
    assert run_package.other_version({}) == ""
