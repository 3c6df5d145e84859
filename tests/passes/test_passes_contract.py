"""What every registered pass promises, over every micro-model; see sweep.py."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from micro_models import MODELS
from sweep import variants

from autoopt.registry import registry

HERE = Path(__file__).parent
PASSES = [name for name in registry().names() if not registry().info(name).missing]
FINISHED = {"ok", "unchanged", "refused"}
KNOWN_FAILURES: dict[tuple[str, str], str] = {}
"""(pass, model) -> part of the message: what a library cannot do, and the checks catch."""
SALTED = {"ort_format"}
"""onnxruntime writes its own format in the order of hash tables that differ between processes: the bytes of a model
in it are known once it is stored, and the store keeps the first."""
NOT_HERE = {"packing_mode"}
"""Passes whose pattern no micro-model has, but those of their own tests: a whole encoder with mask and embeddings."""


def started(seed: int, out: Path, *arguments: str | Path) -> subprocess.Popen[bytes]:
    env = {**os.environ, "PYTHONHASHSEED": str(seed), "TMPDIR": str(out.parent)}
    log = out.with_suffix(".log").open("wb")
    return subprocess.Popen([sys.executable, HERE / "sweep.py", *arguments], env=env, cwd=HERE, stderr=log, stdout=log)


def selected_passes(items: list[pytest.Item]) -> list[str]:
    """The passes whose tests were selected, as with `-k simplify`; all of them if the tests name none."""
    names = {
        item.callspec.params["name"]
        for item in items
        if isinstance(item, pytest.Function) and item.path == Path(__file__) and hasattr(item, "callspec")
    }
    return [name for name in PASSES if name in names or not names]


@pytest.fixture(scope="session")
def sweeps(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[list[dict[str, Any]]]:
    """The results of the selected passes, and again of those that changed a model, under another hash seed."""
    folder = tmp_path_factory.mktemp("sweep")
    first, second = outs = [folder / f"{seed}.jsonl" for seed in (1, 2)]
    first.touch()
    sweep = started(1, first, first, *selected_passes(request.session.items))
    repetition = started(2, second, "--again", first, second)
    if sweep.wait(timeout=800):
        repetition.kill()
        raise AssertionError(first.with_suffix(".log").read_text()[-2000:])
    assert repetition.wait(timeout=100) == 0, second.with_suffix(".log").read_text()[-2000:]
    return [[json.loads(line) for line in out.read_text().splitlines()[:-1]] for out in outs]


@pytest.fixture(scope="session")
def results(sweeps: list[list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    grouped: dict[str, list[dict[str, Any]]] = {name: [] for name in PASSES}
    for result in sweeps[0]:
        grouped[result["pass"]].append(result)
    return grouped


def told(result: dict[str, Any]) -> str:
    return f"{result['pass']} {result['asked']} on {result['model']}: {result['outcome']} {result['message']}"


@pytest.mark.parametrize("name", PASSES)
def test_every_model_gets_a_model_or_a_typed_refusal(name: str, results: dict[str, list[dict[str, Any]]]) -> None:
    for result in results[name]:
        known = KNOWN_FAILURES.get((name, result["model"]))
        if result["outcome"] == "failed" and known and known in result["message"]:
            continue
        assert result["outcome"] in FINISHED, told(result)
        if result["outcome"] == "refused":
            assert result["message"], told(result)
            assert "\n" not in result["message"]
            assert not re.match(r"\w+(Error|Exception): ", result["message"]), told(result)


@pytest.mark.parametrize("name", PASSES)
def test_outputs_are_valid_and_equivalent_within_the_declared_tolerance(
    name: str, results: dict[str, list[dict[str, Any]]]
) -> None:
    info = registry().info(name)
    for result in results[name]:
        if result["outcome"] != "ok" or not result["moved"]:
            continue
        check = result["equivalence"]
        assert "checker" not in check, told(result)
        assert check["status"] != "different", told(result)
        if result["model"] != "double_names" and info.tolerance != "lossy":
            assert check["status"] in ("same", "only run"), f"{told(result)} {check}"
        if info.tolerance == "lossless" and check["status"] == "same":
            assert check["max_abs_error"] == 0, told(result)


@pytest.mark.parametrize("name", PASSES)
def test_outcomes_reflect_whether_the_model_changed(name: str, results: dict[str, list[dict[str, Any]]]) -> None:
    info = registry().info(name)
    for result in results[name]:
        if result["outcome"] == "ok":
            assert result["moved"] != info.session_only or result["session_options"], told(result)
            assert not info.analysis, told(result)
        else:
            assert not result["moved"], told(result)
            assert result["digest"] is None
    changed = [r for r in results[name] if r["outcome"] == "ok"]
    if info.analysis:
        assert any(r["reports"] for r in results[name])
    elif name not in NOT_HERE:
        assert changed, f"{name} changed no model: its pattern is missing from micro_models.py"


@pytest.mark.parametrize("name", PASSES)
def test_every_search_value_is_tried(name: str, results: dict[str, list[dict[str, Any]]]) -> None:
    info = registry().info(name)
    tried = {f"{k}={json.dumps(v)}" for result in results[name] for k, v in result["asked"].items()}
    wanted = {f"{k}={json.dumps(v)}" for params in variants(info) for k, v in params.items()}
    assert wanted <= tried
    assert {r["model"] for r in results[name]} >= set(MODELS)


def test_the_same_input_gives_the_same_bytes_in_every_process(sweeps: list[list[dict[str, Any]]]) -> None:
    changed = [result for result in sweeps[0] if result["outcome"] == "ok"]
    for first, second in zip(changed, sweeps[1], strict=True):
        assert (first["pass"], first["model"]) == (second["pass"], second["model"])
        assert second["outcome"] == "ok", told(first)
        if first["pass"] not in SALTED:
            assert first["digest"] == second["digest"], told(first)


def test_required_and_conflicting_passes_are_registered() -> None:
    known = set(registry().names())
    for name in known:
        info = registry().info(name)
        assert {*info.requires, *info.conflicts} <= known, name
        assert info.summary, name


@pytest.mark.zoo
@pytest.mark.parametrize("name", PASSES)
def test_real_models_end_with_a_known_outcome(name: str, zoo: Path, tmp_path: Path) -> None:
    from autoopt.passes.runner import run

    info = registry().info(name)
    folders = sorted(path for path in zoo.iterdir() if (path / "model.onnx").exists())
    # Every pass runs on a third of the models, and every model through a third of the passes.
    for folder in folders[PASSES.index(name) % 3 :: 3]:
        data = folder / "calibration.npz"
        if (info.needs_data and not data.exists()) or any(
            p.default.__class__.__name__ == "_Required" for p in info.parameters
        ):
            continue
        payload = {
            "model": {"path": str(folder / "model.onnx")},
            "steps": [{"node": "n", "pass": name, "params": {}}],
            "output": str(tmp_path / folder.name),
            "data": {"path": str(data), "limit": 8} if data.exists() else None,
        }
        result = run(payload)["steps"][0]
        assert result["outcome"] in FINISHED, f"{folder.name}: {told({**result, 'asked': {}, 'model': folder.name})}"


def test_conflicts_between_quantizations_are_symmetric() -> None:
    for a in ("dynamic_quantization", "static_quantization", "float16", "mixed_float16", "nncf_quantization"):
        for b in ("dynamic_quantization", "static_quantization"):
            assert b in registry().info(a).conflicts
    assert "float16" in registry().info("static_w4").conflicts
    assert "float16" not in registry().info("weight_only_quantization").conflicts
