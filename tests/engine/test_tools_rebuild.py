"""A store without a database gets its runs back from the recipes of their exported models."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from autoopt.engine.tools.maintenance import verify_store
from autoopt.engine.tools.rebuild import repair_store, restore_store
from autoopt.errors import InputError
from autoopt.store import open_store
from autoopt.store.maintenance.backup import backup

DAG = {
    "passes": {"tidy": {"pass": "simplify"}, "quant": {"pass": "dynamic_quantization"}},
    "chains": [["tidy", "quant"]],
    "objectives": [{"metric": "size"}],
    "constraints": [],
}


def test_recipes_bring_back_runs_and_lineage(go: Any, mlp_file: Path, tmp_path: Path) -> None:
    result = go(DAG, model=mlp_file, out=tmp_path / "out")
    assert result.best is not None
    home, recipe = tmp_path / "home", tmp_path / "out" / "recipe.json"
    (home / "autoopt.db").unlink()
    for end in ("-wal", "-shm"):
        (home / f"autoopt.db{end}").unlink(missing_ok=True)
    shutil.rmtree(home / "artifacts" / result.best.artifact[:2] / result.best.artifact)
    rebuilt = repair_store(None, home, [recipe])
    assert rebuilt.runs == (result.run,)
    assert repair_store(None, home, [recipe]).runs == (), "the store has it now"
    with open_store(None, home) as store:
        record = store.runs.get("latest")
        assert record.imported == str(recipe)
        steps = store.lineage.trace(result.best.candidate).steps
        assert steps
        assert steps[-1].output == result.best.candidate
        assert not store.artifacts.get(result.best.artifact).present
        assert verify_store(store).ok, "what is lost counts as evicted"


def test_a_wrong_recipe_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "recipe.json").write_text("{}")
    with pytest.raises(InputError, match="not an autoopt recipe"):
        repair_store(None, tmp_path / "home", [tmp_path / "recipe.json"])
    assert not (tmp_path / "home").exists()


def test_a_damaged_store_is_restored(go: Any, mlp_file: Path, tmp_path: Path) -> None:
    run = go(DAG, model=mlp_file).run
    home = tmp_path / "home"
    with open_store(None, home) as store:
        backup(store, tmp_path / "backup")
    (home / "autoopt.db").write_bytes(b"damaged" * 1000)
    assert restore_store(tmp_path / "backup", None, home).lost == ()
    assert (home / "autoopt.db.damaged-1").is_file()
    with open_store(None, home) as store:
        assert store.runs.get("latest").id == run
        assert verify_store(store).ok


def test_a_store_is_restored_after_a_repair_that_saved_no_run(go: Any, mlp_file: Path, tmp_path: Path) -> None:
    run = go(DAG, model=mlp_file).run
    home = tmp_path / "home"
    with open_store(None, home) as store:
        backup(store, tmp_path / "backup")
    (home / "autoopt.db").write_bytes(b"damaged" * 1000)
    assert repair_store(None, home).adopted
    restore_store(tmp_path / "backup", None, home)
    with open_store(None, home) as store:
        assert store.runs.get("latest").id == run
        assert verify_store(store).ok
