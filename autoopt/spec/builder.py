"""A pass graph built in Python, with the same fields as a file."""

from __future__ import annotations

from collections.abc import Mapping

from autoopt.space import Conditional, SearchParameter
from autoopt.spec.dag import DagSpec, load_dag


class Dag:
    """Nodes, and one of the three ways to connect them.

    Methods return the builder, so that calls can be chained:

        Dag("cpu-int8").add("simplify").add("static", "static_quantization", per_channel=Boolean())
            .chain("simplify", "static").set(objectives=["latency_p50"]).spec()

    In keyword parameters a search parameter (`Categorical(...)`, `Integer(...)`, ...) is searched; any other value is
    fixed.
    """

    def __init__(self, name: str, **fields: object) -> None:
        """Start with a name and any other field of dag.yaml (`target`, `data`, `objectives`, ...)."""
        self._passes: dict[str, object] = {}
        self._fields: dict[str, object] = {"name": name, "passes": self._passes, **fields}

    def add(
        self,
        node: str,
        pass_name: str | None = None,
        *,
        params: str | Mapping[str, object] | None = None,
        **fixed: object,
    ) -> Dag:
        """Add a node with a pass, by default the one of its name.

        `params` is as in dag.yaml, also `"search"`; `fixed` are further parameters by name.
        """
        if isinstance(params, str) and fixed:
            raise TypeError(f"params={params!r} covers all parameters; remove {', '.join(fixed)}")
        settings: object = params
        if not isinstance(params, str):
            settings = {name: _setting(value) for name, value in {**(params or {}), **fixed}.items()}
        self._passes[node] = {"pass": pass_name or node, "params": settings}
        return self

    def chain(self, *nodes: str) -> Dag:
        """Add a pass list."""
        return self._extend("chains", nodes)

    def stage(self, *alternatives: str | None) -> Dag:
        """Add a stage; None is "skip"."""
        return self._extend("stages", alternatives)

    def edge(self, *nodes: str) -> Dag:
        """Add a path to the graph: an edge from each node to the next."""
        return self._extend("edges", nodes)

    def set(self, **fields: object) -> Dag:
        """Set any other field of dag.yaml."""
        self._fields.update(fields)
        return self

    def to_json(self) -> dict[str, object]:
        """Return the fields as dag.yaml would hold them."""
        return dict(self._fields)

    def spec(self) -> DagSpec:
        """Return the pass graph.

        Raises:
            ConfigError: the first mistake.
        """
        return load_dag(self._fields)

    def _extend(self, kind: str, nodes: tuple[str | None, ...]) -> Dag:
        paths = self._fields.setdefault(kind, [])
        assert isinstance(paths, list)
        paths.append(list(nodes))
        return self


def _setting(value: object) -> object:
    """Return a parameter's value as dag.yaml holds it."""
    if isinstance(value, Conditional):
        raise TypeError("conditions belong to the pass; give the values to search")
    if isinstance(value, SearchParameter):
        return {"search": list(value.values())}
    return value
