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

from autoopt.data.dataset import Feed
from autoopt.data.decoder import Decoder, decoder_of
from autoopt.errors import InputError
from autoopt.measure.inference import ModelRunner, batch, evaluation_data
from autoopt.measure.latency.timer import Call
from autoopt.measure.request import MeasureRequest
from autoopt.metrics import FIRST_TOKEN, GENERATION, TOKEN_RATE
from autoopt.model.model_set import CONTINUATION, MODEL_SET, Decoding, ModelSetSession

MakeCall: TypeAlias = Callable[[ModelRunner, Feed], Call]
"""Makes what is timed from an open model and its inputs."""


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
    data = evaluation_data(request)
    runner = ModelRunner.open(request.candidate, request, packs_weights=False)
    if not isinstance(runner.session, ModelSetSession) or runner.session.description.generation is None:
        past = _decoder(runner).past_length(batch(runner, data, 0, request.settings.batch_size))
        if past:
            raise InputError(
                f"{' and '.join(GENERATION)} start from a prompt, but the data fill the cache with {past} tokens",
                remedy="give input_ids alone",
            )
    if TOKEN_RATE not in request.metrics:
        return request
    return replace(request, settings=replace(request.settings, seconds=request.settings.seconds / 2))


def generation_calls(request: MeasureRequest) -> dict[str, MakeCall]:
    """The further calls that are timed beside a prompt, by metric: the steps, and of a set the prompt alone.

    The latency of a prompt is the time to the first token of one model.
    """
    calls: dict[str, MakeCall] = {}
    if FIRST_TOKEN in request.metrics and Path(request.candidate.path).name == MODEL_SET:
        calls[FIRST_TOKEN] = _first_token
    if TOKEN_RATE in request.metrics:
        calls[TOKEN_RATE] = partial(_steps, count=request.settings.new_tokens)
    return calls


def _first_token(runner: ModelRunner, prompt: Feed) -> Call:
    """Make the function that runs a model set over a prompt."""
    assert isinstance(runner.session, ModelSetSession), "one model is measured by its latency"
    return partial(runner.session.start, prompt)


def _decoder(runner: ModelRunner) -> Decoder:
    decoder = decoder_of(runner.roles)
    if decoder is None or not decoder.outputs(runner.outputs):
        raise InputError(
            f"{' and '.join(GENERATION)} need a decoder with a cache, such as the inputs input_ids and "
            "past_key_values.0.key with the output present.0.key",
            remedy="choose latency_p50",
        )
    return decoder


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
