import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoopt.measure.constraints import Observation, judge
from autoopt.metrics import METRICS, WORST, Constraint, Estimate, Objective
from autoopt.report.words.formatting import (
    bytes_text,
    clock_text,
    constraint_text,
    counts_text,
    first_names,
    metric_text,
    number_text,
    objective_text,
    params_text,
    plural,
    ratio_text,
    seconds_text,
    short,
    value_text,
)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("latency_p50", 0.1778, "0.1778 ms"),
        ("latency_p50", 37.21, "37.2 ms"),
        ("size", 408782, "409 kB"),
        ("accuracy", 0.995, "0.9950"),
        ("cosine", 1.0, "1.0000"),
        ("max_abs_error", 0.0, "0"),
        ("psnr", 29.333, "29.3 dB"),
        ("my_metric", 1.2345, "1.23"),
    ],
)
def test_metric_text(name: str, value: float, text: str) -> None:
    assert metric_text(name, value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (999_600, "1 MB"), (12.3e9, "12.3 GB"), (5e12, "5000 GB")],
)
def test_bytes_text(value: float, text: str) -> None:
    assert bytes_text(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (1e-9, "1e-09"), (-2.5, "-2.50"), (123456, "123456"), (1e7, "1e+07")]
)
def test_number_text(value: float, text: str) -> None:
    assert number_text(value) == text


def test_ratio_text_has_its_interval_unless_exact() -> None:
    assert ratio_text(Estimate(0.3, 0.29, 0.312)) == "0.300x (0.290..0.312)"
    assert ratio_text(Estimate.exact(0.25)) == "0.250x"


def test_params_text_is_by_node_and_leaves_out_empty_nodes() -> None:
    assert (
        params_text({"a": {}, "b": {"x": True, "y": [1, "z"]}, "c": {"w": "QInt8"}})
        == 'b: x=true, y=[1, "z"]; c: w=QInt8'
    )


def test_control_characters_cannot_reach_a_terminal() -> None:
    assert "\x1b" not in params_text({"n\x1b[31m": {"p": "\x1b]0;title\x07"}})


def test_counts_and_seconds() -> None:
    assert counts_text({"total": 3, "ok": 2, "refused": 1, "failed": 0}) == "3: 2 ok, 1 refused"
    assert (
        counts_text({"total": 3, "ok": 2, "refused": 1, "infeasible": 1}) == "3: 1 ok, 1 refused, 1 breaks a constraint"
    )
    assert counts_text({"total": 0}) == "0"
    assert seconds_text({"total": 41.25, "search": 30.0, "idle": 0.0}) == "41.2 s (search 30.0, other 11.2)"


def test_stages_are_named_for_people_in_their_order() -> None:
    seconds = {"total": 50.0, "confirm": 9.0, "prefect start": 24.3, "prefect start waited for": 21.4}
    assert seconds_text(seconds) == "50.0 s (Prefect start-up 24.3, deciding 9.0, other 16.7)"


def test_stages_add_up_to_the_total_although_the_search_measures_the_source() -> None:
    seconds = {"total": 41.8, "baseline": 10.3, "search": 32.8, "confirm": 2.8}
    assert seconds_text(seconds) == "41.8 s (baseline 10.3, search 22.5, deciding 2.8, other 6.2)"
    assert seconds_text({"total": 5.0, "search": 5.0}) == "5.0 s (search 5.0)"


def test_the_time_of_workers_is_separate_because_it_overlaps() -> None:
    seconds = {"total": 50.0, "search": 30.0, "passes": 12.0, "measuring": 40.0}
    assert seconds_text(seconds) == "50.0 s (search 30.0, other 20.0; in workers: measuring 40.0, passes 12.0)"


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (16.9, "0:16"), (70, "1:10"), (3723, "1:02:03")])
def test_clock_text(seconds: float, text: str) -> None:
    assert clock_text(seconds) == text


def test_what_stands_for_an_infinite_error_is_told_in_words() -> None:
    assert metric_text("max_abs_error", WORST) == "infinite"
    assert metric_text("relative_l2", WORST) == "infinite"
    assert metric_text("max_abs_error", 2e6) == "2e+06"
    observed = Observation(Estimate.exact(WORST))
    assert judge(Constraint("max_abs_error", max=1.0), METRICS["max_abs_error"], observed).reason.endswith(": infinite")


def test_plural() -> None:
    assert [plural(count, "trial") for count in (0, 1, 2)] == ["0 trials", "1 trial", "2 trials"]


def test_short_ids_have_no_control_characters() -> None:
    assert short("0123456789abcdef") == "0123456789ab"
    assert "\x1b" not in short("\x1b[31m")


@pytest.mark.parametrize(
    ("constraint", "text"),
    [
        (
            Constraint("accuracy", max_drop=0.01, confidence=0.9),
            "accuracy may get worse by at most 0.01, with 90% confidence",
        ),
        (Constraint("size", max=1e6), "size at most 1 MB"),
        (Constraint("size", max_ratio=0.5), "size at most 0.5 times the source's"),
        (Constraint("accuracy", min=0.9, min_ratio=0.99), "accuracy at least 0.9000, at least 0.99 times the source's"),
    ],
)
def test_each_bound_of_a_constraint_is_said(constraint: Constraint, text: str) -> None:
    assert constraint_text(constraint) == text


def test_an_objective_is_said_with_its_goal() -> None:
    assert objective_text(Objective("throughput", "maximize")) == "maximize throughput"


@given(st.floats(-1e12, 1e12))
def test_a_number_is_shown_within_a_percent(value: float) -> None:
    assert float(number_text(value)) == pytest.approx(value, rel=0.01, abs=1e-300)


@given(st.floats(0, 1e15))
def test_bytes_are_shown_within_a_percent(value: float) -> None:
    number, unit = bytes_text(value).split()
    factor = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}[unit]
    assert float(number) * factor == pytest.approx(value, rel=0.01, abs=0.5)


@given(st.integers(0, 400_000))
def test_a_clock_shows_every_second(seconds: int) -> None:
    parts = list(map(int, clock_text(seconds).split(":")))
    assert sum(part * 60**place for place, part in enumerate(reversed(parts))) == seconds
    assert len(parts) == (3 if seconds >= 3600 else 2)
    assert all(part < 60 for part in parts[1:])


@given(st.dictionaries(st.sampled_from(["ok", "failed", "refused", "timeout"]), st.integers(0, 9)))
def test_counts_add_up_to_their_total(counts: dict[str, int]) -> None:
    text = counts_text(counts)
    total, _, rest = text.partition(": ")
    assert int(total) == sum(counts.values())
    assert sum(map(int, re.findall(r"\d+", rest))) == int(total)
    assert " 0 " not in f" {rest}"


def test_infeasible_trials_are_counted_once() -> None:
    assert (
        counts_text({"total": 5, "ok": 4, "infeasible": 1, "failed": 1}) == "5: 3 ok, 1 failed, 1 breaks a constraint"
    )
    assert counts_text({"total": 2, "ok": 2, "infeasible": 2}) == "2: 2 break a constraint"


@given(st.floats(0.001, 100), st.floats(1.0001, 10), st.floats(1.0001, 10))
def test_a_ratio_is_shown_unless_it_is_not_known_within_two(value: float, below: float, above: float) -> None:
    ratio = Estimate(value, value / below, value * above)
    assert (ratio_text(ratio) == "undecided") == (not ratio.decided)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3)))
def test_any_value_is_one_printable_line(value: object) -> None:
    assert value_text(value).isprintable()


def test_a_long_list_of_names_is_cut_off_and_counted() -> None:
    assert first_names(["a", "b"]) == "a, b"
    assert first_names([str(number) for number in range(7)]) == "0, 1, 2, 3, 4 and 2 more"
