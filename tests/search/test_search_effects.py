"""Effects of passes and values, estimated from trials and pooled over sources."""

import itertools
import math

import pytest

from autoopt.search.surrogates.effects import Effect, Factor, Scale, estimated_effects, pooled_effects

QUANTIZED, FOLDED = Factor("static_quantization"), Factor("constant_folding")
PER_CHANNEL = Factor("static_quantization", "per_channel", "true")
TRUE_EFFECTS = {QUANTIZED: math.log(0.5), PER_CHANNEL: math.log(1.1), FOLDED: math.log(0.95)}


def trials() -> list[tuple[set[Factor], float]]:
    """Each combination of the three factors, with exact outcomes."""
    rows: list[tuple[set[Factor], float]] = []
    for number in range(4):
        combinations = itertools.combinations(TRUE_EFFECTS, number)
        rows += [(set(present), sum(TRUE_EFFECTS[factor] for factor in present)) for present in combinations]
    return rows


def test_the_effect_of_each_factor_is_told_apart() -> None:
    effects = estimated_effects(trials(), Scale())
    for factor, effect in TRUE_EFFECTS.items():
        assert effects[factor].mean == pytest.approx(effect, abs=0.02)
        assert effects[factor].deviation < 0.05


def test_without_trials_nothing_is_estimated() -> None:
    assert estimated_effects([], Scale()) == {}
    assert estimated_effects([(set(), 0.0)], Scale()) == {}


def test_what_was_never_varied_alone_stays_uncertain() -> None:
    together = [({QUANTIZED, FOLDED}, -0.7)] * 5
    apart = [({QUANTIZED}, -0.7), ({FOLDED}, 0.0)] * 5
    uncertain, certain = (estimated_effects(rows, Scale())[QUANTIZED].deviation for rows in (together, apart))
    assert uncertain > 3 * certain


def test_sources_that_agree_make_an_effect_certain_and_others_do_not() -> None:
    def pooled(*means: float) -> Effect:
        return pooled_effects([(1.0, {QUANTIZED: Effect(mean, 0.001)}) for mean in means], Scale())[QUANTIZED]

    assert pooled(-0.7, -0.7, -0.7).deviation < pooled(-0.7, -0.7).deviation < pooled(-0.7, 0.7).deviation
    assert pooled(-0.7, -0.7, -0.7).mean == pytest.approx(-0.7, abs=0.05)
    assert pooled(-0.7, 0.7).mean == pytest.approx(0.0)


def test_a_source_of_less_weight_counts_less() -> None:
    sources = [(1.0, {QUANTIZED: Effect(-0.7, 0.001)}), (0.1, {QUANTIZED: Effect(0.7, 0.001)})]
    assert pooled_effects(sources, Scale())[QUANTIZED].mean < -0.4
