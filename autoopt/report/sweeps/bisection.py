"""The outcome of a bisection: a sentence, the combinations that were measured, and the operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TextIO

from autoopt.metrics import MEDIAN_LATENCY, Estimate
from autoopt.report.elements.table import Table, write_lines, write_table
from autoopt.report.words.change import ratio_change
from autoopt.report.words.formatting import number_text, short
from autoopt.results.bisection import Bisection, OperatorDifference, Variant

MOST_OPERATORS: Final = 8
SHARE: Final = 0.5
"""Share of the whole change from which a type of operators is named as the place of the change."""


def write_bisection(bisection: Bisection, stream: TextIO) -> None:
    """Write the sentence, then the tables."""
    write_lines([sentence(bisection), *remarks(bisection)], stream)
    for table in tables(bisection):
        write_table(table, stream)


def sentence(bisection: Bisection) -> str:
    """The cause: `onnxruntime 1.30.0 -> 1.31.1 makes cnn 1.40x slower (1.35 to 1.44); nothing else changed.`."""
    total = bisection.total
    model = bisection.model
    if not bisection.factors:
        return f"Nothing that autoopt records has changed for {model}: the machine or chance made the difference."
    if total is None or total.ratio is None:
        reason = total.reason if total is not None else "it was not measured"
        return f"{model} cannot be compared with the earlier night: {reason}."
    if not total.ratio.excludes_one:
        return _unchanged(bisection, total.ratio)
    if not bisection.cause:
        return f"{model} is {_speed(total.ratio)}, but no single change and no pair of changes explains it."
    causes = [factor.text for factor in bisection.factors if factor.name in bisection.cause]
    verb = "together make" if len(causes) > 1 else "makes"
    place = _place(bisection.operators, slower=total.ratio.value > 1)
    return f"{' and '.join(causes)} {verb} {model} {_speed(total.ratio)}{place}; {_others(bisection)}."


def _unchanged(bisection: Bisection, ratio: Estimate) -> str:
    if not ratio.decided:
        return f"Measured in turns, the ratio of {bisection.model} to the earlier night is undecided: a busy machine."
    numbers = f"{ratio.value:.2f}x, {ratio.low:.2f} to {ratio.high:.2f}"
    text = f"Measured in turns, {bisection.model} is as fast as on the earlier night ({numbers})"
    if bisection.source is not None and bisection.source.excludes_one:
        return f"{text}, but its source is {_speed(bisection.source)}, which the ratio to it shows."
    return f"{text}: no change made it slower."


def _speed(ratio: Estimate) -> str:
    """`1.40x slower (1.35 to 1.44)`."""
    if not ratio.decided:
        return f"{'slower' if ratio.value > 1 else 'faster'} by an undecided factor"
    if ratio.value > 1:
        return f"{ratio.value:.2f}x slower ({ratio.low:.2f} to {ratio.high:.2f})"
    inverse = ratio.inverse()
    return f"{inverse.value:.2f}x faster ({inverse.low:.2f} to {inverse.high:.2f})"


def _place(operators: Sequence[OperatorDifference], *, slower: bool) -> str:
    """The type of operators that most of the change lies in: `, above all its MatMulInteger (520 to 740 us)`."""
    whole = sum(row.after - row.before for row in operators)
    if not operators or (whole > 0) != slower:
        return ""
    first = operators[0]
    if (first.after - first.before) / whole < SHARE:
        return ""
    return f", above all its {first.op_type} ({number_text(first.before)} to {number_text(first.after)} us)"


def _others(bisection: Bisection) -> str:
    """The effect of the changes that are no cause."""
    others = [v for v in bisection.variants[1:] if len(v.changed) == 1 and v.changed[0] not in bisection.cause]
    effects = []
    for variant in others:
        if variant.ratio is None:
            effects.append(f"{variant.changed[0]} could not be measured alone")
        elif variant.ratio.excludes_one:
            effects.append(f"{variant.changed[0]} alone makes it {_speed(variant.ratio)}")
    if effects:
        return ", ".join(effects)
    if not others:
        return "nothing else changed"
    return "everything else changes nothing"


def remarks(bisection: Bisection) -> list[str]:
    """Circumstances that the sentence leaves out."""
    lines = []
    if bisection.not_varied:
        lines.append(f"also changed, and not varied: {'; '.join(bisection.not_varied)}")
    if bisection.busy:
        lines.append("the machine was busy or unsteady meanwhile: treat the ratios as approximate")
    return lines


def tables(bisection: Bisection) -> list[Table]:
    """The combinations that were measured, and the operators of both nights' models."""
    rows = tuple(_row(bisection, variant) for variant in bisection.variants)
    title = f"{bisection.model}: sweep {short(bisection.before) or 'of the release'} -> {short(bisection.sweep)}"
    variants = Table(("changed", "latency", "note"), rows, title=title, right=frozenset({1}))
    if not bisection.operators:
        return [variants]
    cells: list[tuple[str, ...]] = []
    for row in bisection.operators[:MOST_OPERATORS]:
        figures = map(number_text, (row.before, row.after, row.after - row.before))
        cells.append((row.op_type, *figures))
    columns = ("operators", "before, us", "after, us", "difference")
    profile = Table(columns, tuple(cells), title="operators of one inference", right=frozenset({1, 2, 3}))
    return [variants, profile]


def _row(bisection: Bisection, variant: Variant) -> tuple[str, str, str]:
    texts = {factor.name: factor.text for factor in bisection.factors}
    changed = " and ".join(texts[name] for name in variant.changed) or "nothing"
    if len(variant.changed) == len(bisection.factors) > 1:
        changed = "everything"
    ratio = ratio_change(MEDIAN_LATENCY, variant.ratio) if variant.ratio is not None else "-"
    return (changed, ratio, variant.reason)
