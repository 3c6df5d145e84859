"""Search over chains of passes and their parameters, with ask and tell. It knows nothing of models.

Read `trial.py` (what is searched, proposed and reported) and `study.py` (ask and tell) first, then `samplers/base.py`
(how a sampler decides what to try). `factory.py` creates a study from a configuration; `losses.py` says what is better.
Importing this package loads no numeric library.
"""

from autoopt.search.factory import create_study
from autoopt.search.losses import Scored, choose_best, non_dominated, pareto_front
from autoopt.search.points import iterate, random_sample
from autoopt.search.study import Study
from autoopt.search.trial import ChainSpace, Cost, Feedback, Proposal, point_key
from autoopt.spec.search import SearchConfig

__all__ = [
    "ChainSpace",
    "Cost",
    "Feedback",
    "Proposal",
    "Scored",
    "SearchConfig",
    "Study",
    "choose_best",
    "create_study",
    "iterate",
    "non_dominated",
    "pareto_front",
    "point_key",
    "random_sample",
]
