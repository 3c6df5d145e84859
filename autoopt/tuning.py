"""The numbers that steer what is proposed, searched, measured, stopped and chosen: the one table of them.

Each has its meaning with its unit, and the experiment that chose it, as far as there was one; the docstring of its
record names the command that repeats the experiments. What can be derived is derived. Numbers of formats and protocols,
limits of what is read, and sizes of buffers stand where they are used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Proposal:
    """The graphs that autoopt proposes. `python benchmarks/zoo/table.py` runs the public models behind the rules."""

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
    """Trials for a model of which little is expected: a tiny one, or one without products and convolutions."""
    few_minutes: int = 2
    """Minutes for such a model."""


PROPOSAL: Final = Proposal()


@dataclass(frozen=True)
class Search:
    """The sampler `surrogate`. `python -m benchmarks.search vary stopping.turn=1000000` replays with another value.

    Figures are evaluations until a good point (geometric means), with the other value -> with this one: 20 or 40 tables
    of each synthetic kind, 6 to 12 seeds of each recorded table. `large` is the best latency after 90 evaluations.
    Sizes of samples, draws and pools without a figure bound the CPU time of a suggestion, which
    `python -m benchmarks.search cost` tells.
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
    """Chains that get an initial point, those that have least in common; at most half of the budget. Without
    initial points: M 18.8 -> 16.5, with 30 % failures 23.4 -> 19.7, one in ten feasible 22.4 -> 19.2; S 8.5 -> 10.1.
    Chains as they come instead of unlike ones: morphemes 33 -> 27, dtln_stage2 10.2 -> 6.6, M 15.1 -> 16.5."""
    after_failures: int = 1
    """Failures of a chain without any success after each of which another of its points is tried. 0: M with 30 %
    failures 22.3 -> 19.7, and 4 -> 0 of 40 not within 100; S one in ten feasible 13.7 -> 12.4."""
    max_losses: int = 2
    """Points that were no better with settings, after which no more are tried; one may be bad luck on a busy
    machine. 0 (no trials of settings first): morphemes 35 -> 27, minilm_l6 10.7 -> 8.8,
    `cifar10_resnet8 (tight)` 21.9 -> 24.0."""
    good: int = 10
    """Best points that are mixed in spaces that are too large to enumerate; with several objectives those of the
    front."""
    new_chain: int = 3
    """In such spaces, each trial whose number is a multiple of this is of a chain without any. What the settings
    of a chain can gain shows only after some trials, so tuned chains hide better ones. Never: large 9.8 +- 8.6 %
    slower on 12 spaces."""
    max_repeats: int = 100
    """Points that repeat a known candidate from which the models learn too; more cost time and teach little. 0:
    morphemes 35 -> 29, recorded tables 2.3 +- 1.3 % later."""
    equal: float = 0.02
    """Scores (logarithms) within this distance of the best one are equal. 0: M with 30 % failures 26.3 -> 20.8,
    morphemes 33 -> 29, all synthetic tables 7.3 +- 3.1 % later."""
    max_compared: int = 16
    """Equals whose work is compared; a random selection of more."""
    least_doubt: float = 0.02
    """Lowest probability that a point is feasible, and that it is not. 0.1: morphemes 37 -> 29, M with 30 % failures
    25.2 -> 20.8, all synthetic tables 4.3 +- 2.7 % later."""
    failure_lengths: tuple[float, ...] = (1.25, 2.0, 3.2, 5.0)
    """Length scales of failures, which are averaged by their likelihood with `failure_noises`. One length and noise:
    M with 30 % failures 21.5 -> 19.7, and 3 -> 0 of 40 not within 100; all 240 synthetic tables 6.5 +- 2 % later.
    The model of broken constraints instead of one of their own: M with 30 % failures 24.2 -> 20.8."""
    failure_noises: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0, 10.0)
    """Variances of what comes at random among failures, relative to that of the rules that neighbours share."""
    many_values: int = 12
    """A numeric setting with more values than this is one number, without a column for each value. 0: all synthetic
    tables 12 +- 4 % later, and 14 instead of 3 of 240 not within 100."""
    many_chains: int = 200
    """With more chains than this, the chain itself is no feature: a column for each would take most of the time."""
    chain_weight: float = 0.4
    """Distance of two chains that have the same passes; 1 is the distance of a chain with a pass from one without
    it. 0: M with 30 % failures 22.7 -> 19.7, all synthetic tables 3.3 +- 1.8 % later; morphemes 31 -> 27."""
    value_weight: float = 0.7
    """Distance of two values of a setting, in the same unit. 0.4: minilm_l6 12.8 -> 8.8, M 15.4 -> 13.6, M with one in
    ten feasible 21.2 -> 17.0; `cifar10_resnet8 (tight)` 16.8 -> 24.0, S with 30 % failures 11.4 -> 13.1."""
    front_draws: int = 64
    """Draws of what all candidates are worth; a multiple of `scales`."""
    lengths: tuple[float, ...] = (0.5, 0.8, 1.25, 2.0, 3.2, 5.0, 8.0)
    """Length scales that are tried, in units of the features. Only 2.0: `cifar10_resnet8 (tight)` 31 -> 24, morphemes
    32 -> 29, M 15.5 -> 13.6; S with 30 % failures 12.1 -> 13.1."""
    noises: tuple[float, ...] = (1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3)
    """Variances of the noise that are tried, relative to that of the function. Only 0.01: morphemes 34 -> 29, recorded
    tables 2.2 +- 0.9 % later, synthetic ones 0.4 +- 1.0 % sooner."""
    largest_variance: float = 20.0
    """Bound of the function's variance, of standardised values; the least one is its inverse."""
    max_observations: int = 300
    """Observations that a model learns from; its cost grows with their cube."""
    draws: int = 256
    """Draws from a posterior."""
    scales: int = 8
    """Draws of the scales among them."""
    considered: int = 300
    """Points that may be the best of all; the others are too unlikely to matter."""
    least_extent: float = 0.02
    """Distance between good losses and the best one below which differences are noise: 2 % of a time. Losses of the
    worse half that are not compressed: M 17.1 -> 16.5, one in ten feasible 20.0 -> 19.2."""
    beyond: float = 0.1
    """Distance of the reference point from the worst feasible losses, relative to their distance from the best. Beyond
    the front instead: M 0.770 -> 0.795 of the hypervolume, S 0.844 -> 0.839."""
    least_beyond: float = 0.02
    """The same at least: 2 % of a time or size, or two points of accuracy."""


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
    """Distinct candidates before a search may stop, in a space of twice as many or more. A stage of a search that only
    time limits, which a sampler does not see, gets as many trials."""
    min_share: float = 0.6
    """Share of the candidates of a smaller space; in replays of 10 to 28 points, 98 % of the messages were right
    then."""
    fewest_candidates: int = 6
    """Candidates that the smallest space needs."""
    many_without_gain: int = 18
    """Distinct candidates without a gain after which a search stops, whatever the model promises: in a large
    space, it is never certain."""
    left_without_gain: float = 0.02
    """Least bound that is given then: the draws may be certain that nothing is left where little was tried."""
    trusted_gain: float = 0.06
    """Expected gain above which a search without gains may have missed much, so that only the bound of the draws
    holds."""
    shown_deviations: float = 2.0
    """Standard deviations of the noise that an expected gain must exceed to be worth a longer search. 0: S ends after
    20.1 -> 16.8 candidates, M after 29.7 -> 27.9, recorded tables after 12.2 -> 11.7, with as many right messages."""
    most_little: float = 0.02
    """Expected gain that always is, because what looks like much noise may be structure."""
    doubted: int = 5
    """Candidates without a gain, beyond `many_without_gain`, after which the deviations of the process count twice;
    after as many again, three times. No doubt: morphemes 36 -> 27, all 240 synthetic tables 1.9 +- 0.8 % later."""
    turn: int = 3
    """Candidates with a multiple of this number are chosen without doubt: a limit may leave good points near bad
    ones. Never: `cifar10_resnet8 (tight)` 44 -> 24, M with 30 % failures 20.9 -> 19.7."""
    horizon: int = 10
    """Trials in which the expected gain comes, in replays."""


STOPPING: Final = Stopping()


@dataclass(frozen=True)
class Timing:
    """Timing. `python benchmarks/measurement/measure.py` holds ratios against a plain loop, also on busy machines."""

    lead_ns: float = 1e6
    """Untimed inferences before a block, in ns: the other models have used the caches, and their threads still
    spin for a while."""
    lead_on_several_threads_ns: float = 8e6
    """The same for a model on several threads. A transformer of 0.43 ms took 15 % longer in the second millisecond
    after another model's turn, 3 % in the fourth and 1 % in the sixth, its smaller candidate 8, 1 and 0 %; on one
    thread 4, 1 and 0 %. Beside other programs, four models needed 3 to 10 ms."""
    block_ns: float = 2.5e6
    """Length of a block in ns. Short blocks alternate often, so that a disturbance meets all models: beside other
    programs, the ratio of two models of 3 ms with a true ratio of 0.95 was 0.93 to 1.00 in blocks of 4 ms after a
    lead-in of 3 ms, 0.94 to 0.96 in short ones."""
    lead_calls: int = 2
    """Fewest inferences of a lead-in, unless they take longer than `long_lead_ns`. Without any, two models of 6 and
    11 ms had a ratio of 0.59; with five inferences, 0.57."""
    long_lead_ns: float = 5e7
    """Longest lead-in of that many inferences, in ns."""
    block_calls: int = 2
    """Fewest inferences of a block, unless they take longer than `long_block_ns`."""
    long_block_ns: float = 2e7
    """Longest block of that many inferences, in ns."""
    long_ns: float = 2e8
    """Time of one inference, in ns, from which cold caches at its start no longer matter. A model of 5 ms that ran
    after another one took 3 % longer, and its partner of 3 ms 8 %."""
    largest_block: int = 4096
    """Inferences of one block at most, for models of well below a microsecond."""
    disturbed: float = 0.05
    """Share of a block that others cost it, up to which the block counts as undisturbed."""
    switch_ns: float = 5e4
    """Time in ns that a preemption costs on the core, because the caches are cold afterwards. Beside two or eight
    busy processes, blocks of seven models took 20 to 100 microseconds of CPU time longer for each preemption."""
    helper_ns: float = 1e6
    """Time in ns for which a model waits if one of its other threads loses its core: part of a time slice."""
    slow_block: float = 0.1
    """Largest slowdown of an undisturbed block, compared with the fast blocks of its replica. Something outside
    the virtual machine slowed an fp32 model by 18 % and its int8 candidate by 55 %, for ten seconds and more at a
    time."""
    many_calls: int = 50
    """Calls in a block from which a clock of the core is not read at each: it costs half a microsecond, and a
    preemption hits one call of many, which the block's median does not notice."""
    window: int = 3
    """Blocks whose median is compared with the median of as many blocks before, while warming up."""
    worthwhile_shrinking: float = 0.2
    """Share of its width by which an interval that will not become narrow enough must shrink until the time is up,
    to make more repeats worthwhile. Where sessions differ, more repeats in them do not help: for a model of 0.06
    ms on a shared machine the interval was about as wide after 24 pairs of blocks as after 180."""
    fewest_pairs: int = 3
    """Pairs of blocks below which nothing can be said about their spread."""
    wide: float = 0.1
    """Relative width from which an interval is wide."""
    pairs_if_wide: int = 6
    """Fewest pairs of blocks of a wide interval."""
    pairs: int = 12
    """Fewest pairs of blocks of other intervals."""
    hopeless: float = 1.5
    """Factor to the best candidate so far from which a look at one session of each model is enough to give a candidate
    up. Sessions differ by 1 to 3 %, a few by a quarter for as long as they live."""
    hopeless_where_busy: float = 2.0
    """The same beside other programs. Beside ten busy processes, a ratio of 1.33 of models on two threads looked like
    1.3 to 2.0."""
    first_share: float = 0.02
    """Share of the time for warming up the first session of a model."""
    next_share: float = 0.01
    """Share of the time for warming up each further session."""
    drift: float = 0.1
    """Relative drift of the source's blocks above which the machine counts as disturbed."""
    spread: float = 0.3
    """Relative spread of the source's blocks above which the machine counts as disturbed."""
    clock_share: float = 0.1
    """Share of the setting `seconds` for measuring by the clock where the machine is busy. More of it says little: in
    5 to 7 s beside eight busy processes, intervals of six models were 8 to 40 % wide on each side, and other programs
    add 20 % whatever the time."""
    cpu_share: float = 0.4
    """Share of the setting `seconds` for measuring on one thread."""
    one_thread_replicas: int = 3
    """Most sessions of each model on one thread: beside the error of `difference`, more tell nothing. With four
    sessions and twelve rounds, intervals were 1 to 4 % wide on each side beside eight busy processes."""
    one_thread_rounds: int = 6
    """Most rounds of blocks on one thread."""
    beyond_sessions: int = 8
    """The number of sessions of each model that `beyond_processes` was found with."""
    unequal: float = 4.0
    """Variance of the medians of sessions, relative to what pairs within them explain, from which sessions differ.
    Of equal sessions, one measurement in fifty exceeds it with four sessions, one in five hundred with eight (F
    distribution)."""
    rare_outliers: float = 0.01
    """Share of inferences up to which outliers are blamed on the operating system."""
    steady_pace: float = 0.06
    """Largest slowdown of the source over a whole measurement, compared with its better times. On an idle machine
    it was up to 4 % slower; on one shared with other virtual machines, the ratio of an int8 LSTM was 8 % off in a
    process in which the source was 7 % slower."""
    busy_load: float = 0.2
    """Load of other processes, in cores, from which a machine counts as busy."""
    known_seconds: float = 5.0
    """Time for which a machine counts as what it was during a measurement: looking takes longer than many a
    measurement, whose own load is known afterwards anyway. Beside eight busy processes, looking took a third of a
    short run."""
    sample_seconds: float = 0.05
    """Time over which that load is sampled; shorter samples are too coarse for the kernel's 10 ms ticks."""
    longest_with_precedence: float = 0.1
    """Seconds of an inference above which models get no precedence: others would wait for too long."""
    lasting_share: float = 0.5
    """Width of an interval that is narrow enough beside other programs, relative to that of the error which more
    repeats do not reduce: less would make the whole interval narrower by a tenth at most."""
    wide_by_clock: float = 0.2
    """Relative width of the interval by the clock from which the ratio on one thread is measured too, on any
    machine."""
    look_disturbance: float = 0.2
    """`disturbance` of a look of three pairs of blocks."""
    large_operators_ns: float = 2e6
    """Time of an inference, in ns, from which some operator is large enough to be shared out."""
    counted_ns: float = 20e6
    """Time of the calls in which wake-ups count, in ns. As many before let the helpers of other sessions fall
    asleep."""
    fewest_calls: int = 50
    """Calls that count at least."""
    rare_waits: float = 0.02
    """Waits of helper threads for each inference up to which the model wakes none: helpers of other sessions may
    fall asleep meanwhile. Beside 17 runnable threads, ten models with operators that are shared out had 0.17 to 40
    in blocks of 20 ms, three others none in twelve blocks each."""
    doubling: float = 0.05
    """Contention for each doubling of the threads that share a core. Beside 16 runnable threads on two cores,
    ratios of CPU times of 0.4 to 0.8 were off by 1 to 25 % of the gain (root of the mean square: 13 %), the same
    in each measurement."""
    other_loop: float = 0.01
    """The same on a quiet machine. In 97 runs, ratios of 0.36 to 0.81 differed from those of a plain loop in other
    processes by 0.8 to 3 % of the gain, for each model in one direction; with this error 94 intervals hold the
    loop's."""
    difference: float = 0.14
    """Standard deviation, in logarithms, of the difference between a ratio on several threads and the one that
    `on_several_threads` expects."""
    shared_gain: float = 0.75
    """Share of a gain on one thread, in logarithms, to expect on several. Models of which 2 to 30 microseconds of
    work fall to each operator gain less, because operators that take less time share it out among threads less
    well. Of 39 ratios without other programs on two cores, 35 lie in the intervals that this and
    `TIMING.difference` make."""
    overhead: float = 0.05
    """Logarithm of the time of a model whose threads have no core of their own, relative to that on one thread,
    and its error: models of 0.03 ms took 4 to 6 % longer beside seven runnable threads, others up to 9 % beside
    fourteen."""
    common: float = 0.95
    """Share of the variance of lasting errors that the candidates of a model have in common. Ratios on one thread
    of 9 to 16 candidates of two models, in three runs each at loads of 8 to 20, were off against each other by 1
    to 1.8 %."""
    disturbance: float = 0.14
    """Standard deviation, in logarithms, of what other programs add to a ratio of several threads by the clock,
    beyond its interval: a ratio of 1 was measured as 0.84 (0.72 to 0.99) and 0.85 (0.79 to 0.92). It is the same
    each time, as threads that do not get their cores leave the ratio on one: 0.66 and 0.67 beside 18 runnable
    threads, where without them it was 0.785, and 0.585 on one thread."""
    usual_scale: float = 0.005
    """Scale of the prior on a quiet machine: the ratio of two models differs from process to process by 0.4 %."""
    beyond_processes: float = 0.008
    """Half-width, in logarithms, of the differences between processes, which no session of one process shows: the
    ratio of two models of 0.1 ms, measured for 3 s in each of 20 processes, spread by 0.3 %. The interval is to
    hold in another process, and both the estimate and that process have this error: 1.96 * 0.3 % * sqrt(2)."""
    wide_prior: float = 2.0
    """Standard deviation of the prior of a log ratio."""
    posterior_draws: int = 2000
    """Draws from the posterior: a probability of 0.975 is then known to about 0.004."""
    screening_width: float = 0.1
    """Relative width of the interval of a ratio that tells which candidates may be the best."""
    screening_replicas: int = 2
    """Sessions of each model for that: of two that differ, one is slow for as long as it lives."""
    throughput_rounds: int = 8
    """Turns of all models in random order, so that a change of the machine's pace meets all of them."""
    brief_seconds: float = 0.5
    """Time for measuring a candidate whose executed graph is the source's, so that its ratios are known."""


TIMING: Final = Timing()


@dataclass(frozen=True)
class Race:
    """The race of the best, and the time of a run. `python benchmarks/measurement/measure.py` runs known ratios."""

    worthwhile: float = 0.01
    """Expected relative gain, on the leader or on the source, up to which a candidate is not worth more rounds."""
    open_gain: float = 0.02
    """Expected relative gain that may be missed, from which the answer is not decided."""
    fewest_rounds: int = 2
    """Rounds of the leader in addition to its trial, because the best of many trials was also a lucky one."""
    most_rivals: int = 6
    """Candidates measured in turns in one round."""
    most_bytes: int = 1 << 30
    """Size of all models that are measured in turns; the leader and its first rival may be larger."""
    most_pooled: int = 50
    """Candidates that take part at most: pooling takes time with the third power of the number of measurements."""
    few_best: int = 3
    """Number of the best candidates that are measured again if the goal is not speed alone."""
    busy_factor: int = 5
    """Factor on the time of rounds that also measure on one thread, because other programs disturb several, as
    long as the gain on the source is not certain."""
    extension: int = 2
    """Factor on the setting `rounds`, for a race that is not decided by then."""
    largest_share: float = 0.25
    """Largest share of the run's time that is set aside before the first race."""
    few_rivals: int = 2
    """Candidates beside the leader when a race continues; earlier rounds have rejected the others."""
    half_width: float = 0.03
    """Relative half-width of an interval that is narrow enough."""
    gain_share: float = 0.1
    """The same relative to the gain, in logarithms, where it is certain: a ratio of 0.5 known to 7 %, or one of
    0.25 known to 14 %, needs no more rounds."""
    floor_factor: float = 1.1
    """The same for measurements on one thread too, relative to the error that no repetition reduces."""
    pace_share: float = 0.3
    """Share of the changes of the source's time that its ratio to a candidate shows. Where the host slowed a
    source by 20 to 60 %, ratios of quantized models moved by 0 to 30 %."""
    heap_ms: float = 1e-4
    """Standard deviation of what the state of the heap changes in an inference, in ms: one of 12.5 microseconds
    took 11.8 to 12.9, depending on other open sessions."""
    certain: float = 0.975
    """Probability of a gain from which it counts: a two-sided 95 % interval is then wholly better than the
    source."""
    tolerance: float = 0.1
    """Relative difference from the expected ratio that counts as the same: the width to which trials are
    measured."""
    shared_cores: int = 3
    """Durations of the longest trial so far that must be left for one beside others: both take longer then, and
    without time for two, one that ends says more than two that are cut off."""
    last_chance: float = 0.5
    """Share of the shortest trial's time that must be left for another one while nothing is better than the
    source. Later trials take less time than the first ones, because they share passes and need not share the
    cores."""
    overrun: float = 0.5
    """Share of the time for deciding that the last trial may use."""
    check_share: float = 0.15
    """Share of the run's time after which the check of a slow model is given up."""
    check_seconds: float = 5.0
    """Time for the check of a short run, up to half of the run's: small models need it on a busy machine."""
    writing_share: float = 0.02
    """Largest share of the time that writing takes."""
    failed_repairs: int = 8
    """The number of candidates that may fail in a row if the source does not run either."""
    too_slow: float = 1.5
    """Latency ratio from which a candidate is not worth more measurements where the latency is the only objective:
    being smaller or more accurate than the source does not make up for it."""
    sittings: int = 8
    """Sittings, in each of which every deployment has a new process: two processes of one deployment differ for as
    long as they live, up to a factor on several threads, so the interval is over sittings."""
    room: float = 2.0
    """Factor by which the interval of another target than the first may widen and still exclude a loss: whoever
    changes the runtime for it must not find the contrary in the next run."""
    late_seconds: float = 15.0
    """Seconds after the end of the time in which the first sittings, without which there is no interval, may go
    on."""
    contenders: int = 3
    """Models of each target that the machines of work pools measure as well."""
    targets_search_share: float = 0.85
    """Share of the run's minutes for the searches; the rest is for timing the best of each target in turns."""
    set_search_share: float = 0.7
    """Share of the run's minutes for the searches; the rest is for measuring the whole set."""
    fallbacks: int = 4
    """Most models of a part that are tried in the set."""
    joint_seconds: float = 60.0
    """Least time for measuring the whole set."""


RACE: Final = Race()


@dataclass(frozen=True)
class Changes:
    """The thresholds of a change from night to night. `tests/zoo/test_zoo_lasting_changes.py` simulates series."""

    min_nights: int = 3
    """Fewest nights of a level: one or two restless nights are none."""
    penalty: float = 3.0
    """Price of a level in units of noise x ln(nights)."""
    few_nights: float = 4.0
    """The noise is raised by this share of itself per step between nights: few steps may seem calmer than they
    are. In 21,000 simulated series of 6 to 30 nights without a change (2 % of normal or Laplace noise), 18 had one
    of 2 % or more; 161 with the median of the steps and without this. A drift of 1 % a week was found within eight
    weeks in 150 of 150 series with 1 % of noise (150 before), and in 137 with 2 % (141 before)."""
    calm_share: float = 0.75
    """Share of the steps between nights, the smallest ones, that tell the noise: a change of level is not among
    them."""
    least_noise: float = 0.002
    """Lowest noise of a series, as a share of its level: exact figures such as sizes have none."""
    relevant: float = 0.02
    """Smallest lasting change that is reported, as a share of the level."""
    min_switches: int = 2
    """A model that stops and starts working so often is flaky."""
    drift: float = 0.25
    """Relative deviation of the source's own latency from earlier nights that counts as a change. It is large
    because a machine has good and bad nights, and only ratios are paired."""
    usual_nights: int = 7
    """Number of earlier nights that define the usual range."""


CHANGES: Final = Changes()


@dataclass(frozen=True)
class Quantization:
    """Data for quantizers, and layers that stay in float. `python benchmarks/zoo/table.py` quantizes public models."""

    max_items: int = 256
    """Calibration items that ranges need at most; more change them little."""
    max_elements: int = 1 << 25
    """Elements of all inputs that ranges need at most: each value of an image meets the same filters as its
    neighbours."""
    fewest_items: int = 16
    """Calibration items of large inputs."""
    widest_scores: float = 256.0
    """Span of what a Softmax reads that 8 bits hold in steps of 1. Scores that a mask lowers by 10,000 stay in
    float."""
    fewest_steps: int = 4
    """Number of steps of the scale below which the largest value of a Softmax says nothing."""
    correction_items: int = 16
    """Calibration items that the mean errors for bias correction are taken from; fewer of large ones."""
    little_work: float = 0.001
    """Share of the work below which a layer costs next to nothing in float."""
    few_elements: int = 1 << 21
    """Input elements from which the noise of a layer is well known."""
    compared_values: int = 1 << 16
    """Values of the outputs from which their noise is well known."""
    fewest_compared: int = 4
    """Items for that, however large."""
    kept_rows: int = 2048
    """Rows of each input of a product that AWQ and GPTQ see."""
    compared_rows: int = 512
    """Rows of a product that AWQ compares at most for one exponent."""
    compared_columns: int = 2048
    """Columns of a product that it compares at most."""
    sensitivity_items: int = 8
    """Items on which the model runs with each matrix rounded."""


QUANTIZATION: Final = Quantization()


@dataclass(frozen=True)
class Kinds:
    """The thresholds for roles of inputs and outputs, and for metrics. Models: `python benchmarks/zoo/public.py`."""

    fewest_features: int = 32
    """Numbers for each item, or for each token, from which an output may be an embedding."""
    least_peak: float = 2.0
    """Least distance of the highest of many logits from their mean, relative to the lowest one's. Classifiers push
    one class up: 3.0 for the 214 file types of magika. Embeddings have no such side: 1.3 for openwakeword's 96
    numbers."""
    positive_coordinates: float = 0.9
    """Least share of non-negative coordinates at which pairs or triples of numbers count as keypoints."""
    decided: float = 0.9
    """Share of values in 0..1 outside 0.1..0.9 from which they count as probabilities of events, not as an
    image."""
    blank_share: float = 0.3
    """Share of steps with the blank, the first or last class, from which scores of steps count as CTC."""
    fewest_symbols: int = 6
    """Classes, with the blank, from which scores of steps count as CTC: with fewer, each step is more likely a
    decision of its own, such as the state of a patient, of which the first is the most frequent."""
    least_apart: float = 0.5
    """Share of the runs of one symbol that have a blank beside them, from which scores of steps count as CTC,
    whose symbols are spikes between blanks. A classifier of steps changes from class to class: 0.2 of the runs of
    a voice detector."""
    fewest_candidates: int = 20
    """Least number of rows at which a table counts as the raw boxes of a detector."""
    lowest_score: float = 0.05
    """Score from which a box counts at all: a reading of the outputs without any such box is not that of a
    detector."""
    largest_coordinate: float = 1.5
    """Coordinates relative to the image end at 1, or a little beyond where a box leaves it; larger ones are
    pixels."""
    fewest_points: int = 5
    """Points from which an output may be a list of keypoints."""
    detected: float = 0.5
    """Lowest score at which a box counts as detected."""
    confirmed: float = 0.3
    """Score from which the other model's box confirms it; lower, so that scores near the limit do not count as
    lost."""
    same_point: float = 0.05
    """Distance of two points, relative to the diagonal of all points of the item, up to which they count as the
    same."""
    little_spread: float = 0.1
    """Range of numbers in -1..1 below which their differences say nothing."""
    fewest_neighbours: int = 8
    """Items below which the similarities of embeddings say too little; then their values are compared."""
    noted_items: int = 3
    """See `noted_fall`."""
    noted_fall: float = 0.1
    """A fall in recall that is worth a sentence, in items and as a share of the class."""
    overshoot: float = 0.1
    """The largest distance of a probability from 0..1."""
    checked_items: int = 128
    """Items that are looked at, at most."""
    check_seconds: float = 5.0
    """Time for running them: a slow model is looked at on fewer."""
    large_model: int = 1 << 30
    """Bytes of a model from which packing its weights takes longer than packed ones save on so few items."""
    enough_items: int = 16
    """Items of a slow model that suffice."""
    seconds_for_more: float = 2.0
    """Time after which no more than these are run."""
    fewest_items: int = 8
    """Number of items below which an accuracy says nothing: a guess may be right as often."""
    worse_deviations: int = 4
    """Standard deviations from chance from which an accuracy is no accident."""
    per_class: int = 5
    """Items of each class, on average, without which the order of the classes is a guess."""
    same_classes: float = 0.7
    """Accuracy from which labels in another order are those of the model's classes."""
    compared_items: int = 4
    """Items on which the runtime's graph optimization is compared with none."""
    changed_share: float = 0.1
    """Difference, as a share of the largest value, that neither rounding nor integer kernels explain."""
    fewest_compared: int = 4
    """Items of the first look, by whose time the model gets more."""
    first_subset: int = 128
    """Items of the first look at the constraints; each further look has twice as many."""
    small_model: int = 32 << 20
    """Bytes of a model up to which threads save little: without a clock, such a model runs on one."""
    largest_batch: int = 32
    """Items of one inference where nothing else is asked for."""
    batch_bytes: int = 8 << 20
    """Largest batch of inputs. An image of 640x640 keeps a core busy by itself; six of them took three times the
    memory."""
    batch_compared: int = 8
    """Items, spread over the data, that must give the same in a batch as alone. Two may take the same branch of an
    If."""
    batch_error: float = 1e-3
    """Relative difference of a value in a batch and alone that other orders of sums may cause."""
    rounding: float = 1e-4
    """Difference, relative to the largest value of the output, that float32 sums in another order may show: 3e-5 in a
    deep text recognizer after lossless fusions. Conversion to float16 differs by 1e-3 and more."""
    colours: int = 3
    """Channels of an image in colour."""
    lowest_line: int = 8
    """Smallest height of the image of a line of text."""
    shortest_sound: int = 2000
    """Smallest fixed size that counts as the length of a sound."""
    shortest_piece: int = 256
    """The same for a model with recurrent state, which takes 16 ms of sound or more at a time."""
    most_channels: int = 2
    """A longer fixed axis is no axis of channels: sounds are mono or stereo."""
    state_items: int = 4
    """Fewer items show no recurrence."""
    state_compared: int = 8
    """Items whose outputs are compared with the inputs of the next ones."""
    state_first: int = 3
    """Items after which outputs that were never such inputs are given up."""
    followed_share: float = 0.75
    """Share of the compared items that others follow; the rest may end sequences."""
    state_tolerance: float = 1e-3
    """Difference, relative to the largest value, between a state and one that another runtime recorded."""
    sum_tolerance: float = 0.02
    """Deviation from 1 of the sum of probabilities; 8-bit probabilities are off by as much."""
    confident: float = 0.4
    """Least confidence of softmax (0: all classes alike, 1: certain) at which raw values count as logits."""


KINDS: Final = Kinds()
