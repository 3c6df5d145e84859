"""From a spec to chains and an immutable plan. The only place that imports networkx."""

from autoopt.dag.compile import compile_plan
from autoopt.dag.infos import pass_infos, script_infos
from autoopt.dag.plan import Chain, ChainNode, Plan
from autoopt.dag.propose import Proposal, propose
from autoopt.dag.reasons import Facts

__all__ = ["Chain", "ChainNode", "Facts", "Plan", "Proposal", "compile_plan", "pass_infos", "propose", "script_infos"]
