"""The first points of a plan, in an order that measurements of other models teach.

The lessons of this store and those that autoopt ships count together. Their trials are observations of a
Gaussian process over models and configurations, which ranks what the plan would begin with.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, starmap
from typing import TYPE_CHECKING, Final

from autoopt.dag import Chain, Plan
from autoopt.dag.compiler.chain import ChainNode
from autoopt.dag.compiler.plan import Learned
from autoopt.dag.proposal.first_points import LITTLE
from autoopt.dag.warm_start import MAX_CHAINS, settings_text
from autoopt.metrics import MEDIAN_LATENCY, STEADY_STATE
from autoopt.model.inspection import Inspection
from autoopt.model.similarity import features
from autoopt.problem.best_candidate import Machine
from autoopt.problem.lessons import BUILT_IN, Configuration, Lesson, Tried
from autoopt.report.words.formatting import plural
from autoopt.space import Point, Value
from autoopt.target import ALL_THREADS, Target

if TYPE_CHECKING:
    from autoopt.search.surrogates.multitask import Effect, MultitaskProcess, TriedConfiguration

MAX_LEARNED: Final = 3
"""Learned points: misleading lessons cost this many trials."""
TRUST_ELSEWHERE: Final = 0.5
"""Weight of a lesson from another CPU or runtime, relative to one from this machine."""
SILENT: Final = frozenset(("name_fix", "ir_upgrade", "quant_pre_process", "layer_sensitivity"))
"""Passes that prepare others."""
MAX_OBSERVATIONS: Final = 1_500
"""Observations of the process, of the most similar models: its time grows with their cube."""
MAX_CANDIDATES: Final = 300
"""Points that are ranked."""
MAX_VALUES: Final = 64
"""Settings of one node that are compared."""
SHOWN_MODELS: Final = 4
"""Models whose results are the evidence of a point."""
INT8_KERNELS: Final[Mapping[str, frozenset[str]]] = {
    "vnni": frozenset(("avx512_vnni", "avx_vnni", "amx_int8")),
    "dot product": frozenset(("asimddp", "i8mm")),
    "avx2": frozenset(("avx2",)),
    "neon": frozenset(("asimd",)),
}
"""Instructions that decide how fast integers are, the fastest first, by name."""


@dataclass(frozen=True)
class Question:
    """A model, target and machine that lessons are asked about."""

    inspection: Inspection
    target: Target
    machine: Machine
    isa: Collection[str]
    """Instruction sets of the machine; empty if unknown."""


@dataclass(frozen=True)
class RelevantLesson:
    """A lesson that tells something about a question."""

    lesson: Lesson
    features: tuple[float, ...]
    differences: tuple[str, ...]
    """CPU, runtime or threads that it was measured with, if they differ from those of the question."""

    @property
    def weight(self) -> float:
        return TRUST_ELSEWHERE if self.differences else 1.0

    def distance(self, model: tuple[float, ...]) -> float:
        """Distance of its model from one with these features."""
        return math.dist(self.features, model)

    def tried(self) -> Iterator[Tried]:
        """The configurations of the lesson with their outcomes."""
        for each in self.lesson.tried:
            yield replace(each, configuration=_audible(each.configuration))


@dataclass(frozen=True)
class Sources:
    """The lessons about a question, the most similar models first, and what is to be said about them."""

    used: tuple[RelevantLesson, ...]
    text: str

    def observations(self) -> list[TriedConfiguration]:
        """The observations of the process."""
        from autoopt.search.surrogates.multitask import TriedConfiguration

        observations: list[TriedConfiguration] = []
        for source in self.used:
            for tried in source.tried():
                if not tried.configuration:
                    continue
                log_ratio = None if tried.ratio is None else math.log(tried.ratio)
                observation = TriedConfiguration(
                    source.features, tried.configuration, log_ratio, tried.rejected, source.weight
                )
                observations.append(observation)
        return observations[:MAX_OBSERVATIONS]


def sources_for(question: Question, lessons: Iterable[Lesson]) -> Sources:
    """The lessons for the same kind of target, with latency as the goal.

    How fast integers are depends on the CPU's instructions, so lessons from a CPU with others are left out.
    """
    model = features(question.inspection)
    kernels = int8_kernels(question.isa)
    used: list[RelevantLesson] = []
    left_out: dict[str, int] = {}
    for lesson in lessons:
        goal = lesson.goal
        if (goal.device, goal.execution_provider) != (question.target.device, question.target.execution_provider):
            continue
        if goal.metric not in STEADY_STATE:
            continue
        theirs = int8_kernels(lesson.isa)
        if kernels and theirs and kernels != theirs:
            left_out[lesson.origin] = left_out.get(lesson.origin, 0) + 1
            continue
        differences = machine_differences(lesson.machine, question.machine)
        if goal.threads != question.target.threads:
            differences.append(threads_text(goal.threads))
        used.append(RelevantLesson(lesson, features(lesson.inspection), tuple(differences)))
    used.sort(key=lambda source: source.distance(model))
    return Sources(tuple(used), "; ".join(_texts(used, left_out)))


def _texts(used: Sequence[RelevantLesson], left_out: Mapping[str, int]) -> Iterator[str]:
    """The lessons by origin and by what differs."""
    counts: dict[tuple[str, tuple[str, ...]], int] = {}
    for source in used:
        key = source.lesson.origin, source.differences
        counts[key] = counts.get(key, 0) + 1
    for (origin, differences), count in counts.items():
        text = f"{origin}: {plural(count, 'model')}"
        if differences:
            text += f", half weight because measured with {', '.join(differences)}"
        yield text
    for origin, count in left_out.items():
        yield f"{origin}: {count} left out, measured on a CPU with other instructions for integers"


def machine_differences(theirs: Machine, mine: Machine) -> list[str]:
    """Name what differs between two machines."""
    differences: list[str] = []
    if theirs.cpu != mine.cpu:
        differences.append(theirs.cpu or "an unknown CPU")
    if theirs.runtime != mine.runtime:
        differences.append(f"onnxruntime {theirs.runtime or 'of an unknown version'}")
    return differences


def threads_text(threads: int) -> str:
    """A number of threads in words."""
    if threads == ALL_THREADS:
        return "all threads"
    return plural(threads, "thread")


def int8_kernels(isa: Collection[str]) -> str:
    """The kind of integer arithmetic of a CPU; empty if unknown."""
    for name, instructions in INT8_KERNELS.items():
        if not instructions.isdisjoint(isa):
            return name
    return ""


def learned_points(plan: Plan, question: Question, sources: Sources) -> list[Learned]:
    """The points to begin with, by the expected improvement of each as if those before gave what is expected.

    Those with an analysis of the model, such as `layer_sensitivity`, come after the others.
    """
    observations = sources.observations()
    if not observations:
        return []
    from autoopt.search.surrogates.multitask import MultitaskProcess

    process = MultitaskProcess(observations)
    model = features(question.inspection)
    candidates = _Candidates(process, model, sources.used).of(plan)
    if len(candidates) < 2:
        return []  # there is no order
    configurations = [configuration_of(chain, point) for chain, point in candidates]
    expectation = process.expect(model, configurations)
    order = expectation.order([chain.weight for chain, _ in candidates], MAX_LEARNED)
    # The analysis of a slow model takes as long as several trials: in two minutes, it may leave no time for any.
    order.sort(key=lambda index: any(node.info.analysis for node in candidates[index][0].nodes))
    points: list[Learned] = []
    for index in order:
        chain, point = candidates[index]
        evidence = _evidence(chain, point, configurations[index], sources.used)
        points.append(Learned(chain.id, chain.passes, point, evidence))
    return points


@dataclass(frozen=True)
class _Candidates:
    """Finds the points of a plan that are worth ranking."""

    process: MultitaskProcess
    model: tuple[float, ...]
    sources: Sequence[RelevantLesson]

    def of(self, plan: Plan) -> list[tuple[Chain, Point]]:
        """The prior points of a plan, else one point of each chain; each of them different for the process.

        What the user or the proposal wants to come first or last, by a weight, stays so.
        """
        chains = [chain for chain in plan.chains(MAX_CHAINS) if LITTLE <= chain.weight <= 1]
        points = [(chain, point) for chain in chains for point in chain.prior]
        if not points and not any(chain.prior or chain.weight > 1 for chain in plan.chains(MAX_CHAINS)):
            points = list(self._one_of_each(chains))
        known: dict[Collection[Effect], tuple[Chain, Point]] = {}
        for chain, point in points:
            effects = self.process.known_effects(configuration_of(chain, point))
            if effects:
                known.setdefault(effects, (chain, point))
        return self._best_of_each_precision(list(known.values())[:MAX_CANDIDATES])

    def _best_of_each_precision(self, points: Sequence[tuple[Chain, Point]]) -> list[tuple[Chain, Point]]:
        """Of points that differ only in the preparation of a lossy pass, the one that promises most.

        One whose passes were tried together comes before those that only promise by their single passes.
        """
        if not points:
            return []
        tried = {frozenset(each.configuration) for source in self.sources for each in source.tried()}
        means = self.process.expect(self.model, list(starmap(configuration_of, points))).means.tolist()
        best: dict[Collection[Effect], tuple[tuple[bool, float], tuple[Chain, Point]]] = {}
        for mean, (chain, point) in zip(means, points, strict=True):
            configuration = configuration_of(chain, point)
            lossy = {name: configuration[name] for name in lossy_passes(chain) if name in configuration}
            key = self.process.known_effects(lossy or configuration)
            is_untried = not any(lossy.keys() <= passes <= configuration.keys() for passes in tried)
            if key not in best or (is_untried, mean) < best[key][0]:
                best[key] = (is_untried, mean), (chain, point)
        return [pair for _, pair in best.values()]

    def _one_of_each(self, chains: Sequence[Chain]) -> Iterator[tuple[Chain, Point]]:
        """The most promising point of each chain, as far as its passes are known."""
        tried: dict[str, list[Mapping[str, Value]]] = {}
        for source in self.sources:
            for each in source.tried():
                for name, values in each.configuration.items():
                    if values not in tried.setdefault(name, []):
                        tried[name].append(values)
        best: dict[str, Mapping[str, Value]] = {}
        for chain in chains:
            point: Point = {}
            for node in chain.nodes:
                key = f"{chain.id} {node.id}" if chain.cuts else node.id
                if key not in best:
                    best[key] = self._most_promising(node, tried.get(node.pass_name, ()))
                if best[key]:
                    point[node.id] = dict(best[key])
            if chain.space.allows(point):
                yield chain, point

    def _most_promising(self, node: ChainNode, tried: Sequence[Mapping[str, Value]]) -> Mapping[str, Value]:
        """The setting of a node to begin with; of equal ones, the first that was tried."""
        settings = list(islice(node.space.iterate(), MAX_VALUES))
        if len(settings) < 2 or not tried:
            return settings[0] if settings else {}
        fixed = node.space.fixed
        settings.sort(key=lambda values: not any(_agree(known, {**fixed, **values}) for known in tried))
        expectation = self.process.expect(self.model, [{node.pass_name: values} for values in settings])
        return settings[expectation.order([1.0] * len(settings), 1)[0]]


def lossy_passes(chain: Chain) -> list[str]:
    """Names of the passes of a chain that change results on purpose."""
    return [node.pass_name for node in chain.nodes if node.info.tolerance == "lossy"]


def configuration_of(chain: Chain, point: Point) -> Configuration:
    """The passes of a point with their values, fixed ones included."""
    configuration: dict[str, dict[str, Value]] = {}
    for node in chain.nodes:
        configuration[node.pass_name] = {**node.space.fixed, **point.get(node.id, {})}
    return _audible(configuration)


def _audible(configuration: Configuration) -> Configuration:
    return {name: values for name, values in configuration.items() if name not in SILENT}


def _evidence(chain: Chain, point: Point, configuration: Configuration, sources: Sequence[RelevantLesson]) -> str:
    """`static_quantization (...) gave 0.45 to 0.60 of the source's latency on the 4 most similar of 20 models`."""
    lossy = lossy_passes(chain)
    models = _similar_results(configuration, lossy, sources)
    searched = {node.pass_name: point.get(node.id, {}) for node in chain.nodes}
    if not models:
        return f"{settings_text(lossy or list(configuration), searched)}: expected from its passes on other models"
    shown = models[:SHOWN_MODELS]
    text = settings_text(lossy or list(shown[0][1].configuration), searched)
    text += f" {_range([tried.ratio for _, tried in shown if tried.ratio is not None])}"
    names = ", ".join(dict.fromkeys(name for name, _ in shown))
    if len(models) > len(shown):
        text += f" on the {len(shown)} most similar of {len(models)} models ({names})"
    else:
        text += f" on {plural(len(models), 'model')} ({names})"
    rejected = sum(tried.rejected for _, tried in shown)
    if rejected:
        text += f"; failed or broke a limit on {rejected} of these {len(shown)}"
    return text


def _similar_results(
    configuration: Configuration, lossy: Collection[str], sources: Sequence[RelevantLesson]
) -> list[tuple[str, Tried]]:
    """The result on each model that a configuration like this one was tried on, the longest if there are several."""
    models: list[tuple[str, Tried]] = []
    for source in sources:
        results = [tried for tried in source.tried() if _is_like(tried.configuration, configuration, lossy)]
        if results:
            name = BUILT_IN if source.lesson.origin == BUILT_IN else source.lesson.model
            models.append((name, max(results, key=lambda tried: len(tried.configuration))))
    return models


def _range(ratios: Sequence[float]) -> str:
    if not ratios:
        return "gave no latency"
    low, high = f"{min(ratios):.2f}", f"{max(ratios):.2f}"
    span = low if low == high else f"{low} to {high}"
    return f"gave {span} of the source's {MEDIAN_LATENCY}"


def _is_like(known: Configuration, configuration: Configuration, lossy: Collection[str]) -> bool:
    """True if a measured configuration has no other pass, the same lossy ones, and the same values where both say."""
    if not known or not known.keys() <= configuration.keys() or not known.keys() >= set(lossy):
        return False
    return all(_agree(values, configuration[name]) for name, values in known.items())


def _agree(known: Mapping[str, Value], values: Mapping[str, Value]) -> bool:
    """True if no parameter has two values."""
    return all(values.get(key, value) == value for key, value in known.items())
