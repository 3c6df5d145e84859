"""The points that the search of a proposed graph starts with: what an expert would try first.

One chain has all preparation that the model has a use for and nothing else, and a second one a single thread. Each
lossy pass gets a chain with the preparation that it gains by, with the values that are best on most models. Values that
the level, the target or the model rule out drop out later.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from autoopt.dag.graph.priors import Prior, Scope
from autoopt.dag.proposal.templates import Points, Template
from autoopt.space import Value
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


def first_points(
    stages: Sequence[Sequence[str]],
    nodes: Mapping[str, Template],
    fixed: Mapping[str, Mapping[str, Value]],
    *,
    places: Places,
    lossy: Points,
) -> Iterator[Prior]:
    """Preferences for the points to try first.

    `stages` have the nodes at each place of the graph, without those that are ruled out. `lossy` are the values that
    lossy nodes begin with.
    """
    tried = set(itertools.chain.from_iterable(stages))
    preparation = _chain(stages, nodes)
    has_threads = "session" in tried and "intra_op_num_threads" in nodes["session"].search
    if "unsigned" in tried:
        # A quantized model gets unsigned activations instead of floats.
        chain = tuple("unsigned" if node == "dequantize" else node for node in preparation)
        yield from _preferred(chain, _begin(chain, nodes), PROPOSAL.early_weight, UNSIGNED)
    if places.floats:
        # A quantized model as it is, then in float, which convolutions gain by that are quantized at run time.
        as_it_is = tuple(node for node in preparation if node != "dequantize")
        yield from _float_points(as_it_is, nodes, places, with_session=places.one_thread and has_threads)
        if as_it_is != preparation:
            yield from _float_points(preparation, nodes, places, with_session=False)
    for node in filter(tried.__contains__, lossy):
        searched = nodes[node].search.keys() - fixed.get(node, {}).keys()
        has_gemm = node in STATIC and {"fuse", "simplify"} <= tried
        chain = _chain(stages, nodes, node)
        if node in places.early:
            yield Prior(
                "prefer", Scope(chain=chain), weight=PROPOSAL.early_weight, reason=places.early[node], origin="library"
            )
        elif node in places.late:
            yield Prior(
                "prefer", Scope(chain=chain), weight=PROPOSAL.late_weight, reason=places.late[node], origin="library"
            )
        prepared = {"simplify": GEMM} if has_gemm else {}
        for values in _distinct(lossy[node], searched):
            yield Prior("prefer", Scope(chain=chain), {**prepared, node: values}, origin="library")
    if "dynamic" in tried and places.integers_on_one_thread and has_threads:
        chain = (*_chain(stages, nodes, "dynamic"), "session")
        for values in _distinct(lossy["dynamic"], nodes["dynamic"].search):
            yield from _preferred(chain, {"dynamic": values, "session": ONE_THREAD}, PROPOSAL.late_weight, SHARED)


def _distinct(points: Sequence[Mapping[str, Value]], searched: Collection[str]) -> list[dict[str, Value]]:
    """The values of the parameters that are searched, without repetitions."""
    distinct: list[dict[str, Value]] = []
    for values in points:
        kept = {name: value for name, value in values.items() if name in searched}
        if kept not in distinct:
            distinct.append(kept)
    return distinct


def _float_points(
    preparation: tuple[str, ...], nodes: Mapping[str, Template], places: Places, *, with_session: bool
) -> Iterator[Prior]:
    """All preparation with its first values, then the same on one thread."""
    begin = _begin(preparation, nodes)
    if not begin:
        return
    if places.floats == "first":
        yield from _preferred(preparation, begin, PROPOSAL.early_weight, places.reason)
    else:
        yield from _preferred(preparation, begin, PROPOSAL.late_weight, LAST)
    if with_session:
        yield from _preferred((*preparation, "session"), {**begin, "session": ONE_THREAD}, PROPOSAL.late_weight, LAST)


def _begin(chain: Sequence[str], nodes: Mapping[str, Template]) -> dict[str, Mapping[str, Value]]:
    """The first values of all parameters that are searched, by node."""
    first: dict[str, Mapping[str, Value]] = {}
    for node in chain:
        if nodes[node].search:
            first[node] = {name: values[0][0] for name, values in nodes[node].search.items()}
    return first


def _preferred(
    chain: tuple[str, ...], values: Mapping[str, Mapping[str, Value]], weight: float, reason: str
) -> Iterator[Prior]:
    yield Prior("prefer", Scope(chain=chain), weight=weight, reason=reason, origin="library")
    if values:
        yield Prior("prefer", Scope(chain=chain), values, origin="library")


def _chain(stages: Sequence[Sequence[str]], nodes: Mapping[str, Template], lossy: str = "") -> tuple[str, ...]:
    """The first node of each stage of preparation, and the lossy node in its place."""
    left_out = (*LEFT_OUT, "fuse") if lossy in STATIC else LEFT_OUT
    chain: list[str] = []
    for stage in stages:
        if lossy in stage:
            chain.append(lossy)
        elif stage and stage[0] not in left_out and _is_preparation(stage, nodes):
            chain.append(stage[0])
    return tuple(chain)


def _is_preparation(stage: Collection[str], nodes: Mapping[str, Template]) -> bool:
    """True if a stage comes before the choice of a precision, such as undoing the model's own quantization."""
    return not {"dequantize", "float64"}.isdisjoint(stage) or not any(nodes[node].lossy for node in stage)
