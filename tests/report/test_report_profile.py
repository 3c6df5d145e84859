"""Where a run's time goes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoopt.observer import WorkSpan
from autoopt.report.elements.drawing import picture
from autoopt.report.runs.profile import ROWS, Profile, busy_seconds, profile_table, timeline, timeline_height

SPANS = [
    WorkSpan("passes", "simplify", "trial_0", 0.0, 2.0),
    WorkSpan("passes", "simplify", "trial_1", 1.0, 4.0),
    WorkSpan("waiting", "latency", "trial_0", 2.0, 4.0),
    WorkSpan("measuring", "latency", "trial_0", 4.0, 5.0),
]


def test_the_table_sums_up_by_phase_and_work() -> None:
    table = profile_table(SPANS, 10.0)
    assert table.rows == (
        ("passes", "simplify", "2", "5.00", "50%", "3.00"),
        ("waiting", "latency", "1", "2.00", "20%", "2.00"),
        ("measuring", "latency", "1", "1.00", "10%", "1.00"),
        ("nothing", "between calls, imports, store", "", "5.00", "50%", ""),
    )


def test_many_kinds_of_work_end_in_one_row() -> None:
    spans = [WorkSpan("passes", f"pass {number}", "t", number, number + 1.0) for number in range(ROWS + 5)]
    table = profile_table(spans, 100.0)
    assert len(table.rows) == ROWS + 2
    assert table.rows[-2] == ("others", "", "5", "5.00", "5%", "1.00")


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20))))
def test_busy_seconds_count_each_second_once(intervals: list[tuple[int, int]]) -> None:
    spans = [WorkSpan("passes", "p", "t", began, began + length) for began, length in intervals]
    seconds = {second for began, length in intervals for second in range(began, began + length)}
    assert busy_seconds(spans) == len(seconds)


def test_a_profile_collects_work_in_order_from_its_own_start() -> None:
    profile = Profile()
    for span in reversed(SPANS):
        profile.on_work(span)
    spans = profile.spans()
    assert [span.phase for span in spans] == ["passes", "passes", "waiting", "measuring"]
    assert spans[1].began - spans[0].began == pytest.approx(1.0)
    assert profile.elapsed() >= 0


def test_the_timeline_has_a_lane_for_each_thread(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    svg = picture(timeline(SPANS), width=600, height=timeline_height(SPANS))
    for text in ("trial_0", "trial_1", "measuring", "waiting", "seconds since the start"):
        assert text in svg
