"""From a spec to chains and an immutable plan, and from a model to a proposed spec. Only this package imports networkx.

`compiler` turns a spec into a plan with exact counts and a reason for each pruned chain; `proposal.propose` writes a
spec for a model. Read `compiler.compile` first.
"""

from autoopt.dag.compiler.chain import Chain, ChainNode
from autoopt.dag.compiler.compile import check_dag, compile_plan, read_dag
from autoopt.dag.compiler.plan import Plan
from autoopt.dag.compiler.pruning import Facts
from autoopt.dag.compiler.requirements import pass_infos

__all__ = ["Chain", "ChainNode", "Facts", "Plan", "check_dag", "compile_plan", "pass_infos", "read_dag"]
