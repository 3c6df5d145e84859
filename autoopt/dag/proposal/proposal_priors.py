"""The priors of a proposal: what model, target and data rule out, with the reasons, and what is tried first.

What is ruled out are rows of `templates.toml`. What comes first is what an expert would try: one chain has all
preparation that the model has a use for and nothing else, and a second one a single thread. Each lossy pass gets a
chain with the preparation that it gains by, with the values that are best on most models. Values that the level, the
target or the model rule out drop out later.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from autoopt.dag.compiler.priors import Prior, Scope, Values
from autoopt.dag.compiler.pruning import Reason
from autoopt.dag.proposal.inputs import ProposalInputs, conditions, hold, node_conditions, words
from autoopt.dag.proposal.templates import TABLES, TEMPLATES, Combination, Points, Template
from autoopt.option_names import option
from autoopt.space import Value, same
from autoopt.spec.targets import TargetSpec
from autoopt.tuning import PROPOSAL

ONE_THREAD: Final[Mapping[str, Value]] = {"intra_op_num_threads": 1, "graph_optimization_level": "all"}
"""Session options that many small models are fastest with."""
STATIC: Final = ("static", "selective")
"""Lossy nodes that leave a fused attention in float, with the products in it, so they begin without `fuse`."""
GEMM: Final[Mapping[str, Value]] = {"engine": "onnxsim"}
"""Of `simplify` before `STATIC` in transformers: a product with its bias becomes a Gemm, one integer operator."""
FloatsAt: TypeAlias = Literal["", "first", "last"]
LAST: Final = "last, because the runtime itself prepares models much like this"
SHARED: Final = "last; recurrent layers in integers are too little work to be shared among threads"
UNSIGNED: Final = "first, because products of unsigned activations are far faster where the model's are signed"
FEW_BITS: Final = "first, because each token reads all weights"
LEFT_OUT: Final = ("graph", "session")
"""Nodes that the first points do without, but for one that has the session options."""


@dataclass(frozen=True)
class Places:
    """The chains that come before or after the others."""

    floats: FloatsAt
    """Place of the chains without a lossy pass; empty if none are tried."""
    reason: str = ""
    """The reason if they come first."""
    one_thread: bool = True
    """True if a single thread may be fastest, as for small models."""
    integers_on_one_thread: bool = False
    """True if a single thread is also tried with quantization at run time, as for small recurrent models."""
    early: Mapping[str, str] = field(default_factory=dict)
    """Lossy nodes to begin with, whatever other models teach, with the reason."""
    late: Mapping[str, str] = field(default_factory=dict)
    """Lossy nodes of which little is expected, with the reason."""


def ruled_out(node: str, inputs: ProposalInputs, target: TargetSpec, level: int) -> Reason | None:
    """The reason why no chain with this node is worth trying, beyond the pass's own reasons; or None."""
    kind = "lossy" if TEMPLATES[node].lossy else ""
    facts = conditions(inputs, target, level) | node_conditions(node, inputs, target)
    for row in TABLES.excluded:
        if not {node, kind}.isdisjoint(row.nodes) and hold(row.when, facts):
            return Reason(row.rule, row.reason.format_map(words(node, inputs, target)))
    return None


def value_cuts(
    nodes: Mapping[str, Template],
    fixed: Mapping[str, Mapping[str, Value]],
    inputs: ProposalInputs,
    target: TargetSpec,
    level: int,
) -> Iterator[Prior]:
    """Priors for the values of the templates that are not tried at a level, with the reasons.

    `fixed`: node id -> parameters that the target fixes.
    """
    facts = conditions(inputs, target, level)
    for node, template in nodes.items():
        for name, values in template.search.items():
            if name in fixed.get(node, {}):
                continue
            for value, lowest in values:
                reason = _value_reason(node, name, value, inputs, facts)
                if reason:
                    reason = reason.format_map(words(node, inputs, target))
                elif lowest > level:
                    reason = f"needs {option('level', lowest)}"
                if reason:
                    yield Prior("forbid", Scope(), {node: {name: value}}, reason=reason, origin="library")


def _value_reason(node: str, name: str, value: Value, inputs: ProposalInputs, facts: Collection[str]) -> str:
    """The reason why a value of a template is not tried, or ""."""
    for row in TABLES.cuts:
        cut = row.values.get(name, ())
        if cut == "layers":
            is_cut = isinstance(value, int) and value >= inputs.layer_count
        else:
            is_cut = any(same(value, other) for other in cut)
        if is_cut and node in row.nodes and hold(row.when, facts):
            return row.reason
    return ""


def untried_combinations(nodes: Mapping[str, Template]) -> Iterator[Prior]:
    """Priors for the combinations of these nodes and their values that no model gains by."""
    lossy = [node for node, template in nodes.items() if template.lossy]
    for node in lossy if "graph" in nodes else ():
        yield _forbidden(f"{node}, graph: onnxruntime already does this fusion at load time", (node, "graph"))
    for needed, what in {"dequantize": "already quantized", "float64": "in float64"}.items():
        for node in lossy if needed in nodes else ():
            if node not in (needed, "dequantize", "unsigned"):
                yield _forbidden(f"the model is {what}", (node,), without=(needed,))
    for row in TABLES.combinations:
        yield from _row_combinations(row, nodes)


def _row_combinations(row: Combination, nodes: Mapping[str, Template]) -> Iterator[Prior]:
    """The combinations of values of a row of the table, as far as these nodes search them."""
    ((node, cut),) = row.values.items()
    if node not in nodes or not nodes.keys() >= set(row.nodes):
        return
    search = nodes[node].search
    for values in itertools.product(*cut.values()):
        stated = dict(zip(cut, (None if value == "default" else value for value in values), strict=True))
        if all(any(same(value, each) for each, _ in search.get(name, ())) for name, value in stated.items()):
            yield _forbidden(row.reason, row.nodes, {node: stated})


def _forbidden(
    reason: str, nodes: Iterable[str] = (), values: Values | None = None, without: Iterable[str] = ()
) -> Prior:
    """Forbid chains with all of `nodes`, or these values in them; every chain without `nodes`."""
    scope = Scope(nodes=frozenset(nodes), without=frozenset(without)) if nodes else Scope()
    return Prior("forbid", scope, values or {}, reason=reason, origin="library")


@dataclass(frozen=True)
class Beginning:
    """The points that the search of a proposed graph starts with, as preferences."""

    stages: Sequence[Sequence[str]]
    """The nodes at each place of the graph, without those that are ruled out."""
    nodes: Mapping[str, Template]
    fixed: Mapping[str, Mapping[str, Value]]
    """Node id -> parameters that the target fixes."""
    places: Places
    lossy: Points
    """The values that lossy nodes begin with."""

    def priors(self) -> Iterator[Prior]:
        """The preferences, in order."""
        tried = set(itertools.chain.from_iterable(self.stages))
        has_threads = "session" in tried and "intra_op_num_threads" in self.nodes["session"].search
        preparation = self._chain()
        if "unsigned" in tried:
            # A quantized model gets unsigned activations instead of floats.
            chain = tuple("unsigned" if node == "dequantize" else node for node in preparation)
            yield from _preferred(chain, self._first_values(chain), PROPOSAL.early_weight, UNSIGNED)
        if self.places.floats:
            yield from self._floats(preparation, with_session=self.places.one_thread and has_threads)
        for node in filter(tried.__contains__, self.lossy):
            yield from self._lossy(node, with_gemm=node in STATIC and {"fuse", "simplify"} <= tried)
        if "dynamic" in tried and self.places.integers_on_one_thread and has_threads:
            yield from self._integers_on_one_thread()

    def _floats(self, preparation: tuple[str, ...], *, with_session: bool) -> Iterator[Prior]:
        """All preparation with its first values, then the same on one thread.

        A quantized model is prepared as it is, then in float, which convolutions gain by that are quantized at run
        time.
        """
        is_first = self.places.floats == "first"
        weight, reason = (PROPOSAL.early_weight, self.places.reason) if is_first else (PROPOSAL.late_weight, LAST)
        as_it_is = tuple(node for node in preparation if node != "dequantize")
        for chain in dict.fromkeys((as_it_is, preparation)):
            begin = self._first_values(chain)
            if not begin:
                continue
            yield from _preferred(chain, begin, weight, reason)
            if with_session and chain == as_it_is:
                values = {**begin, "session": ONE_THREAD}
                yield from _preferred((*chain, "session"), values, PROPOSAL.late_weight, LAST)

    def _lossy(self, node: str, *, with_gemm: bool) -> Iterator[Prior]:
        """The chain of a lossy node, early or late if its place says so, and its first values."""
        chain = self._chain(node)
        if node in self.places.early:
            yield from _preferred(chain, {}, PROPOSAL.early_weight, self.places.early[node])
        elif node in self.places.late:
            yield from _preferred(chain, {}, PROPOSAL.late_weight, self.places.late[node])
        prepared = {"simplify": GEMM} if with_gemm else {}
        for values in _distinct(self.lossy[node], self.nodes[node].search.keys() - self.fixed.get(node, {}).keys()):
            yield Prior("prefer", Scope(chain=chain), {**prepared, node: values}, origin="library")

    def _integers_on_one_thread(self) -> Iterator[Prior]:
        """Quantization at run time with a single thread."""
        chain = (*self._chain("dynamic"), "session")
        for values in _distinct(self.lossy["dynamic"], self.nodes["dynamic"].search):
            yield from _preferred(chain, {"dynamic": values, "session": ONE_THREAD}, PROPOSAL.late_weight, SHARED)

    def _first_values(self, chain: Sequence[str]) -> dict[str, Mapping[str, Value]]:
        """The first values of all parameters that are searched, by node."""
        first: dict[str, Mapping[str, Value]] = {}
        for node in chain:
            if self.nodes[node].search:
                first[node] = {name: values[0][0] for name, values in self.nodes[node].search.items()}
        return first

    def _chain(self, lossy: str = "") -> tuple[str, ...]:
        """The first node of each stage of preparation, and the lossy node in its place."""
        left_out = (*LEFT_OUT, "fuse") if lossy in STATIC else LEFT_OUT
        chain: list[str] = []
        for stage in self.stages:
            if lossy in stage:
                chain.append(lossy)
            elif stage and stage[0] not in left_out and not self._decides_precision(stage):
                chain.append(stage[0])
        return tuple(chain)

    def _decides_precision(self, stage: Collection[str]) -> bool:
        """False for a stage that comes before, such as undoing the model's own quantization."""
        return {"dequantize", "float64"}.isdisjoint(stage) and any(self.nodes[node].lossy for node in stage)


def _distinct(points: Sequence[Mapping[str, Value]], searched: Collection[str]) -> list[dict[str, Value]]:
    """The values of the parameters that are searched, without repetitions."""
    distinct: list[dict[str, Value]] = []
    for values in points:
        kept = {name: value for name, value in values.items() if name in searched}
        if kept not in distinct:
            distinct.append(kept)
    return distinct


def _preferred(
    chain: tuple[str, ...], values: Mapping[str, Mapping[str, Value]], weight: float, reason: str
) -> Iterator[Prior]:
    yield Prior("prefer", Scope(chain=chain), weight=weight, reason=reason, origin="library")
    if values:
        yield Prior("prefer", Scope(chain=chain), values, origin="library")
