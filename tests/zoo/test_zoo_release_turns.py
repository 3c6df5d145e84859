"""Turns to promote and roll back a model."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from autoopt.errors import InputError
from autoopt.store import EventRecord
from autoopt.store.memory import MemoryStore
from autoopt.zoo.release_turns import LONGEST_SECONDS, TURN_EVENT, release_turn

MODEL = "production/cnn"


@pytest.fixture
def now() -> list[float]:
    """The time of the store, which only tests move."""
    return [1000.0]


@pytest.fixture
def store(tmp_path: Path, now: list[float]) -> MemoryStore:
    return MemoryStore(tmp_path, lambda: now[0])


def numbers(store: MemoryStore) -> list[int]:
    return [turn.data["number"] for turn in store.events.all(kind=TURN_EVENT, subject=MODEL)]


def refused(store: MemoryStore) -> str:
    """The reason why nobody else gets a turn."""
    with pytest.raises(InputError) as error, release_turn(store, MODEL, "bob@anvil"):
        raise AssertionError("two have the turn")
    return str(error.value)


def test_turns_follow_each_other(store: MemoryStore) -> None:
    for _ in range(3):
        with release_turn(store, MODEL, "ann@forge"):
            pass
    assert numbers(store) == [1, 2, 3]


def test_only_one_has_the_turn_and_the_other_learns_who(store: MemoryStore) -> None:
    with release_turn(store, MODEL, "ann@forge"):
        said = refused(store)
    assert said == (f"{MODEL}: ann@forge is promoting or rolling back this model now; try again when that has ended")
    assert numbers(store) == [1]


def test_models_do_not_wait_for_each_other(store: MemoryStore) -> None:
    with ExitStack() as turns:
        for model in (MODEL, "production/mlp", "staging/cnn"):
            turns.enter_context(release_turn(store, model, "ann@forge"))


def test_a_turn_ends_with_its_error(store: MemoryStore) -> None:
    with pytest.raises(ValueError, match="disk full"), release_turn(store, MODEL, "ann@forge"):
        raise ValueError("disk full")
    with release_turn(store, MODEL, "bob@anvil"):
        pass
    assert numbers(store) == [1, 2]


def test_a_turn_on_another_machine_is_over_after_a_while(store: MemoryStore, now: list[float]) -> None:
    elsewhere = EventRecord(TURN_EVENT, subject=MODEL, data={"number": 1, "owner": "far/-/-/1/-", "by": "eve@far"})
    store.events.add(elsewhere)
    now[0] += LONGEST_SECONDS
    assert "eve@far" in refused(store)
    now[0] += 1.0
    with release_turn(store, MODEL, "ann@forge"):
        pass
    assert numbers(store) == [1, 2]
