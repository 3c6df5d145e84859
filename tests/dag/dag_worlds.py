"""Random pass graphs with conflicts, requirements and priors, and the slow, obvious way to compile them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise, product
from typing import Any

from hypothesis import strategies as st

from autoopt.errors import InputError
from autoopt.registry import ParameterInfo, PassInfo
from autoopt.space import Categorical

PASSES = ("p", "q", "r", "s", "t", "u")
CPU = "CPUExecutionProvider"


@dataclass(frozen=True)
class World:
    """What passes there are, and a DAG as written."""

    infos: Mapping[str, PassInfo]
    dag: dict[str, Any]

    def info(self, name: str) -> PassInfo:
        if name not in self.infos:
            raise InputError(f"unknown pass {name!r}")
        return self.infos[name]


def make_info(name: str, points: int = 1, **more: Any) -> PassInfo:
    """A pass with one searched parameter `v`, which has `points` values."""
    parameter = ParameterInfo("v", int, 0, Categorical(list(range(points))))
    return PassInfo(name, "test", f"does {name}", (parameter,), **more)


@st.composite
def infos(draw: st.DrawFn) -> dict[str, PassInfo]:
    """Passes that conflict with and require others; some are not available or for another EP."""
    others = st.lists(st.sampled_from(PASSES), max_size=2, unique=True)
    made = {}
    for name in PASSES:
        made[name] = make_info(
            name,
            draw(st.integers(1, 3)),
            requires=tuple(r for r in draw(others) if r != name) if draw(st.booleans()) else (),
            conflicts=tuple(draw(others)) if draw(st.booleans()) else (),
            missing="no library" if draw(st.integers(0, 9)) == 0 else "",
            accelerators=("CUDAExecutionProvider",) if draw(st.integers(0, 9)) == 0 else (),
        )
    return made


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A DAG of up to eight nodes, written in one of the three ways, with priors."""
    count = draw(st.integers(1, 8))
    nodes = [f"n{i}" for i in range(count)]
    passes = {n: {"pass": draw(st.sampled_from(PASSES)), "params": "search"} for n in nodes}
    kind = draw(st.sampled_from(("edges", "chains", "stages")))
    graph = draw({"edges": edges, "chains": chains, "stages": stages}[kind](nodes))
    used = {n for path in graph for n in (path if isinstance(path, list) else [path]) if n}
    dag: dict[str, Any] = {"name": "w", "passes": {n: p for n, p in passes.items() if n in used}, kind: graph}
    known = draw(infos())
    present = sorted(used)
    for field_name in ("forbid", "require"):
        dag[field_name] = draw(st.lists(priors(present, {n: known[p["pass"]] for n, p in passes.items()}), max_size=2))
    return World(known, dag)


@st.composite
def edges(draw: st.DrawFn, nodes: list[str]) -> list[list[str]]:
    pairs = [[a, b] for i, a in enumerate(nodes) for b in nodes[i + 1 :]]
    chosen = draw(st.lists(st.sampled_from(pairs), max_size=12)) if pairs else []
    return chosen + [[n] for n in nodes]


def chains(nodes: list[str]) -> st.SearchStrategy[list[list[str]]]:
    return st.lists(st.lists(st.sampled_from(nodes), min_size=1, max_size=4, unique=True), min_size=1, max_size=6)


@st.composite
def stages(draw: st.DrawFn, nodes: list[str]) -> list[list[str | None]]:
    made: list[list[str | None]] = [[]]
    for node in nodes:
        if made[-1] and draw(st.booleans()):
            made.append([])
        made[-1].append(node)
    return [[*stage, None] if draw(st.booleans()) else stage for stage in made]


@st.composite
def priors(draw: st.DrawFn, nodes: list[str], of: Mapping[str, PassInfo]) -> dict[str, Any]:
    """About all chains or those with given nodes; about chains or values."""
    some = st.lists(st.sampled_from(nodes), min_size=1, max_size=2, unique=True)
    prior: dict[str, Any] = {}
    if draw(st.booleans()):
        prior["nodes"] = draw(some)
        if draw(st.booleans()):
            prior["without"] = draw(some)
    if not prior or draw(st.booleans()):
        prior["values"] = {n: {"v": draw(st.sampled_from(of[n].parameters[0].search.values()))} for n in draw(some)}  # type: ignore[union-attr]  # always searched
    return prior


@dataclass
class Slow:
    """Everything about a world, by going through every chain and every point."""

    kept: dict[tuple[str, ...], int] = field(default_factory=dict)
    before: int = 0
    pruned: int = 0
    inserted: set[tuple[str, str]] = field(default_factory=set)


def all_paths(dag: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The chains that a DAG writes, as node ids."""
    if "chains" in dag:
        return list(dict.fromkeys(tuple(c) for c in dag["chains"]))
    if "stages" in dag:
        paths = [tuple(n for n in choice if n is not None) for choice in product(*dag["stages"])]
        return [p for p in dict.fromkeys(paths) if p]
    after: dict[str, list[str]] = {n: [] for n in dag["passes"]}
    for path in dag["edges"]:
        for a, b in pairwise(path):
            if b not in after[a]:
                after[a].append(b)
    roots = [n for n in after if not any(n in later for later in after.values())]

    def walk(path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        if not after[path[-1]]:
            yield path
        for node in after[path[-1]]:
            yield from walk((*path, node))

    return [path for root in roots for path in walk((root,))]


def slowly(world: World) -> Slow:
    """Compile a world the obvious way."""
    slow = Slow()
    for path in all_paths(world.dag):
        inserted = _passes_fit(world, path)
        points = _points(world, path) if inserted is not None and _chain_wanted(world, path) else []
        if inserted is None or not points:
            slow.pruned += 1
            continue
        slow.kept[path] = len(points)
        slow.before += _size(world, path)
        slow.inserted |= inserted
    return slow


def _fits(info: PassInfo) -> bool:
    return info.available and (not info.accelerators or CPU in info.accelerators)


def _passes_fit(world: World, path: tuple[str, ...]) -> set[tuple[str, str]] | None:
    """(inserted pass, node before which), or None where the passes do not go together."""
    present: set[str] = set()
    inserted: set[tuple[str, str]] = set()
    for node in path:
        info = world.infos[world.dag["passes"][node]["pass"]]
        if not _fits(info) or set(info.conflicts) & present:
            return None
        more: list[str] = []
        if not _insert(world, info, present, more, [info.name]):
            return None
        inserted |= {(name, node) for name in more}
        present |= {info.name, *more}
    return inserted


def _insert(world: World, info: PassInfo, present: set[str], more: list[str], above: list[str]) -> bool:
    for wanted in info.requires:
        if wanted in present or wanted in more:
            continue
        needed = world.infos[wanted]
        if wanted in above or not _insert(world, needed, present, more, [*above, wanted]):
            return False
        if not _fits(needed) or set(needed.conflicts) & (present | set(more)):
            return False
        more.append(wanted)
    return True


def _covers(prior: Mapping[str, Any], path: tuple[str, ...]) -> bool:
    return set(prior.get("nodes", ())) <= set(path) and not set(prior.get("without", ())) & set(path)


def _chain_wanted(world: World, path: tuple[str, ...]) -> bool:
    forbidden = any(_covers(p, path) for p in world.dag["forbid"] if "values" not in p)
    return not forbidden and all(_covers(p, path) for p in world.dag["require"] if "values" not in p)


def _values(world: World, node: str) -> tuple[Any, ...]:
    search = world.infos[world.dag["passes"][node]["pass"]].parameters[0].search
    return search.values()


def _size(world: World, path: tuple[str, ...]) -> int:
    size = 1
    for node in path:
        size *= len(_values(world, node))
    return size


def _points(world: World, path: tuple[str, ...]) -> list[dict[str, Any]]:
    """The points that no prior cuts."""
    points = [dict(zip(path, values, strict=True)) for values in product(*(_values(world, n) for n in path))]
    for prior in world.dag["forbid"]:
        if "values" in prior and _covers(prior, path):
            points = [p for p in points if not all(n in p and p[n] == v["v"] for n, v in prior["values"].items())]
    for prior in world.dag["require"]:
        if "values" in prior and _covers(prior, path):
            points = [p for p in points if all(n not in p or p[n] == v["v"] for n, v in prior["values"].items())]
    return points
