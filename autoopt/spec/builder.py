"""A pass graph made in Python, the same as one in a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autoopt.space import Conditional, SearchParameter
from autoopt.spec.dag import DagSpec
from autoopt.spec.load import load_dag


class Dag:
    """Nodes, and one of the three ways to connect them. Methods return the builder, so that calls can be chained:

        Dag("cpu-int8").add("simplify").add("static", "static_quantization", per_channel=Boolean())
            .chain("simplify", "static").set(objectives=["latency_p50"]).spec()

    In keyword parameters a search parameter (`Categorical(...)`, `Integer(...)`, ...) is searched; any other value is
    fixed.
    """

    def __init__(self, name: str, **fields: Any) -> None:
        """`fields`: any other field of dag.yaml (`target`, `data`, `objectives`, ...)."""
        self._fields: dict[str, Any] = {"name": name, "passes": {}, **fields}

    def add(self, node: str, pass_name: str | None = None, *, params: Any = None, **fixed: Any) -> Dag:
        """A node. `pass_name`: the pass, the node id where not given. `params`: as in dag.yaml, also `"search"`."""
        values = params if isinstance(params, str) else {**(params or {}), **fixed}
        if isinstance(values, Mapping):
            values = {name: _written(value) for name, value in values.items()}
        elif fixed:
            raise TypeError(f"params={params!r} says all there is; it goes without {', '.join(fixed)}")
        self._fields["passes"][node] = {"pass": pass_name or node, "params": values}
        return self

    def chain(self, *nodes: str) -> Dag:
        """One more pass list."""
        return self._more("chains", list(nodes))

    def stage(self, *alternatives: str | None) -> Dag:
        """One more stage; None is "skip"."""
        return self._more("stages", list(alternatives))

    def edge(self, *nodes: str) -> Dag:
        """One more path of the graph: an edge from each node to the next."""
        return self._more("edges", list(nodes))

    def set(self, **fields: Any) -> Dag:
        """Any other field of dag.yaml."""
        self._fields.update(fields)
        return self

    def to_json(self) -> dict[str, Any]:
        """What dag.yaml would hold."""
        return dict(self._fields)

    def spec(self) -> DagSpec:
        """The pass graph.

        Raises:
            ConfigError: the first thing that is wrong.
        """
        return load_dag(self._fields)

    def _more(self, kind: str, item: list[Any]) -> Dag:
        self._fields.setdefault(kind, []).append(item)
        return self


def _written(value: Any) -> Any:
    """A parameter's value as dag.yaml writes it."""
    if isinstance(value, Conditional):
        raise TypeError("conditions belong to the pass; give the values to search")
    return {"search": list(value.values())} if isinstance(value, SearchParameter) else value
