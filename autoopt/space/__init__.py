"""Search parameters and the finite spaces that they span, with exact counts.

A `NodeSpace` is the space of one pass node, a `SearchSpace` the space of a chain. A search point is
`{node id: {parameter: value}}`; values are JSON values. Read `parameters` first, then `node_space` and `search_space`.
"""

from autoopt.space.node_space import MAX_GROUP, NodePoint, NodeSpace
from autoopt.space.parameters import (
    IGNORED,
    INVALID,
    Boolean,
    Categorical,
    Conditional,
    ConditionalDefault,
    Float,
    Integer,
    SearchParameter,
    Sentinel,
    Value,
    definition_from_json,
    definition_to_json,
    same,
    value_key,
)
from autoopt.space.search_space import Point, SearchSpace, matches

__all__ = [
    "IGNORED",
    "INVALID",
    "MAX_GROUP",
    "Boolean",
    "Categorical",
    "Conditional",
    "ConditionalDefault",
    "Float",
    "Integer",
    "NodePoint",
    "NodeSpace",
    "Point",
    "SearchParameter",
    "SearchSpace",
    "Sentinel",
    "Value",
    "definition_from_json",
    "definition_to_json",
    "matches",
    "same",
    "value_key",
]
