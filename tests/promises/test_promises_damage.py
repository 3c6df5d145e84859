"""Damage of a store: it is named in one line or repaired, and no wrong result comes of it."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from outside import RUN, Place, answer, filled, one_line

pytestmark = pytest.mark.service

READERS = [
    ("runs",),
    ("runs", "latest"),
    ("lineage",),
    ("report", "--out", "page.html"),
    ("store", "verify"),
    ("resume",),
]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A folder with a whole store and a backup of it, and the run's answer."""
    place = filled(tmp_path_factory.mktemp("whole") / "user", width=512)
    document = place.call(*RUN).document
    place.call("store", "backup", "backup")
    return place.folder, answer(document)


@pytest.fixture
def stored(original: tuple[Path, Any], place: Place) -> Place:
    """A copy of it."""
    shutil.copytree(original[0], place.folder, dirs_exist_ok=True)
    return place


def database(place: Place) -> Path:
    return place.home / "autoopt.db"


def overwrite_the_middle(place: Place) -> None:
    content = database(place).read_bytes()
    database(place).write_bytes(content[:4096] + b"\xa5" * (len(content) - 4096))


def cut_off(place: Place) -> None:
    content = database(place).read_bytes()
    database(place).write_bytes(content[: len(content) // 2])


def replace_by_a_page(place: Place) -> None:
    database(place).write_text("<!doctype html><html>Log in</html>" * 999)


def empty(place: Place) -> None:
    database(place).write_bytes(b"")


def lose(place: Place) -> None:
    database(place).unlink()


def replace_by_a_folder(place: Place) -> None:
    database(place).unlink()
    database(place).mkdir()


def drop_a_table(place: Place) -> None:
    with sqlite3.connect(database(place)) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("DROP TABLE trial")


def fill_with_nonsense(place: Place) -> None:
    with sqlite3.connect(database(place)) as connection:
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for _, column, kind, *_ in connection.execute(f"PRAGMA table_info({table})").fetchall():
                if kind.upper().startswith(("TEXT", "JSON")):
                    connection.execute(f"UPDATE OR IGNORE {table} SET {column} = '{{\"x\": [' || {column}")


def make_newer(place: Place) -> None:
    with sqlite3.connect(database(place)) as connection:
        connection.execute("UPDATE schema_version SET version = version + 1")


DAMAGES = [
    overwrite_the_middle,
    cut_off,
    replace_by_a_page,
    empty,
    lose,
    replace_by_a_folder,
    drop_a_table,
    fill_with_nonsense,
    make_newer,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_database_is_named_and_restored_from_a_backup(
    damage: Callable[[Place], None], stored: Place, original: tuple[Path, Any]
) -> None:
    damage(stored)
    for words in (*READERS[:3], RUN):
        said = stored.call(*words, codes=(0, 1, 2, 3))
        if said.code:
            assert said.err.count("\n") <= 1 or said.err.startswith("["), said.err
        elif words == RUN:
            assert answer(said.document) == original[1]
    if damage is not make_newer:
        shutil.rmtree(stored.home)
        stored.call("store", "restore", "backup")
        again = stored.call(*RUN).document
        assert again["reused"]
        assert answer(again) == original[1]
        assert stored.call("store", "verify", "--json").document["ok"]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 40))])
def test_every_damage_of_an_artifact_is_named_and_repaired(seed: int, stored: Place) -> None:
    rng = random.Random(seed)
    source = stored.call("runs", "latest", "--json").document["baseline"]["artifact"]
    files = sorted(path for path in (stored.home / "artifacts").rglob("model.onnx") if path.parent.name != source)
    whole = {path: path.read_bytes() for path in files}
    assert len(files) >= 3
    for path in files:
        damage(path, rng)
    found = stored.call("store", "verify", "--json", codes=(1,)).document
    assert {problem["digest"] for problem in found["problems"]} == {path.parent.name for path in files}
    stored.call("store", "verify", "--repair", codes=(0, 1))
    assert {path: path.read_bytes() for path in files} == whole
    assert stored.call("store", "verify", "--json").document["ok"]


def damage(path: Path, rng: random.Random) -> None:
    """Flip a bit, cut off the end, or take the file away."""
    content = path.read_bytes()
    at, kind = rng.randrange(len(content)), rng.choice(("flip", "truncate", "delete"))
    path.unlink()
    if kind == "flip":
        path.write_bytes(content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :])
    elif kind == "truncate":
        path.write_bytes(content[:at])


def test_a_damaged_artifact_is_never_exported(stored: Place) -> None:
    best = stored.call("runs", "latest", "--json").document["best"]["artifact"]
    (artifact,) = (stored.home / "artifacts").glob(f"*/{best}/model.onnx")
    content = artifact.read_bytes()
    artifact.unlink()
    artifact.write_bytes(content[:-9] + b"\0" + content[-8:])
    assert "damaged" in one_line(stored.call("export", "--out", "exported", codes=(1, 2, 3)))
    assert not (stored / "exported" / "model.onnx").exists()


def test_a_damaged_backup_is_not_restored_unnoticed(stored: Place) -> None:
    for artifact in (stored / "backup").rglob("model.onnx"):
        artifact.chmod(0o600)
        artifact.write_bytes(artifact.read_bytes()[:-5])
    shutil.rmtree(stored.home)
    assert stored.call("store", "restore", "backup", codes=(1, 2, 3)).code


def test_what_is_below_the_home_besides_the_store_may_be_damaged(stored: Place, original: tuple[Path, Any]) -> None:
    """Stored readings and answers are looked up, so nonsense there costs time and no more."""
    for path in sorted(stored.home.rglob("*")):
        if path.is_file() and "artifacts" not in path.parts and path != database(stored):
            path.write_bytes(b"\x00{nonsense")
    assert answer(stored.call(*RUN).document) == original[1]
