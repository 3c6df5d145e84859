import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoopt.measure.constraints import Observation, judge
from autoopt.metrics import METRICS, WORST, Constraint, Estimate
from autoopt.report.words.formatting import (
    bytes_text,
    counts_text,
    first_names,
    metric_text,
    number_text,
    params_text,
    seconds_text,
    short,
    value_text,
)


def test_control_characters_cannot_reach_a_terminal() -> None:
    assert "\x1b" not in params_text({"n\x1b[31m": {"p": "\x1b]0;title\x07"}})


def test_stages_add_up_to_the_total_although_the_search_measures_the_source() -> None:
    seconds = {"total": 41.8, "baseline": 10.3, "search": 32.8, "confirm": 2.8}
    assert seconds_text(seconds) == "41.8 s (baseline 10.3, search 22.5, deciding 2.8, other 6.2)"
    assert seconds_text({"total": 5.0, "search": 5.0}) == "5.0 s (search 5.0)"


def test_the_time_of_workers_is_separate_because_it_overlaps() -> None:
    seconds = {"total": 50.0, "search": 30.0, "passes": 12.0, "measuring": 40.0}
    assert seconds_text(seconds) == "50.0 s (search 30.0, other 20.0; in workers: measuring 40.0, passes 12.0)"


def test_what_stands_for_an_infinite_error_is_told_in_words() -> None:
    assert metric_text("max_abs_error", WORST) == "infinite"
    assert metric_text("relative_l2", WORST) == "infinite"
    assert metric_text("max_abs_error", 2e6) == "2e+06"
    observed = Observation(Estimate.exact(WORST))
    assert judge(Constraint("max_abs_error", max=1.0), METRICS["max_abs_error"], observed).reason.endswith(": infinite")


def test_short_ids_have_no_control_characters() -> None:
    assert short("0123456789abcdef") == "0123456789ab"
    assert "\x1b" not in short("\x1b[31m")


@given(st.floats(-1e12, 1e12))
def test_a_number_is_shown_within_a_percent(value: float) -> None:
    assert float(number_text(value)) == pytest.approx(value, rel=0.01, abs=1e-300)


@given(st.floats(0, 1e15))
def test_bytes_are_shown_within_a_percent(value: float) -> None:
    number, unit = bytes_text(value).split()
    factor = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}[unit]
    assert float(number) * factor == pytest.approx(value, rel=0.01, abs=0.5)


@given(st.dictionaries(st.sampled_from(["ok", "failed", "refused", "timeout"]), st.integers(0, 9)))
def test_counts_add_up_to_their_total(counts: dict[str, int]) -> None:
    text = counts_text(counts)
    total, _, rest = text.partition(": ")
    assert int(total) == sum(counts.values())
    assert sum(map(int, re.findall(r"\d+", rest))) == int(total)
    assert " 0 " not in f" {rest}"


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3)))
def test_any_value_is_one_printable_line(value: object) -> None:
    assert value_text(value).isprintable()


def test_a_long_list_of_names_is_cut_off_and_counted() -> None:
    assert first_names(["a", "b"]) == "a, b"
    assert first_names([str(number) for number in range(7)]) == "0, 1, 2, 3, 4 and 2 more"
