"""Publish tables about individuals, and say what the release guarantees."""

from __future__ import annotations

from . import _core
from ._arguments import quote_no_arguments
from ._core import __version__
from .aggregate import cluster_moments
from .certificate import Certificate
from .errors import BudgetError, DpmicroError, GeneratorError, InputError
from .hierarchy import Hierarchy
from .lloyd import assign, pcl
from .mask import Budget, discrete_laplace, exponential_mechanism, permute_and_flip
from .methods import Method, MicroaggregatedDP, Microaggregation, TruthfulDP, method
from .partition import (
    individual_ranking,
    insensitive_ranking,
    mdav,
    optimal_univariate,
    sse,
    vmdav,
)
from .plan import plan
from .release import Release, anonymize
from .repair import nearest_psd
from .safepub import safepub_curve, safepub_delta, safepub_parameters
from .schema import Categorical, Drop, Keep, Numeric, Schema

quote_no_arguments(_core)

__all__ = [
    "Budget",
    "BudgetError",
    "Categorical",
    "Certificate",
    "DpmicroError",
    "Drop",
    "GeneratorError",
    "Hierarchy",
    "InputError",
    "Keep",
    "Method",
    "MicroaggregatedDP",
    "Microaggregation",
    "Numeric",
    "Release",
    "Schema",
    "TruthfulDP",
    "__version__",
    "anonymize",
    "assign",
    "cluster_moments",
    "discrete_laplace",
    "exponential_mechanism",
    "individual_ranking",
    "insensitive_ranking",
    "mdav",
    "method",
    "nearest_psd",
    "optimal_univariate",
    "pcl",
    "permute_and_flip",
    "plan",
    "safepub_curve",
    "safepub_delta",
    "safepub_parameters",
    "sse",
    "vmdav",
]
