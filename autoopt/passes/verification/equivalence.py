"""The checks after every pass: onnx's checker, then a comparison of the outputs before and after it.

Both models run on the same inputs, on the CPU and without graph optimization, so that only the pass itself makes a
difference: synthetic values of ordinary size, unusual values (small, zeros, ones, large, tiny), another size of open
dimensions, and the first items of the user's data.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Final

from autoopt.memory import return_unused
from autoopt.model import io
from autoopt.model.lazy_imports import onnx
from autoopt.model.random_nodes import random_nodes, seeded
from autoopt.model.roles import Kind
from autoopt.model.session import make_plain_session, make_session
from autoopt.model.split import is_split
from autoopt.model.tensors import weight_bytes
from autoopt.passes.base.lifecycle import describe_error
from autoopt.passes.onnx_tools.graphs import ORT_DOMAIN, is_standard, walk_nodes
from autoopt.passes.onnx_tools.opsets import import_ort_domain
from autoopt.passes.verification.noisy_model import LARGEST_CONSTANT
from autoopt.passes.verification.output_comparison import Equivalence, Status, compare_outputs
from autoopt.passes.verification.rounding import NoiseSource, SpreadMeter
from autoopt.passes.verification.synthetic_feeds import cast_feeds, synthetic_feeds, unusual_feeds
from autoopt.registry import Tolerance, form_of

if TYPE_CHECKING:
    import numpy as np
    from onnx import ModelProto
    from onnxruntime import InferenceSession

    from autoopt.passes.base import Pass

SIZING_OPS: Final = frozenset({"Loop", "If", "NonZero", "NonMaxSuppression", "Compress", "Unique"})
"""Operators whose output's size depends on values."""
SPARING_BYTES: Final = 256 << 20
"""The memory of a session of a larger model goes back to the system before the next one opens."""
PACKED_BYTES: Final = 1 << 30
"""Sessions of larger models read their weights as they are, instead of a copy in the layout of the kernels."""
MAX_SECONDS: Final = 0.5
"""Time for the inferences of one model on inputs beyond the ordinary ones; the others are skipped after that."""
MAX_NOISE_SECONDS: Final = 2.0
"""Time for measuring how far rounding moves the outputs; after that, fixed shares of the magnitude are allowed."""


@dataclass(frozen=True)
class Inference:
    """Inputs of a model, and its outputs on them: arrays, except for outputs of sequence or map type."""

    feeds: dict[str, np.ndarray]
    outputs: list[np.ndarray]


@dataclass
class Reference:
    """A model to compare with. Keeps its inputs and outputs for the next comparison."""

    path: Path
    model: ModelProto
    items: tuple[dict[str, np.ndarray], ...] = ()
    """Inputs from the user's data."""
    inferences: list[Inference] = field(default_factory=list)
    """On ordinary values, then on all other inputs that the model runs on; empty if there are no outputs."""
    failure: str = ""
    """Reason why there are no outputs."""
    spares_memory: bool = False
    """True for a large model, and for one that is compared with it: its sessions do not pack weights, see
    `make_plain_session`. Other kernels round differently, so both models of a comparison need the same."""
    roles: Mapping[str, Kind] = field(default_factory=dict)
    """Kinds of inputs that the user gives."""
    _attempted: bool = field(default=False, repr=False)
    """True once `inferences` is complete."""
    _noise: NoiseSource | None = field(default=None, repr=False)
    _spreads: dict[int, SpreadMeter] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.spares_memory = self.spares_memory or weight_bytes(self.model) > PACKED_BYTES

    @property
    def feeds(self) -> dict[str, np.ndarray] | None:
        """The inputs of ordinary values."""
        return self.inferences[0].feeds if self.inferences else None

    @property
    def outputs(self) -> list[np.ndarray] | None:
        """The outputs on ordinary values."""
        return self.inferences[0].outputs if self.inferences else None

    def run(self, narrower: ModelProto | None = None, pinned: Mapping[str, np.ndarray] | None = None) -> None:
        """Find inputs that the model accepts, run it, and keep its outputs or the reason of the failure.

        The inputs also fit `narrower`, a version of the model with fewer open dimensions, and have the `pinned` values.
        The user's items are the last to be tried: made-up values reach more of the model.
        """
        if self._attempted and not self._needs_narrower_feeds(narrower):
            return
        self._attempted, self._spreads = True, {}
        try:
            candidates = synthetic_feeds(self.model, narrower, roles=self.roles)
            for feeds in chain(candidates, self.items):
                try:
                    session = self.open()
                    ordinary = {**feeds, **(pinned or {})}
                    self.inferences = [Inference(ordinary, session.run(None, ordinary))]
                except Exception as error:  # any exception type of the runtime
                    self.failure = self.failure or describe_error(error)
                    continue
                self._run_further(session, self._further_feeds(feeds, candidates), pinned or {})
                return
        except ValueError as error:  # no synthetic inputs for this model
            self.failure = str(error)

    def open(self, graph: bytes | None = None) -> InferenceSession:
        """Open a session of the model, or of another graph on its weights."""
        return make_plain_session(self.path, packs_weights=not self.spares_memory, graph=graph)

    def _further_feeds(
        self, ordinary: Mapping[str, np.ndarray], other_sizes: Iterator[dict[str, np.ndarray]]
    ) -> Iterator[dict[str, np.ndarray]]:
        """Inputs beyond the ordinary ones, the most revealing first."""
        yield from self.items[:1]
        yield from unusual_feeds(ordinary)[:2]
        yield from self.items[1:]
        yield from unusual_feeds(ordinary)[2:]
        yield from islice(other_sizes, 1)

    def _run_further(
        self, session: InferenceSession, feeds: Iterator[dict[str, np.ndarray]], pinned: Mapping[str, np.ndarray]
    ) -> None:
        """Run the model on more inputs until time is up, and keep its outputs on those that it accepts."""
        started = time.monotonic()
        for each in feeds:
            if time.monotonic() - started > MAX_SECONDS:
                return
            further = {**each, **pinned}
            try:
                outputs = session.run(None, further)
            except Exception:  # any exception type of the runtime; the model cannot run on such values
                continue
            self.inferences.append(Inference(further, outputs))

    def _needs_narrower_feeds(self, narrower: ModelProto | None) -> bool:
        if self.feeds is None or narrower is None:
            return False
        return cast_feeds(self.feeds, narrower) is None

    def record(self, feeds: Iterable[dict[str, np.ndarray]], complete: bool = True) -> None:
        """Run the model on these inputs and keep the outputs. Raises what the runtime raises.

        Unless they are `complete`, `run` finds new inputs.
        """
        session = self.open()
        self.inferences = [Inference(each, session.run(None, each)) for each in feeds]
        self._attempted = complete

    def drop_noise(self) -> None:
        """Forget the copy with noise, which is several times as large as the model."""
        self._noise, self._spreads = None, {}

    def close_noise(self) -> None:
        """Close the sessions of copies with noise; what they have shown stays known."""
        for meter in self._spreads.values():
            meter.close()

    def spread_meter(self, number: int) -> SpreadMeter:
        """The meter of how far rounding moves the outputs of an inference; it keeps its results."""
        if self._noise is None:
            model, folder = self.model, None
            if is_split(self.path):
                model, folder = io.parse(self.path), self.path.parent
                io.load_weights(model, folder, lambda tensor: prod(tensor.dims) <= LARGEST_CONSTANT)
            self._noise = NoiseSource(model, folder, packs_weights=not self.spares_memory)
        if number not in self._spreads:
            inference = self.inferences[number]
            self._spreads[number] = SpreadMeter(self._noise, inference.feeds, inference.outputs)
        return self._spreads[number]

    def adopt_spreads(self, before: Reference, numbers: Iterable[int]) -> None:
        """Take over what rounding does to the outputs from an equal model, so that a chain measures it once.

        For each inference of this model, `numbers` has the number of the one of `before` with the same inputs.
        """
        for own_number, number in enumerate(numbers):
            meter = before.spread_meter(number)
            if meter.is_used:
                self._spreads[own_number] = meter


def compare(
    before: Reference, after: Path, parsed: ModelProto | None, pass_: Pass, off_cpu: bool = False
) -> tuple[Equivalence, Reference]:
    """Compare the new model at `after` with `before`; returns the reference that the next pass is compared with, too.

    `parsed` is None in ORT format, which keeps the signature of `before`. With `off_cpu`, the target uses another
    execution provider, so the CPU may lack operators of the new model.
    """
    tolerance = pass_.tolerance
    model = parsed if parsed is not None else before.model
    reference = Reference(after, model, before.items, spares_memory=before.spares_memory, roles=before.roles)
    before = _run_before(before, reference, pass_)
    # The CPU not being the target, a model that it cannot run may still be right.
    unrunnable: Status = "not run" if off_cpu else "different"
    feeds = _map_feeds(before, model, pass_)
    if not feeds:
        return _run_alone(before, reference, tolerance, unrunnable), reference
    if random_nodes(before.model):
        return _compare_random(before, reference, feeds[0], pass_, unrunnable), reference
    try:
        if tolerance == "lossy":
            feeds = {0: feeds[0]}  # mostly the last pass: only another one needs the outputs on the other inputs
        reference.record(feeds.values(), complete=tolerance != "lossy")
    except Exception as error:  # the runtime rejects the new model
        reason = f"the runtime rejects the new model: {describe_error(error)}"
        return Equivalence(unrunnable, tolerance, reason), reference
    result = _compare_inferences(before, feeds, reference, tolerance)
    if result.status == "same" and tolerance != "lossy":
        reference.adopt_spreads(before, feeds)
    return result, reference


def _run_before(before: Reference, after: Reference, pass_: Pass) -> Reference:
    """Run the model before a pass on inputs that the one after it takes, too.

    It is run anew for a pass that pins inputs, and where the sessions of both models would treat weights differently.
    """
    pinned = pass_.pinned(before.model)
    if pinned or after.spares_memory != before.spares_memory:
        before = Reference(
            before.path, before.model, before.items, spares_memory=after.spares_memory, roles=before.roles
        )
    if form_of(type(pass_)) != "source":
        before.run(after.model, pinned)
        if weight_bytes(before.model) > SPARING_BYTES:
            return_unused()  # two sessions' worth of memory would stay beside each other
    return before


def _compare_random(
    before: Reference, reference: Reference, feeds: Mapping[str, np.ndarray], pass_: Pass, unrunnable: Status
) -> Equivalence:
    """Compare models whose outputs are random: no random node may be gone, and equal seeds give equal outputs.

    The seeds follow the names of draws, or else their order: a pass may change either.
    """
    tolerance = pass_.tolerance
    fewer = random_nodes(before.model) - random_nodes(reference.model)
    has_all_outputs = len(before.model.graph.output) == len(reference.model.graph.output)
    if fewer > 0 and has_all_outputs and not pass_.pinned(before.model):
        reason = f"{fewer} of the nodes that draw random numbers are gone, and outputs depend on them"
        return Equivalence("different", tolerance, reason)
    try:
        session = reference.open()
        session.run(None, dict(feeds))
    except Exception as error:  # the runtime rejects the new model
        return Equivalence(unrunnable, tolerance, f"the runtime rejects the new model: {describe_error(error)}")
    result = Equivalence("only run", tolerance, "outputs are random")
    if tolerance == "lossy":
        return result
    for by_name in (True, False):
        graphs = [seeded(each.path, by_name=by_name) for each in (before, reference)]
        if None in graphs:  # it is in the runtime's own format
            return result
        old = before.open(graphs[0]).run(None, before.inferences[0].feeds)
        new = reference.open(graphs[1]).run(None, dict(feeds))
        result = compare_outputs(list(old), list(new), tolerance)
        if result.status == "same":
            return result
    return replace(result, reason=f"with the same seeds, {result.reason}")


def _compare_inferences(
    before: Reference, feeds: Mapping[int, Mapping[str, np.ndarray]], after: Reference, tolerance: Tolerance
) -> Equivalence:
    """Compare the outputs of each inference of `after` with that of `before`, by whose numbers `feeds` are.

    Stops at the first that differ. A lossy pass is compared on ordinary values only: its losses on others are for the
    quality metrics to judge.
    """
    results: list[Equivalence] = []
    deadline = time.monotonic() + MAX_NOISE_SECONDS
    sizes_vary = any(node.op_type in SIZING_OPS for node in before.model.graph.node)
    for number, new in zip(feeds, after.inferences, strict=True):
        if results and results[-1].status == "different":
            break
        old = before.inferences[number]
        spreads = before.spread_meter(number).spreads
        results.append(compare_outputs(old.outputs, new.outputs, tolerance, spreads, deadline, sizes_vary))
    result = _worst(results)
    if tolerance == "equal" and result.status == "different":
        return _as_users_run(before, after, feeds, result)
    return result


def _as_users_run(
    before: Reference, after: Reference, feeds: Mapping[int, Mapping[str, np.ndarray]], result: Equivalence
) -> Equivalence:
    """Compare both models as their users run them, if the runtime's graph optimization changes what `before` computes.

    What users get is then what counts: a pass that stores the optimized graph changes nothing for them. `feeds` are
    those of `after` by the number of the inference of `before`.
    """
    comparisons: list[Equivalence] = []
    is_changed = False
    try:
        old_session, new_session = make_session(before.path), make_session(after.path)
        for number, new_feeds in feeds.items():
            inference = before.inferences[number]
            usual = list(old_session.run(None, inference.feeds))
            is_changed |= compare_outputs(inference.outputs, usual, "equal").status != "same"
            comparisons.append(compare_outputs(usual, list(new_session.run(None, dict(new_feeds))), "equal"))
    except Exception:  # any exception type of the runtime: nothing is known about what users get
        return result
    found = _worst(comparisons)
    if not is_changed or found.status != "same":
        return result
    return replace(found, reason="with the runtime's graph optimization, which changes what the input model computes")


def _worst(results: Sequence[Equivalence]) -> Equivalence:
    """The first comparison that failed; else the one with the largest error."""
    for result in results:
        if result.status != "same":
            return result
    return max(results, key=lambda result: result.max_relative_error or 0.0)


def _run_alone(before: Reference, reference: Reference, tolerance: Tolerance, unrunnable: Status) -> Equivalence:
    """Run the new model where no inputs of the old one fit it; `unrunnable` is the status if that fails."""
    reference.run()
    reason = "the signature changed"
    if before.failure:
        reason, unrunnable = f"input model: {before.failure}", "not run"
    if reference.outputs is None:
        return Equivalence(unrunnable, tolerance, f"{reason}; output model: {reference.failure}")
    return Equivalence("only run", tolerance, reason)


def _map_feeds(before: Reference, model: ModelProto, pass_: Pass) -> dict[int, dict[str, np.ndarray]]:
    """Inputs of `before` in the names and types of `model`, by the number of their inference.

    Empty if the ordinary inputs do not fit; others that do not fit are left out.
    """
    mapped: dict[int, dict[str, np.ndarray]] = {}
    for number, inference in enumerate(before.inferences):
        feeds = pass_.feeds(dict(inference.feeds))
        cast = cast_feeds(feeds, model) if feeds is not None else None
        if cast is not None:
            mapped[number] = cast
        elif number == 0:
            return {}
    return mapped


def run_once(path: Path, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Run the model at `path` once, without graph optimization and on one thread."""
    return list(make_plain_session(path).run(None, dict(feeds)))


RUNTIME_OPS: Final = ("LayerNormalization", "SimplifiedLayerNormalization")
"""Operators of onnxruntime that it registers in ONNX's own domain, where ONNX has none of that name, or not yet."""


@dataclass(frozen=True)
class CheckResult:
    """The result of all checks on a new model."""

    problem: str
    """Reason to reject the model in one line; empty if it is good."""
    details: dict[str, object]
    """Findings for the report: `checker` (a complaint, if any) and the fields of `Equivalence`."""


def find_defect(path: Path) -> str:
    """Run onnx's checker with shape inference on the model at `path`; returns its first complaint in one line.

    Empty for a valid model and for ORT format, which only the runtime can check.
    """
    if path.suffix != ".onnx":
        return ""
    defect = _complaint(path)
    if any(f"No Op registered for {op} " in defect for op in RUNTIME_OPS):
        return _complaint_besides_runtime_ops(path)
    return defect


def _complaint(path: Path) -> str:
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except Exception as error:  # ValidationError, InferenceError, decode errors
        return describe_error(error)
    return ""


def _complaint_besides_runtime_ops(path: Path) -> str:
    """Check a copy in which the runtime's own operators have its domain, so that the checker does not look them up."""
    model = onnx.load(path, load_external_data=False)
    for node in walk_nodes(model.graph):
        if node.op_type in RUNTIME_OPS and is_standard(node):
            node.domain = ORT_DOMAIN
    import_ort_domain(model)
    # Beside the model, because external data are looked for there. Others may check the same model meanwhile.
    copy = path.with_name(f".{os.urandom(8).hex()}{path.suffix}")
    try:
        onnx.save(model, copy)
        return _complaint(copy)
    finally:
        copy.unlink(missing_ok=True)


def verify(
    before: Reference, after: Path, model: ModelProto | None, pass_: Pass, off_cpu: bool = False
) -> tuple[CheckResult, Reference]:
    """Check the new model of a pass; the arguments and the reference that it returns are those of `compare`.

    A complaint of the checker counts only if the input model does not give one too.
    """
    details: dict[str, object] = {}
    defect = find_defect(after)
    if defect:
        details["checker"] = defect
        if form_of(type(pass_)) == "source" or not find_defect(before.path):
            return CheckResult(f"the checker rejects the new model: {defect}", details), before
    equivalence, reference = compare(before, after, model, pass_, off_cpu)
    details.update(equivalence.to_json())
    problem = ""
    if equivalence.status == "different":
        problem = f"not equivalent to its input: {equivalence.reason}"
    return CheckResult(problem, details), reference
