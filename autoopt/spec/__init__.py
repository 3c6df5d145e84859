"""dag.yaml and zoo.yaml: read with line numbers, validated, as frozen values.

Read `dag.py` (dag.yaml) first; `zoo.py` is zoo.yaml. `document.py` reads YAML and JSON with line numbers, and
`strict_model.py` is the base of all models. Importing this package loads no numeric library.
"""

from autoopt.spec.builder import Dag
from autoopt.spec.dag import DagSpec, load_dag

__all__ = ["Dag", "DagSpec", "load_dag"]
