"""Ask and tell over chains and their parameters; knows nothing of models. Importing it loads no numeric library."""

from autoopt.search.base import ChainSpace, Cost, Feedback, Proposal, SearchConfig, Strategy, Trial, point_key
from autoopt.search.choice import Scored, choose_best, dominates, hypervolume, non_dominated, pareto_front
from autoopt.search.pool import iterate, random_sample
from autoopt.search.stepper import Step, Stepper
from autoopt.search.strategies import make_chooser, make_strategy

__all__ = [
    "ChainSpace",
    "Cost",
    "Feedback",
    "Proposal",
    "Scored",
    "SearchConfig",
    "Step",
    "Stepper",
    "Strategy",
    "Trial",
    "choose_best",
    "dominates",
    "hypervolume",
    "iterate",
    "make_chooser",
    "make_strategy",
    "non_dominated",
    "pareto_front",
    "point_key",
    "random_sample",
]
