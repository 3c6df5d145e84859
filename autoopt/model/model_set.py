"""The session of a model set: several models that belong together, run as one.

Needs only numpy and onnxruntime, because exported packages hold a copy. The file `model_set.json` describes a set:

- `parts`: the file and the session options of each part, in the order in which they run
- `connections`: where each input of a part comes from: `part.output`, or an input of the set
- `generation`: how the decoder of the set generates, see `Generation`; null if nothing generates
- `pipeline`: the function of a user's script that runs the parts, see `Pipeline`; null if connections are enough
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import onnxruntime as ort

    Array: TypeAlias = np.ndarray[Any, Any]
    Feed: TypeAlias = dict[str, Array]

MODEL_SET: Final = "model_set.json"
CONTINUATION: Final = "generated_ids"
"""Input of a set that generates: the tokens after the prompt, (batch, count). All models take the same ones."""
DTYPES: Final = {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    **{f"tensor({name})": name for name in ("float16", "bool", "int8", "int16", "int32", "int64", "uint8")},
}
"""numpy's names of the types that a part may take in another precision than its neighbour gives."""


@dataclass(frozen=True)
class Part:
    """One model of a set."""

    file: str
    """Path, relative to the description."""
    session_options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Generation:
    """A decoder that runs once over a prompt, and then once for each further token."""

    first: str
    """The part that takes the prompt."""
    further: str
    """The part that takes the further tokens; it may be the same one."""
    prompt: str
    """The input of the set that holds the prompt."""
    tokens: str
    """The input of both parts that takes tokens (batch, count)."""
    logits: str
    """The output of both parts with the scores (batch, count, vocabulary)."""
    cache: Mapping[str, str] = field(default_factory=dict)
    """Input of `further` -> output that holds its value. Without a cache, `first` runs again over all tokens."""
    fixed: tuple[str, ...] = ()
    """Inputs of the cache that keep what the prompt gave: keys and values of the encoder's output."""
    mask: str | None = None
    """Input (batch, all tokens so far) of ones."""
    positions: str | None = None
    """Input (batch, count) of counted positions."""
    branch: str | None = None
    """Input that tells a model with two branches if the cache has anything."""

    @property
    def own_inputs(self) -> frozenset[str]:
        """The inputs of both parts that generation fills."""
        names = (self.tokens, self.mask, self.positions, self.branch, *self.cache)
        return frozenset(name for name in names if name is not None)


@dataclass(frozen=True)
class Pipeline:
    """A function `(models, inputs) -> outputs` that runs the parts of a set.

    `models` has a function from inputs to outputs for each part; all of these are arrays by name.
    """

    function: str
    inputs: Mapping[str, Sequence[int | None]]
    """Shape by name; None for the items."""
    outputs: Mapping[str, Sequence[int | None]] = field(default_factory=dict)
    """Shapes as they were for one item; empty before the pipeline has run."""


@dataclass(frozen=True)
class ModelSet:
    """The description of a set."""

    parts: Mapping[str, Part]
    connections: Mapping[str, str] = field(default_factory=dict)
    """`part.input` -> `part.output`, or an input of the set."""
    generation: Generation | None = None
    pipeline: Pipeline | None = None

    @property
    def inputs(self) -> dict[str, str]:
        """The inputs that data must have: name -> the `part.input` that takes it first when the set runs.

        Those of a pipeline are not known here. The prompt counts where there is no other input.
        """
        order = list(self.parts)
        inputs: dict[str, str] = {}
        for target in sorted(self.connections, key=lambda target: order.index(target.partition(".")[0])):
            source = self.connections[target]
            part, dot, _ = source.partition(".")
            if not (dot and part in self.parts):
                inputs.setdefault(source, target)
        if self.generation is not None and not inputs:
            inputs[self.generation.prompt] = f"{self.generation.first}.{self.generation.tokens}"
        return inputs

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> ModelSet:
        parts = {name: Part(part["file"], part["session_options"]) for name, part in document["parts"].items()}
        generation = document["generation"]
        if generation is not None:
            generation = Generation(**{**generation, "fixed": tuple(generation["fixed"])})
        pipeline = document["pipeline"]
        if pipeline is not None:
            pipeline = Pipeline(**pipeline)
        return ModelSet(parts, dict(document["connections"]), generation, pipeline)

    @staticmethod
    def read(path: Path) -> ModelSet:
        """Read a `model_set.json`."""
        return ModelSet.from_json(json.loads(path.read_text(encoding="utf-8")))


@dataclass(frozen=True)
class Value:
    """An input or output of a set, with the attributes of onnxruntime's `NodeArg`."""

    name: str
    type: str
    shape: list[int | str | None]


PartObserver: TypeAlias = "Callable[[str, Feed], None]"
"""Receives the name and the inputs of a part before it runs."""
RunPipeline: TypeAlias = "Callable[[Mapping[str, Callable[[Feed], Feed]], Feed], Feed]"
"""The function of a `Pipeline`."""
OpenPart: TypeAlias = "Callable[[Path, Mapping[str, Any]], ort.InferenceSession]"
"""Opens the session of a part: its file and session options."""


class ModelSetSession:
    """The sessions of all parts, with the methods of `onnxruntime.InferenceSession` that a caller needs."""

    def __init__(
        self,
        path: Path,
        open_part: OpenPart,
        observe: PartObserver | None = None,
        description: ModelSet | None = None,
        run_pipeline: RunPipeline | None = None,
    ) -> None:
        """Open all parts.

        `open_part` opens the session of a part, and `observe` receives the inputs of each part that runs. A
        `description` replaces that of the file; `run_pipeline` is the function of the set's pipeline, if it has one.
        """
        self.description = description or ModelSet.read(path)
        self._run_pipeline = run_pipeline
        self._parts: dict[str, _OpenPart] = {}
        for name, part in self.description.parts.items():
            self._parts[name] = _OpenPart(name, open_part(path.parent / part.file, part.session_options), observe)

    def get_providers(self) -> list[str]:
        """The execution providers of the first part."""
        providers: list[str] = next(iter(self._parts.values())).session.get_providers()
        return providers

    def get_provider_graph_assignment_info(self) -> list[ort.OrtEpAssignedSubgraph]:
        """The nodes of all parts that each provider takes; empty where onnxruntime does not tell."""
        return [info for part in self._parts.values() for info in part.session.get_provider_graph_assignment_info()]

    def get_modelmeta(self) -> ort.ModelMetadata:
        """The metadata of the first part."""
        return next(iter(self._parts.values())).session.get_modelmeta()

    def get_inputs(self) -> list[Value]:
        """The inputs that no part gives, each once."""
        pipeline, generation = self.description.pipeline, self.description.generation
        if pipeline is not None:
            return [Value(name, "", list(shape)) for name, shape in pipeline.inputs.items()]
        values: dict[str, Value] = {}
        for part in self._parts.values():
            for argument in part.session.get_inputs():
                source = self.description.connections.get(f"{part.name}.{argument.name}", "")
                if source and not self._is_output(source):
                    values.setdefault(source, Value(source, argument.type, list(argument.shape)))
        if generation is not None:
            arguments = {argument.name: argument for argument in self._parts[generation.first].session.get_inputs()}
            tokens = arguments[generation.tokens]
            for name in (generation.prompt, CONTINUATION):
                values[name] = Value(name, tokens.type, list(tokens.shape))
        return list(values.values())

    def get_outputs(self) -> list[Value]:
        """The outputs that no part takes; of a set that generates, the scores of all tokens."""
        pipeline, generation = self.description.pipeline, self.description.generation
        if pipeline is not None:
            return [Value(name, "", list(shape)) for name, shape in pipeline.outputs.items()]
        if generation is not None:
            arguments = {argument.name: argument for argument in self._parts[generation.first].session.get_outputs()}
            logits = arguments[generation.logits]
            return [Value(logits.name, logits.type, list(logits.shape))]
        taken = set(self.description.connections.values())
        values = []
        for part in self._parts.values():
            for argument in part.session.get_outputs():
                name = f"{part.name}.{argument.name}"
                if name not in taken:
                    values.append(Value(name, argument.type, list(argument.shape)))
        return values

    def run(self, names: Sequence[str] | None, feed: Mapping[str, Array]) -> list[Array]:
        """Run the set once.

        Without `names`, all outputs are returned. Of a set that generates, `CONTINUATION` in the feed holds the tokens
        after the prompt.
        """
        if self.description.pipeline is not None:
            values = self.run_pipeline(dict(feed))
            return [values[name] for name in names or self.description.pipeline.outputs]
        values = self._forward(feed)
        generation = self.description.generation
        if generation is not None:
            decoding = self._decoding(generation, values, feed)
            scores = [decoding.advance(feed[generation.prompt])]
            scores += [decoding.advance(token[:, None]) for token in feed[CONTINUATION].T]
            values = {generation.logits: joined(scores)}
        if names is None:
            names = [value.name for value in self.get_outputs()]
        return [values[name] for name in names]

    def run_pipeline(self, feed: Feed) -> Feed:
        """Run the pipeline of the set once; return its outputs by name."""
        assert self._run_pipeline is not None, "the script is not known"
        return self._run_pipeline({name: part.run for name, part in self._parts.items()}, feed)

    def generate(self, feed: Mapping[str, Array], count: int) -> Array:
        """Generate the `count` most probable tokens after the prompt, one at a time: (batch, count)."""
        import numpy as np

        generation = self.description.generation
        assert generation is not None, "only a set with a decoder generates"
        decoding = self.start(feed)
        columns = []
        for _ in range(count):
            token = decoding.scores[:, -1:].argmax(axis=-1).astype(feed[generation.prompt].dtype)
            columns.append(token)
            decoding.advance(token)
        return np.concatenate(columns, axis=1)

    def start(self, feed: Mapping[str, Array]) -> Decoding:
        """Run a set that generates over its inputs and its prompt."""
        generation = self.description.generation
        assert generation is not None, "only a set with a decoder generates"
        decoding = self._decoding(generation, self._forward(feed), feed)
        decoding.advance(feed[generation.prompt])
        return decoding

    def _is_output(self, source: str) -> bool:
        """True for `part.output`, False for an input of the set."""
        return source.partition(".")[0] in self._parts and "." in source

    def _forward(self, feed: Mapping[str, Array]) -> Feed:
        """Run all parts but the decoder; return the outputs as `part.output`."""
        generation = self.description.generation
        decoders = set() if generation is None else {generation.first, generation.further}
        values: Feed = {}
        for part in self._parts.values():
            if part.name not in decoders:
                outputs = part.run(self._connected(part, {**feed, **values}))
                values.update({f"{part.name}.{name}": value for name, value in outputs.items()})
        return values

    def _connected(self, part: _OpenPart, values: Mapping[str, Array]) -> Feed:
        feed = {}
        for name in part.inputs:
            source = self.description.connections.get(f"{part.name}.{name}")
            if source is not None:
                feed[name] = values[source]
        return feed

    def _decoding(self, generation: Generation, outputs: Feed, feed: Mapping[str, Array]) -> Decoding:
        values = {**feed, **outputs}
        first, further = self._parts[generation.first], self._parts[generation.further]
        return Decoding(generation, first, further, self._connected(first, values), self._connected(further, values))


class _OpenPart:
    """An open part."""

    def __init__(self, name: str, session: ort.InferenceSession, observe: PartObserver | None) -> None:
        self.name = name
        self.session = session
        self.inputs = {argument.name: argument for argument in session.get_inputs()}
        self._outputs = [argument.name for argument in session.get_outputs()]
        self._observe = observe

    def run(self, feed: Mapping[str, Array]) -> Feed:
        """Run the part on those inputs that it has; return its outputs by name."""
        own = {}
        for name, argument in self.inputs.items():
            if name in feed:
                dtype = DTYPES.get(argument.type)
                value = feed[name]
                own[name] = value if dtype is None or value.dtype == dtype else value.astype(dtype)
        if self._observe is not None:
            self._observe(self.name, own)
        return dict(zip(self._outputs, self.session.run(None, own), strict=True))

    def empty(self, name: str, batch: int) -> Array:
        """A cache before the first token: its open dimensions behind the batch are 0."""
        import numpy as np

        argument = self.inputs[name]
        sizes = [size if isinstance(size, int) and size > 0 else 0 for size in argument.shape]
        sizes[0] = sizes[0] or batch
        return np.zeros(sizes, DTYPES.get(argument.type, "float32"))


@dataclass
class Decoding:
    """A generation under way."""

    generation: Generation
    first: _OpenPart
    further: _OpenPart
    first_feed: Feed
    """Inputs of `first` from other parts."""
    further_feed: Feed
    scores: Array = field(init=False)
    """Scores of the newest tokens (batch, count, vocabulary)."""
    _tokens: list[Array] = field(default_factory=list)
    _cache: Feed = field(default_factory=dict)

    def advance(self, tokens: Array) -> Array:
        """Run the decoder over the next tokens (batch, count), the prompt first; return their scores."""
        generation = self.generation
        past = sum(earlier.shape[1] for earlier in self._tokens)
        self._tokens = [*self._tokens, tokens]
        if past == 0:
            feed = {**self.first_feed, **self._own_inputs(self.first, tokens, 0)}
            outputs = self.first.run(feed)
            self._cache = {name: outputs[output] for name, output in generation.cache.items()}
        elif generation.cache:
            feed = {**self.further_feed, **self._cache, **self._own_inputs(self.further, tokens, past)}
            outputs = self.further.run(feed)
            for name, output in generation.cache.items():
                if name not in generation.fixed:
                    self._cache[name] = outputs[output]
        else:
            everything = joined(self._tokens)
            outputs = self.first.run({**self.first_feed, **self._own_inputs(self.first, everything, 0)})
            outputs[generation.logits] = outputs[generation.logits][:, past:]
        self.scores = outputs[generation.logits]
        return self.scores

    def copy(self) -> Decoding:
        """The same generation, to be continued on its own."""
        copy = Decoding(self.generation, self.first, self.further, self.first_feed, self.further_feed)
        copy.scores, copy._tokens, copy._cache = self.scores, list(self._tokens), dict(self._cache)
        return copy

    def _own_inputs(self, part: _OpenPart, tokens: Array, past: int) -> Feed:
        """The tokens and what follows from them; an empty cache before the first token."""
        import numpy as np

        generation = self.generation
        batch, count = tokens.shape
        feed = {generation.tokens: tokens}
        if generation.mask is not None:
            feed[generation.mask] = np.ones((batch, past + count), np.int64)
        if generation.positions is not None:
            feed[generation.positions] = np.broadcast_to(np.arange(past, past + count), (batch, count))
        if generation.branch is not None:
            feed[generation.branch] = np.full(1, past > 0)
        if past == 0:
            for name in generation.cache:
                if name in part.inputs:
                    feed[name] = part.empty(name, batch)
        return feed


def joined(arrays: Sequence[Array]) -> Array:
    """Arrays of tokens or scores one after the other."""
    import numpy as np

    return np.concatenate(arrays, axis=1)
