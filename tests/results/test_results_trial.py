"""The result of a trial."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoopt.metrics import Estimate
from autoopt.outcome import Outcome
from autoopt.results import Trial, TrialResult
from autoopt.results.trial import flat_params, flat_ratios, short_chain


@pytest.mark.parametrize(
    ("outcome", "violation", "feasible"),
    [(Outcome.OK, 0.0, True), (Outcome.OK, -1.0, True), (Outcome.OK, 0.1, False), (Outcome.FAILED, -1.0, False)],
)
def test_a_trial_is_feasible_if_it_succeeded_within_the_constraints(
    outcome: Outcome, violation: float, feasible: bool
) -> None:
    result = TrialResult("c", {}, outcome, violation=violation)
    assert result.feasible == feasible
    assert Trial(0, "c", result).feasible == feasible


def test_the_explanation_is_the_message_or_the_reasons() -> None:
    broken = TrialResult("c", {}, Outcome.OK, reasons=("accuracy fell", "size grew"))
    assert broken.explanation == "accuracy fell; size grew"
    assert TrialResult("c", {}, Outcome.FAILED, message="no", reasons=("x",)).explanation == "no"


def test_figures_for_tables_are_flat() -> None:
    assert flat_params({"q": {"bits": 8}, "s": {"bits": 4}}) == {"q.bits": 8, "s.bits": 4}
    ratios = {"size": Estimate(0.5, 0.4, 0.6)}
    assert flat_ratios(ratios) == {"size_ratio": 0.5, "size_ratio_low": 0.4, "size_ratio_high": 0.6}


@pytest.mark.parametrize(
    ("chain", "steps", "text"),
    [
        ("names -> fold -> static", ("fold", "static"), "fold -> static"),
        ("names -> fold", (), "names -> fold"),
        ("fold", ("fold",), "fold"),
    ],
)
def test_a_chain_is_shown_by_the_nodes_that_changed_something(chain: str, steps: tuple[str, ...], text: str) -> None:
    assert short_chain(chain, steps) == text
    assert Trial(1, chain, TrialResult("c", {}, Outcome.OK, steps=steps)).short_chain == text


NAMES = st.text("abc", min_size=1, max_size=3)


@given(st.dictionaries(NAMES, st.dictionaries(NAMES, st.integers(0, 3), max_size=3), max_size=3))
def test_no_parameter_is_lost_in_the_flat_form(point: dict[str, dict[str, int]]) -> None:
    flat = flat_params(point)
    assert len(flat) == sum(map(len, point.values()))
    for name, value in flat.items():
        node, _, parameter = name.partition(".")
        assert point[node][parameter] == value


@given(st.dictionaries(NAMES, st.floats(0.1, 10), max_size=4))
def test_each_ratio_has_its_bounds_beside_it(values: dict[str, float]) -> None:
    figures = flat_ratios({name: Estimate(value, value / 2, value * 2) for name, value in values.items()})
    assert len(figures) == 3 * len(values)
    for name in values:
        assert figures[f"{name}_ratio_low"] < figures[f"{name}_ratio"] < figures[f"{name}_ratio_high"]
