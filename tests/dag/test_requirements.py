"""Required passes are inserted once, in running order, or the chain learns why that is impossible."""

from __future__ import annotations

import pytest
from dag_worlds import PASSES, infos
from hypothesis import given
from hypothesis import strategies as st

from autoopt.dag import pass_infos
from autoopt.dag.compiler.pruning import Facts
from autoopt.dag.compiler.requirements import Requirements
from autoopt.errors import InputError
from autoopt.registry import REQUIRED, ParameterInfo, PassInfo, info_to_json, registry
from autoopt.target import Accelerator

CUDA = Accelerator("gpu", "CUDAExecutionProvider")
KNOWN = {
    info.name: info
    for info in (
        PassInfo("shapes", "t", "s", version=3),
        PassInfo("prepare", "t", "s", requires=("shapes",)),
        PassInfo("static", "t", "s", requires=("prepare", "shapes")),
        PassInfo("absent", "t", "s", missing="x is not installed"),
        PassInfo("wants_absent", "t", "s", requires=("absent",)),
        PassInfo("wants_nobody", "t", "s", requires=("nobody",)),
        PassInfo("demanding", "t", "s", (ParameterInfo("limit", int, REQUIRED),)),
        PassInfo("wants_demanding", "t", "s", requires=("shapes", "demanding")),
        PassInfo("ring", "t", "s", requires=("ring2",)),
        PassInfo("ring2", "t", "s", requires=("ring",)),
        PassInfo("exclusive", "t", "s", conflicts=("shapes",)),
        PassInfo("wants_exclusive", "t", "s", requires=("shapes", "exclusive")),
    )
}


def look_up(name: str) -> PassInfo:
    if name == "infer_shapes":  # an alias
        name = "shapes"
    if name not in KNOWN:
        raise InputError(f"unknown pass {name!r}")
    return KNOWN[name]


def missing(name: str, *present: str) -> tuple[list[str], str]:
    inserted, problem = Requirements(look_up, Facts()).missing(KNOWN[name], frozenset(present))
    return [info.name for info in inserted], problem


@pytest.mark.parametrize(
    ("name", "present", "inserted"),
    [
        ("shapes", (), []),
        ("prepare", (), ["shapes"]),
        ("static", (), ["shapes", "prepare"]),
        ("static", ("shapes",), ["prepare"]),
        ("static", ("prepare",), ["shapes"]),
        ("static", ("prepare", "shapes"), []),
    ],
)
def test_missing_passes_come_in_running_order(name: str, present: tuple[str, ...], inserted: list[str]) -> None:
    assert missing(name, *present) == (inserted, "")


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("wants_absent", "requires absent, which cannot be inserted: pass absent is not available: x is not installed"),
        ("wants_nobody", "requires nobody, which cannot be inserted: unknown pass 'nobody'"),
        ("wants_demanding", "requires demanding, which cannot be inserted: it needs parameter 'limit'"),
        ("wants_exclusive", "requires exclusive, which cannot be inserted: it conflicts with shapes"),
        ("ring", "ring -> ring2 -> ring require each other in a cycle"),
    ],
)
def test_an_impossible_insertion_gives_its_reason_and_inserts_nothing(name: str, problem: str) -> None:
    inserted, text = missing(name)
    assert inserted == []
    assert text.endswith(problem)
    assert text.startswith(name)


def test_every_look_up_is_remembered_for_the_digest() -> None:
    requirements = Requirements(look_up, Facts())
    requirements.relevant(KNOWN["static"])
    requirements.relevant(KNOWN["wants_nobody"])
    assert requirements.resolved() == {
        "nobody": "unknown pass 'nobody'",
        "prepare": ["prepare", 1, "shapes"],
        "shapes": ["shapes", 3],
    }


def test_passes_matter_through_the_requirements_of_a_pass_too() -> None:
    requirements = Requirements(look_up, Facts())
    assert requirements.relevant(KNOWN["static"]) == {"prepare", "shapes"}
    assert requirements.relevant(KNOWN["wants_exclusive"]) == {"shapes", "exclusive"}
    assert requirements.relevant(KNOWN["ring"]) == {"ring", "ring2"}


@given(infos(), st.sampled_from(PASSES), st.frozensets(st.sampled_from(PASSES)))
def test_an_insertion_satisfies_every_requirement_in_order(
    known: dict[str, PassInfo], name: str, present: frozenset[str]
) -> None:
    requirements = Requirements(known.__getitem__, Facts())
    inserted, problem = requirements.missing(known[name], present)
    assert not (inserted and problem)
    if problem:
        return
    names = [info.name for info in inserted]
    assert len(set(names)) == len(names)
    assert not set(names) & present
    ran = set(present)
    for info in (*inserted, known[name]):
        assert set(info.requires) <= ran, "each requirement runs before the pass that needs it"
        if info.name != name:
            assert not set(info.conflicts) & ran
            assert info.available
        ran.add(info.name)


@given(infos(), st.sampled_from(PASSES), st.frozensets(st.sampled_from(PASSES)))
def test_only_relevant_passes_change_the_answer(known: dict[str, PassInfo], name: str, present: frozenset[str]) -> None:
    requirements = Requirements(known.__getitem__, Facts())
    relevant = requirements.relevant(known[name])
    assert requirements.missing(known[name], present) == requirements.missing(known[name], present & relevant)


def test_registered_passes_are_found_by_name_and_described_for_the_accelerator() -> None:
    assert info_to_json(pass_infos(CUDA)("simplify")) == info_to_json(registry().info("simplify", CUDA))


def test_unknown_passes_name_the_nearest_of_both_sources() -> None:
    infos = pass_infos(Accelerator(), {"my_pass": PassInfo("my_pass", "mine", "s")})
    assert infos("my_pass").family == "mine"
    with pytest.raises(InputError, match="did you mean 'my_pass'"):
        infos("my_pas")
    with pytest.raises(InputError, match="did you mean 'simplify'"):
        infos("simplfy")
