"""A candidate's change from the source model in the words of people: `1.6x faster (1.5 to 1.6)`, `3.5x smaller`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from autoopt.metrics import FIRST_TOKEN, MEDIAN_LATENCY, TOKEN_RATE, Constraint, Estimate, is_ratio_metric
from autoopt.report.words.formatting import figure_text, limits_of, plural, trial_limits
from autoopt.results import ModelResult, Trial
from autoopt.results.figures import improvement, is_quality, kind

MANY, SEVERAL = 10.0, 1.2
"""Factors from which no decimals, or one, are enough."""
MOST_DECIMALS = 3
NOTICED = 1.1
"""Factor from which people notice a change."""
EQUAL = 0.005
"""Relative difference of two sizes that nobody notices."""


@dataclass(frozen=True)
class Words:
    """The words for a metric that got better, that got worse, and for the metric itself."""

    better: str
    worse: str
    noun: str
    verb: str = "is"
    """Joins a model and `better`."""


TIME = Words("faster", "slower", "speed")
THROUGHPUT = Words("higher throughput", "lower throughput", "throughput", "has")
TOKENS = Words("more tokens per second", "fewer tokens per second", "tokens per second", "has")
SIZE = Words("smaller", "larger", "size")
MEMORY = Words("less memory", "more memory", "memory", "uses")


def words_of(metric: str) -> Words:
    """The words for a metric that is compared by its ratio."""
    if metric == "throughput":
        return THROUGHPUT
    if metric == TOKEN_RATE:
        return TOKENS
    return {"size": SIZE, "memory": MEMORY}.get(kind(metric), TIME)


def ratio_change(metric: str, ratio: Estimate) -> str:
    """The change of a time, throughput, size or memory, from its ratio candidate / source.

    Where the interval holds 1, there is no change to speak of: `same speed (0.97x to 1.04x)`,
    or `speed undecided (0.80x to 1.33x)` if it leaves room for one that people would notice. A factor that is not known
    within 2 is not shown: `speed undecided`, or `faster by an undecided factor`.
    """
    words, better = words_of(metric), improvement(metric, ratio)
    if ratio.low == ratio.high:
        return _exact_change(words, better.value)
    if better.low > 1:
        return _interval_text(better, words.better)
    if better.high < 1:
        return _interval_text(better.inverse(), words.worse)
    if not better.decided:
        return f"{words.noun} undecided"
    if better.high > NOTICED or better.low < 1 / NOTICED:
        return f"{words.noun} undecided ({better.low:.2f}x to {better.high:.2f}x)"
    return f"same {words.noun} ({better.low:.2f}x to {better.high:.2f}x)"


def quality_change(metric: str, before: float | None, after: float, limits: Iterable[float] = ()) -> str:
    """The value of a quality metric, and the source's: `accuracy 75.2 % (was 75.1 %)`."""
    decimals = 1
    if before is not None and before != after and f"{before:.1%}" == f"{after:.1%}":
        decimals = 2
    name = metric.replace("_", " ")
    if kind(metric) == "fidelity":
        return f"{name} with your model {figure_text(metric, after, decimals, limits)}"
    text = f"{name} {figure_text(metric, after, decimals, limits)}"
    if before is None:
        return text
    return f"{text} (was {figure_text(metric, before, decimals)})"


def estimate_text(metric: str, estimate: Estimate | None) -> str:
    """An estimate of `trial_estimate` or `model_estimate` in words: a change or a value; `-` for None."""
    if estimate is None:
        return "-"
    if is_ratio_metric(metric):
        return ratio_change(metric, estimate).removeprefix("speed ")
    return figure_text(metric, estimate.value, decimals=2)


def change_text(
    metric: str, model: ModelResult, source: Mapping[str, float], constraints: Iterable[Constraint] = ()
) -> str:
    """The change of one metric from the source to a model; empty if it was not measured.

    Metrics other than `latency_p50`, size and quality are named. A quality near a limit has the digit that decides.
    """
    if is_quality(metric):
        if metric not in model.metrics:
            return ""
        before = None if model.measured.identical_outputs else source.get(metric)
        limits = limits_of(metric, constraints, source)
        return quality_change(metric, before, model.metrics[metric], limits)
    if metric not in model.ratios:
        return ""
    return _named(metric, ratio_change(metric, model.ratios[metric]))


def change_of(metric: str, model: ModelResult) -> str:
    """The change of a metric from the source, beside its values; of a quality metric, the data that it was measured on.

    Empty for the source itself, and if nothing is known.
    """
    if model.is_source:
        return ""
    if not is_quality(metric):
        if metric not in model.ratios:
            return ""
        return ratio_change(metric, model.ratios[metric])
    if model.measured.items is None:
        return ""
    text = f"on {plural(model.measured.items, 'item')}"
    if model.measured.identical_outputs:
        return f"identical outputs {text}"
    return text


def trial_changes(trial: Trial, metrics: Iterable[str]) -> list[str]:
    """The figures of a trial in words: these metrics, then the size and the first quality metric."""
    quality = list(filter(is_quality, trial.metrics))[:1]
    changes = [trial_change(metric, trial) for metric in dict.fromkeys((*metrics, "size", *quality))]
    return list(filter(None, changes))


def trial_change(metric: str, result: Trial) -> str:
    """The change of one metric from the source to the model of a trial: `accuracy 75.2 %`; empty if unmeasured."""
    if is_quality(metric):
        if metric not in result.metrics:
            return ""
        limits = trial_limits(metric, result)
        return f"{metric} {figure_text(metric, result.metrics[metric].value, limits=limits)}"
    if metric not in result.ratios:
        return ""
    return _named(metric, ratio_change(metric, result.ratios[metric]).removeprefix("speed "))


def _named(metric: str, text: str) -> str:
    """The change of a time with the metric's name, unless it is `latency_p50`."""
    if metric == FIRST_TOKEN:
        return f"first token {text}"
    if words_of(metric) is TIME and metric != MEDIAN_LATENCY:
        return f"{metric} {text}"
    return text


def _exact_change(words: Words, better: float) -> str:
    if abs(better - 1) <= EQUAL:
        return f"same {words.noun}"
    word = words.better
    if better < 1:
        word, better = words.worse, 1 / better
    if better < SEVERAL and words in (SIZE, MEMORY):
        # `4 % smaller` is 4 % of the source, not of the candidate.
        share = 1 - 1 / better if word == words.better else better - 1
        return f"{share:.0%} {word}".replace("%", " %")
    return f"{better:.{_decimals(better)}f}x {word}"


def _interval_text(factor: Estimate, word: str) -> str:
    """`1.6x faster (1.5 to 1.6)`; without a number where the factor is not known within 2."""
    if not factor.decided:
        return f"{word} by an undecided factor"
    decimals = _decimals(factor.value)
    # A rounded range is not to seem to hold 1, or to be a single value.
    while decimals < MOST_DECIMALS and round(factor.low, decimals) in (1, round(factor.high, decimals)):
        decimals += 1
    low, high = f"{factor.low:.{decimals}f}", f"{factor.high:.{decimals}f}"
    return f"{factor.value:.{decimals}f}x {word} ({low} to {high})"


def _decimals(factor: float) -> int:
    if factor >= MANY:
        return 0
    if factor >= SEVERAL:
        return 1
    return 2
