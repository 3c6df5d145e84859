"""The nights of a zoo as text and as a page."""

from __future__ import annotations

import re
from dataclasses import replace
from io import StringIO

import pytest
from nights_cases import entry, nights_of, noisy

from autoopt.metrics import Estimate
from autoopt.results import SweepResult
from autoopt.zoo.nights import history_of
from autoopt.zoo.nights_report import (
    compare_nights,
    comparison_table,
    models_table,
    nights_html,
    nights_table,
    notable,
    write_nights,
)

SERIES: dict[str, list[float | None]] = {
    "<cnn>": [*noisy(0.5, 12), *noisy(0.6, 6, seed=1)],
    "mlp": [*noisy(0.9, 12), *noisy(0.7, 6, seed=2)],
    "rnn": [0.5, None] * 9,
}


def test_text_shows_the_newest_night_first_and_losses_before_gains() -> None:
    nights = nights_of(SERIES)
    nights[-1] = replace(nights[-1], result=replace(nights[-1].result, regressions=("rnn",)))
    history = history_of("production", nights)
    stream = StringIO()
    write_nights(history, stream)
    assert stream.getvalue().startswith("nights of production")
    first = nights_table(history).rows[0]
    assert (first[1], first[2], first[3], first[4]) == ("000000000017", "3", "2", "rnn")
    lines = notable(history)
    assert [line.partition(":")[0] for line in lines] == ["<cnn>", "rnn", "mlp"]
    assert lines[0].startswith("<cnn>: the best model, compared with the source, is ")
    assert re.search(r"is (1\.2x|\d+ %) slower since .* \(a lasting change\)$", lines[0])
    assert notable(history_of("production", nights[:1])) == ["no lasting change over the nights"]


def test_a_gain_that_is_not_known_within_a_factor_of_two_is_no_number() -> None:
    nights = nights_of({"cnn": [0.5, 0.4]})
    (model,) = nights[-1].result.models
    assert model.result.best is not None
    best = replace(model.result.best, ratios={"latency_p50": Estimate(0.4, 0.2, 0.8)})
    wide = replace(model, result=replace(model.result, best=best))
    nights[-1] = replace(nights[-1], result=replace(nights[-1].result, models=(wide,)))
    (row,) = models_table(history_of("production", nights)).rows
    assert row[4:6] == ("faster by an undecided factor", "2.00x in 1 night")


def test_page_and_table_say_for_how_many_models_a_night_had_no_time() -> None:
    nights = nights_of(SERIES)
    assert "No time for" not in nights_html(history_of("production", nights))
    result = replace(nights[-1].result, not_run=("a", "b"), improvements=tuple(f"m{number}" for number in range(9)))
    page = nights_html(history_of("production", [*nights[:-1], replace(nights[-1], result=result)]))
    assert "No time for 2 models; the next night begins with them." in page
    (row,) = nights_table(history_of("production", [replace(nights[-1], result=result)])).rows
    assert row[2] == "3 of 5"
    assert "Better: m0, m1, m2, m3, m4 and 4 more." in page


def test_two_nights_are_compared_model_by_model() -> None:
    before = SweepResult(sweep="1" * 12, models=(entry("cnn", 0.5), entry("mlp", 0.5)))
    after = SweepResult(sweep="2" * 12, models=(entry("cnn", 0.7), entry("mlp", 0.5), entry("new", 0.5)))
    table = comparison_table(compare_nights(before, after), "both")
    assert {row[0]: row[1] for row in table.rows} == {"cnn": "worse", "mlp": "same", "new": "new"}
    assert "best model latency_p50 worse" in table.rows[0][2]
    assert list(compare_nights(before, after, worse=True)) == ["cnn"]


def test_the_page_has_the_verdict_a_heat_map_and_plots() -> None:
    pytest.importorskip("altair")
    nights = nights_of({"<cnn>": [0.5, 0.6], "rnn": [0.5, None]})
    nights[-1] = replace(nights[-1], result=replace(nights[-1].result, regressions=("rnn",)))
    text = nights_html(history_of("production", nights))
    assert "1 of 2 models regressed: rnn" in text
    assert text.count("<figure>") == 1, "one good night is no plot, nor are figures that never change"
    assert "latency_p50 of the source: 2.00 ms on all nights" in text
    assert text.index("Over the nights") < text.index('class="heat"') < text.index("Plots")
    assert "<cnn>" not in text
    assert 'title="failed"' in text


def test_nights_of_one_day_are_told_apart_by_their_times() -> None:
    nights = nights_of({"cnn": [0.5, 0.5, 0.5]})
    twice = replace(nights[1], time=nights[0].time + 60)  # no change of day in any time zone but for one minute
    text = nights_html(history_of("production", [nights[0], twice, nights[2]]))
    heads = re.findall(r'<th title="(\d{4}-([^" ]+) ([^"]+))">([^<]+)</th>', text)
    assert [head for _, _, _, head in heads] == [heads[0][1], *(f"{day} {time}" for _, day, time, _ in heads[1:])]
