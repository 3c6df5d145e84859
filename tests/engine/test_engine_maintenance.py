"""Lost artifacts are made again from their lineage, models from their recipe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders import mlp, write

from autoopt.engine.tools.maintenance import replay, verify_store
from autoopt.errors import InputError
from autoopt.store import open_store

DAG: dict[str, Any] = {
    "passes": {"tidy": {"pass": "simplify"}, "quant": {"pass": "dynamic_quantization"}},
    "chains": [["tidy", "quant"]],
    "objectives": [{"metric": "size"}],
    "constraints": [],
}


def test_recipe_makes_the_same_bytes_and_refuses_another_model(go: Any, mlp_file: Path, tmp_path: Path) -> None:
    result = go(DAG, model=mlp_file, out=tmp_path / "out")
    assert result.best is not None
    made = replay(tmp_path / "out" / "recipe.json", mlp_file, tmp_path / "again")
    assert made.same
    assert made.changed == {}
    assert (tmp_path / "again" / "model.onnx").read_bytes() == (tmp_path / "out" / "model.onnx").read_bytes()
    other = write(mlp(seed=5), tmp_path / "other")
    with pytest.raises(InputError, match="is not the model"):
        replay(tmp_path / "out" / "recipe.json", other, tmp_path / "never")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(InputError, match=r"bad\.json:1: is not JSON"):
        replay(tmp_path / "bad.json", mlp_file, tmp_path / "never")
    with pytest.raises(InputError, match=r"bad\.json: is a file, not a folder"):
        replay(tmp_path / "out" / "recipe.json", mlp_file, tmp_path / "bad.json")
    with pytest.raises(InputError, match=r"nowhere\.npz: no such data file"):
        replay(tmp_path / "out" / "recipe.json", mlp_file, tmp_path / "never", tmp_path / "nowhere.npz")


def test_repair_makes_what_has_a_lineage_and_names_what_has_not(go: Any, mlp_file: Path, tmp_path: Path) -> None:
    result = go(DAG, model=mlp_file)
    assert result.best is not None
    with open_store(home=tmp_path / "home") as store:
        made, source = store.artifacts.path(result.best.artifact), store.artifacts.path(result.baseline.artifact)
    whole = made.read_bytes()
    made.write_bytes(whole[:-7])
    with open_store(home=tmp_path / "home") as store:
        assert not verify_store(store).ok
        repaired = verify_store(store, repair=True)
    assert repaired.ok
    assert [p.digest for p in repaired.problems] == [result.best.artifact]
    assert made.read_bytes() == whole
    source.unlink()
    with open_store(home=tmp_path / "home") as store:
        (problem,) = verify_store(store, repair=True).problems
    assert not problem.repaired
    assert "source model" in problem.reason


def test_a_lost_intermediate_is_made_again_when_it_is_needed(go: Any, mlp_file: Path, tmp_path: Path) -> None:
    go({**DAG, "chains": [["tidy"]], "passes": {"tidy": DAG["passes"]["tidy"]}}, model=mlp_file)
    with open_store(home=tmp_path / "home") as store:
        (trial,) = store.trials.all(store.runs.get("latest").id)
        assert trial.candidate is not None
        path = store.artifacts.path(trial.candidate.artifact)
    path.write_bytes(b"lost")
    result = go(DAG, model=mlp_file)
    assert result.trials["ok"] == 1
    assert result.best is not None
    assert json.dumps(result.to_json())
