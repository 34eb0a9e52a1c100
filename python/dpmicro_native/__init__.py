"""Publish tables about individuals, and say what the release guarantees."""

from __future__ import annotations

from ._core import __version__
from .certificate import Certificate
from .errors import BudgetError, DpmicroError, GeneratorError, InputError
from .mask import Budget, discrete_laplace, exponential_mechanism, permute_and_flip
from .methods import Method, MicroaggregatedDP, Microaggregation, method
from .partition import (
    individual_ranking,
    insensitive_ranking,
    mdav,
    optimal_univariate,
    sse,
    vmdav,
)
from .release import Release, anonymize
from .schema import Categorical, Drop, Keep, Numeric, Schema

__all__ = [
    "Budget",
    "BudgetError",
    "Categorical",
    "Certificate",
    "DpmicroError",
    "Drop",
    "GeneratorError",
    "InputError",
    "Keep",
    "Method",
    "MicroaggregatedDP",
    "Microaggregation",
    "Numeric",
    "Release",
    "Schema",
    "__version__",
    "anonymize",
    "discrete_laplace",
    "exponential_mechanism",
    "individual_ranking",
    "insensitive_ranking",
    "mdav",
    "method",
    "optimal_univariate",
    "permute_and_flip",
    "sse",
    "vmdav",
]
