"""dag.yaml and zoo.yaml: read with line numbers, validated, as frozen values. Imports no numeric library."""

from autoopt.spec.builder import Dag
from autoopt.spec.dag import DagSpec
from autoopt.spec.load import load_dag

__all__ = ["Dag", "DagSpec", "load_dag"]
