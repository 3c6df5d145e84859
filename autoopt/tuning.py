"""The numbers that steer what is proposed, searched, measured, stopped and chosen: the one table of them.

Each has its meaning, and the experiment that chose it; the docstring of its record names the command that repeats the
experiments. Numbers of formats and protocols, limits of what is read, and sizes of buffers stand where they are used.

`python -m benchmarks.search vary search.new_chain=0` replays searches with another value of a number of the search.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Proposal:
    """The graphs that autoopt proposes. `python -m benchmarks.zoo` runs the public models that the rules come from."""

    most_counted: int = 8
    """Layers up to which a number of them in float reaches far enough."""
    min_layers: int = 2
    """With one layer there is nothing to leave in float."""
    small_model: int = 2_000_000
    """Weights below which the calls of operators count, and a single thread may be fastest: the work is little."""
    large_decoder: int = 100_000_000
    """Weights from which decoders begin with few bits. Each token reads all weights, and each trial takes minutes:
    with GPT-2's 124 million, fusion and 4 bits made 3.3 times as many tokens per second."""
    tiny_weights: int = 10_000
    """Weights of a model without convolutions below which an inference takes microseconds. In integers, dense
    models took 1.4 to 1.5 times as long at batch 1 and 1.0 to 1.4 times at batch 32, an LSTM of 6,000 weights 1.2
    times."""
    max_out_of_reach: float = 0.95
    """Share of the layers' weights in operators that a method leaves as they are above which it gains nothing."""
    fewest_clips: int = 3
    """Clips from which they may be parts of hard sigmoids: one or two bound a value, as an exponent or a
    coordinate."""
    max_float_bytes: int = 2 << 30
    """Size of the float form of a quantized model above which it is not tried."""
    max_histogram_bytes: int = 1 << 30
    """Size of a model above which calibration that keeps histograms of every activation is not tried."""
    conv_share: float = 0.5
    """Share of the layers' weights in convolutions from which dynamic quantization comes late: it leaves them in
    float, and took 0.88 and 1.01 of the time of two such models."""
    late_weight: float = 0.99
    """Weight of chains that come after the others."""
    early_weight: float = 1.1
    """Weight of preparation alone where it comes first."""
    few_trials: int = 6
    few_minutes: int = 2


PROPOSAL: Final = Proposal()


@dataclass(frozen=True)
class Search:
    """The sampler `surrogate`. `python -m benchmarks.search vary` replays recorded and synthetic tables.

    Figures are evaluations until a good point, as geometric means of replays, with another value -> with this one.
    """

    pool: int = 20_000
    """Largest space, in points, that is enumerated; larger ones are sampled."""
    random: int = 400
    """Points drawn at random from a larger space at each step."""
    mixed: int = 600
    """Mixtures of good points that are drawn then; at most, because some repeat others."""
    anew: float = 0.7
    """Probability that one node of a mixture gets settings that no good point need have."""
    exploration: float = 0.5
    """Weight of exploration in `max_ucb`; the value of the paper."""
    diverse: int = 6
    """Unlike chains that get an initial point where not every chain gets one; at most half of the budget."""
    initial_share: float = 0.2
    initial_chains: int = 20
    """Every chain gets an initial point if that takes no more than this share of the budget and this many
    points."""
    after_failures: int = 1
    """Failures of a chain without any success after each of which another of its points is tried."""
    max_losses: int = 2
    """Points that were no better with settings, after which no more are tried; one may be bad luck on a busy
    machine."""
    good: int = 10
    """Best points that are mixed in spaces that are too large to enumerate; with several objectives those of the
    front."""
    new_chain: int = 3
    """In such spaces, each trial whose number is a multiple of this is of a chain without any. What the settings
    of a chain can gain shows only after some trials, so tuned chains hide better ones."""
    min_points: int = 2
    """Results with all of several objectives after which the models suggest better points, given prior points."""
    max_repeats: int = 100
    """Points that repeat a known candidate from which the models learn too; more cost time and teach little."""
    equal: float = 0.02
    """Scores (logarithms) within this distance of the best one are equal."""
    max_compared: int = 16
    """Equals whose work is compared; a random selection of more."""
    min_certainty: float = 0.02
    max_certainty: float = 0.98
    """Bounds of P(feasible)."""
    failure_lengths: tuple[float, ...] = (1.25, 2.0, 3.2, 5.0)
    """Length scales of failures, which are averaged."""
    failure_noises: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0, 10.0)
    """Variances of what comes at random among failures, relative to that of the rules that neighbours share."""
    many_values: int = 12
    """A numeric setting with more values than this is one number, without a column for each value."""
    many_chains: int = 200
    """With more chains than this, the chain itself is no feature."""
    chain_weight: float = 0.4
    """Distance of two chains that have the same passes; 1 is the distance of a chain with a pass from one without
    it."""
    value_weight: float = 0.7
    """Distance of two values of a setting, in the same unit."""
    front_draws: int = 64
    """Draws of what all candidates are worth; a multiple of `scales`."""
    lengths: tuple[float, ...] = (0.5, 0.8, 1.25, 2.0, 3.2, 5.0, 8.0)
    """Length scales that are tried, in units of the features."""
    noises: tuple[float, ...] = (1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3)
    """Variances of the noise that are tried, relative to that of the function."""
    min_variance: float = 0.05
    max_variance: float = 20.0
    """Bounds of the function's variance, of standardised values."""
    max_observations: int = 300
    """Observations that a model learns from; its cost grows with their cube."""
    draws: int = 256
    """Draws from a posterior."""
    scales: int = 8
    """Draws of the scales among them."""
    considered: int = 300
    """Points that may be the best of all; the others are too unlikely to matter."""
    least_extent: float = 0.02
    """Distance between good losses and the best one below which differences are noise: 2 % of a time."""
    beyond: float = 0.1
    """Distance of the reference point from the worst feasible losses, relative to their distance from the best."""
    least_beyond: float = 0.02
    """The same at least: 2 % of a time or size, or two points of accuracy."""
    min_trials: int = 10
    """Trials before a search may stop because nothing promises enough."""
    untimed: int = 10
    """Trials per stage if only time limits the search, which a sampler does not see; the last stage is
    unlimited."""


SEARCH: Final = Search()


@dataclass(frozen=True)
class Stopping:
    """The end of a search. `python -m benchmarks.search stop` repeats the replays of the README beside it."""

    little: float = 0.01
    """Relative improvement that is not worth a longer search."""
    sure: float = 0.9
    """Probability of a bound of the gain, as replays show."""
    drawn_below: float = 0.98
    """Share of the drawn gains below the bound, before it is widened."""
    widened: float = 1.5
    """Factor on that bound, because the draws are too certain: without it, 85 to 87 % of the bounds held on
    synthetic tables; see benchmarks/search."""
    min_candidates: int = 12
    """Distinct candidates before a search may stop, in a space of twice as many or more."""
    min_share: float = 0.6
    """Share of the candidates of a smaller space; in replays of 10 to 28 points, 98 % of the messages were right
    then."""
    fewest_candidates: int = 6
    many_without_gain: int = 18
    """Distinct candidates without a gain after which a search stops, whatever the model promises: in a large
    space, it is never certain."""
    left_without_gain: float = 0.02
    """Least bound that is given then: the draws may be certain that nothing is left where little was tried."""
    trusted_gain: float = 0.06
    """Expected gain above which a search without gains may have missed much, so that only the bound of the draws
    holds."""
    shown_deviations: float = 2.0
    """Standard deviations of the noise that an expected gain must exceed to be worth a longer search."""
    most_little: float = 0.02
    """Expected gain that always is, because what looks like much noise may be structure."""
    doubted: int = 5
    """Further ones after which its deviations count twice; after as many again, three times."""
    turn: int = 3
    """Candidates with a multiple of this number are chosen without doubt: a limit may leave good points near bad
    ones."""
    horizon: int = 10
    """Trials in which the expected gain comes, in replays."""


STOPPING: Final = Stopping()
