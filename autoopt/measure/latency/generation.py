"""Generation with a cache: the steps that follow a prompt, each of which adds one token.

A decoder with a cache runs in two ways: once over the whole prompt, which is the time to the first token, and then once
for each further token, with the keys and values of all tokens before it. The two gain by different optimizations.
The latency of a model set that generates is that of all its tokens, so both are measured beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np

from autoopt.data.dataset import DataSet, Feed
from autoopt.data.decoder import Decoder, decoder_of
from autoopt.errors import InputError
from autoopt.json_codec import to_json
from autoopt.measure.inference.batches import batch, evaluation_data
from autoopt.measure.inference.runner import ModelRunner
from autoopt.measure.latency.machine import Load
from autoopt.measure.latency.measurement import Measurement, measure_in_turns
from autoopt.measure.latency.one_thread import ThreadRatio, clock_settings, ratios_on_one_thread, with_one_thread
from autoopt.measure.latency.precedence import Precedence, thread_count
from autoopt.measure.latency.results import results
from autoopt.measure.latency.shared_runners import SharedRunners
from autoopt.measure.latency.subjects import Subject, SubjectOf, lead_of
from autoopt.measure.latency.timing import Call
from autoopt.measure.request import MeasureReply, MeasureRequest
from autoopt.measure.two_ratios import DETAIL, TwoRatios
from autoopt.metrics import FIRST_TOKEN, GENERATION, MEDIAN_LATENCY, TOKEN_RATE
from autoopt.model.model_file import ModelFile
from autoopt.model.model_set import CONTINUATION, MODEL_SET, Decoding, ModelSetSession

MakeCall: TypeAlias = Callable[[ModelRunner, Feed, int], Call]
"""Makes what is timed from an open model, a prompt and the number of tokens after it."""
STEP = "throughput"
"""The metric of steps that is the number of sequences, hence tokens, per second."""


@dataclass
class Steps:
    """Steps after a prompt: each call generates one token; after the last one the prompt's own cache is back.

    The tokens are those of the prompt in turn, so that all models take the same ones.
    """

    runner: ModelRunner
    decoder: Decoder
    cache: Feed
    """Keys and values of the prompt."""
    inputs: Sequence[Feed]
    """All other inputs, by step."""
    _number: int = 0
    _grown: Feed = field(default_factory=dict)

    def __call__(self) -> object:
        if self._number == 0:
            self._grown = self.cache
        outputs = self.runner.session.run(None, {**self.inputs[self._number], **self._grown})
        self._grown = _new_cache(self.runner, self.decoder, outputs)
        self._number = (self._number + 1) % len(self.inputs)
        return outputs


@dataclass
class SetSteps:
    """Steps of a model set after a prompt: each call generates one token; after the last one the prompt is back."""

    prompt: Decoding
    tokens: np.ndarray
    """The tokens that follow (batch, count)."""
    _number: int = 0
    _grown: Decoding = field(init=False)

    def __call__(self) -> object:
        if self._number == 0:
            self._grown = self.prompt.copy()
        scores = self._grown.advance(self.tokens[:, self._number : self._number + 1])
        self._number = (self._number + 1) % self.tokens.shape[1]
        return scores


def shared_time(request: MeasureRequest) -> MeasureRequest:
    """Leave half of the time to the steps if they are measured too.

    Raises:
        InputError: metrics of generation are asked for, but the model is no decoder with a cache, or the items are no
            prompts.
    """
    if not any(name in request.metrics for name in GENERATION):
        return request
    _check_prompts(request)
    if TOKEN_RATE not in request.metrics:
        return request
    return replace(request, settings=replace(request.settings, seconds=request.settings.seconds / 2))


@dataclass(frozen=True)
class TimedGeneration:
    """Calls of all models that were timed by the clock for one metric of generation."""

    name: str
    """The metric: `FIRST_TOKEN` or `TOKEN_RATE`."""
    timed_name: str
    """The metric of the calls that it is."""
    measurement: Measurement
    subject_of: SubjectOf


def time_generation(
    request: MeasureRequest, precedence: Precedence, runners: SharedRunners, *, with_source: bool, load: Load
) -> list[TimedGeneration]:
    """Time by the clock what the metrics of generation that the request names need beside the latency of a prompt.

    `request` was returned by `shared_time`, prompts were measured in the sessions of `runners`, and `load` is that of
    other programs meanwhile.
    """
    settings = clock_settings(request, busy=load.busy) if with_source else request.settings
    # The prompts had as many sessions as there was time to open.
    settings = replace(settings, incumbent_ratio=None, replicas=runners.replicas or settings.replicas)
    calls: list[tuple[str, str, MakeCall]] = []
    if FIRST_TOKEN in request.metrics and Path(request.candidate.path).name == MODEL_SET:
        calls.append((FIRST_TOKEN, MEDIAN_LATENCY, _first_token))
    if TOKEN_RATE in request.metrics:
        calls.append((TOKEN_RATE, STEP, _steps))
    timed = []
    for name, timed_name, make in calls:
        subject_of = partial(_subject, request, evaluation_data(request), runners, make)
        measurement = measure_in_turns(request, settings, subject_of, subject_of, precedence, with_source=with_source)
        timed.append(TimedGeneration(name, timed_name, measurement, subject_of))
    return timed


def with_generation(
    request: MeasureRequest,
    replies: Sequence[MeasureReply],
    generation: Sequence[TimedGeneration],
    *,
    with_source: bool,
    load: Load,
) -> list[MeasureReply]:
    """Add the metrics of generation that the request names to the `replies`, which measured a prompt.

    The prompt is the time to the first token of one model; a set has a measurement of its own for that.
    """
    complete = list(replies)
    if FIRST_TOKEN in request.metrics and all(timed.name != FIRST_TOKEN for timed in generation):
        complete = [_with_metric(reply, FIRST_TOKEN, reply, MEDIAN_LATENCY) for reply in complete]
    for timed in generation:
        others = _generation_replies(request, timed, with_source=with_source, load=load)
        for number, other in enumerate(others):
            complete[number] = _with_metric(complete[number], timed.name, other, timed.timed_name)
    return complete


def _first_token(runner: ModelRunner, prompt: Feed, _: int) -> Call:
    """Make the function that runs a model set over a prompt."""
    assert isinstance(runner.session, ModelSetSession), "one model is measured by its latency"
    return partial(runner.session.start, prompt)


def _with_metric(reply: MeasureReply, name: str, other: MeasureReply, other_name: str) -> MeasureReply:
    """Add one metric of another reply to a reply under a new name; its details stand under that name too."""
    complete = reply
    if other_name in other.metrics:
        source, ratio = other.source_metrics.get(other_name), other.ratios.get(other_name)
        complete = reply.with_metric(name, other.metrics[other_name], source, ratio)
    if other is reply:
        return complete
    return replace(complete, details={**reply.details, name: dict(other.details)})


def _check_prompts(request: MeasureRequest) -> None:
    """Check that the model generates with a cache, and that its cache is empty at first."""
    data = evaluation_data(request)
    runner = ModelRunner.open(request.candidate, request, packs_weights=False)
    if isinstance(runner.session, ModelSetSession) and runner.session.description.generation is not None:
        return
    decoder = _decoder(runner)
    past = decoder.past_length(batch(runner, data, 0, request.settings.batch_size))
    if past:
        raise InputError(
            f"{' and '.join(GENERATION)} start from a prompt, but the data fill the cache with {past} tokens",
            remedy="give input_ids alone",
        )


def _decoder(runner: ModelRunner) -> Decoder:
    decoder = decoder_of(runner.roles)
    if decoder is None or not decoder.outputs(runner.outputs):
        raise InputError(
            f"{' and '.join(GENERATION)} need a decoder with a cache, such as the inputs input_ids and "
            "past_key_values.0.key with the output present.0.key",
            remedy="choose latency_p50",
        )
    return decoder


def _generation_replies(
    request: MeasureRequest, timed: TimedGeneration, *, with_source: bool, load: Load
) -> list[MeasureReply]:
    """Make a reply for each model, with ratios on one thread too where that helps."""
    thread_ratios: list[ThreadRatio | None] = [None] * len(request.models)
    if with_source:
        thread_ratios = ratios_on_one_thread(request, timed.measurement, timed.subject_of, timed.subject_of, load=load)
    replies = []
    for number, comparison in enumerate(timed.measurement.comparisons):
        single = replace(request.alone(number), metrics=(MEDIAN_LATENCY, STEP))
        details = timed.measurement.summary(comparison)
        reply = results(single, comparison, request.settings.batch_size, details, load)
        replies.append(_with_both_ratios(with_one_thread(single, reply, thread_ratios[number], load)))
    return replies


def _with_both_ratios(reply: MeasureReply) -> MeasureReply:
    """Let the ratio on one thread count in the rate of steps as it does in their time."""
    both = TwoRatios.of(reply.details)
    if both is None:
        return reply
    details = {**reply.details, DETAIL: to_json(both.inverse())}
    return replace(reply, ratios={**reply.ratios, STEP: both.combined().inverse()}, details=details)


def _subject(
    request: MeasureRequest, data: DataSet, runners: SharedRunners, make: MakeCall, model: ModelFile
) -> Subject:
    def open_call(number: int) -> Call:
        runner = runners.open(model, number)
        prompt = batch(runner, data, number, request.settings.batch_size)
        return make(runner, prompt, request.settings.new_tokens)

    return Subject(open_call, lead_of(thread_count(request, model)))


def _steps(runner: ModelRunner, prompt: Feed, count: int) -> Call:
    """Run a prompt and prepare `count` steps after it; of a model set, as many as the data have tokens."""
    if isinstance(runner.session, ModelSetSession):
        return SetSteps(runner.session.start(prompt), prompt[CONTINUATION])
    return steps_after(runner, prompt, count)


def steps_after(runner: ModelRunner, prompt: Feed, count: int) -> Steps:
    """Run a prompt and prepare `count` steps after it."""
    decoder = _decoder(runner)
    cache = _new_cache(runner, decoder, runner.session.run(None, prompt))
    tokens = prompt[decoder.tokens]
    inputs = []
    for number in range(count):
        column = number % tokens.shape[1]
        step = {name: value for name, value in prompt.items() if name not in cache}
        step[decoder.tokens] = np.ascontiguousarray(tokens[:, column : column + 1])
        for name in decoder.derived:
            step[name] = _derived(decoder, name, step, prompt, number)
        inputs.append(step)
    return Steps(runner, decoder, cache, inputs)


def _derived(decoder: Decoder, name: str, step: Feed, prompt: Feed, number: int) -> np.ndarray:
    """Make one derived input of a step: the prompt's mask extended by ones, or positions that count up from its own."""
    before = prompt[name]
    if name == decoder.mask:
        return np.concatenate([before, np.ones((len(before), number + 1), before.dtype)], axis=1)
    if name == decoder.positions:
        return np.ascontiguousarray(before[:, -1:] + number + 1)
    if name == decoder.branch:
        return np.full(1, True, before.dtype)
    return before


def _new_cache(runner: ModelRunner, decoder: Decoder, outputs: Sequence[object]) -> Feed:
    by_name = dict(zip(runner.outputs, outputs, strict=True))
    return {past: np.asarray(by_name[present]) for present, past in decoder.outputs(runner.outputs).items()}
