"""The recipe of a package."""

from __future__ import annotations

from autoopt.engine.run.recipe_file import narrowed_inputs, with_digest
from autoopt.model.candidate import Candidate
from autoopt.outcome import Outcome
from autoopt.store import PassRunRecord


def test_inputs_that_a_model_takes_for_granted_are_recorded() -> None:
    narrowing = {"values": {"sr": 16000}, "shapes": {"x": [None, 4]}}
    steps = []
    for name, params in (("simplify", {}), ("specialize_inputs", narrowing)):
        steps.append(PassRunRecord(name, name, params, Candidate("s"), Outcome.OK))
    assert narrowed_inputs(steps) == {"narrowed_inputs": narrowing}
    assert narrowed_inputs(steps[:1]) == {}


def test_an_edit_of_a_recipe_changes_its_digest() -> None:
    recipe = with_digest({"recipe": 2, "steps": []})
    assert with_digest(recipe) == recipe
    assert with_digest({**recipe, "steps": ["another"]})["digest"] != recipe["digest"]
