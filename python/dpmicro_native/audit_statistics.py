"""Lower bounds on epsilon from the scores of runs on two neighbours."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Event:
    """Scores at or above a threshold (or below it); ``swapped``: likelier on the second table."""

    threshold: float
    swapped: bool

    def frequency(self, scores: NDArray[np.float64]) -> int:
        """How many runs are in the event."""
        inside = scores <= self.threshold if self.swapped else scores >= self.threshold
        return int(np.count_nonzero(inside))


def choose_event(
    first: NDArray[np.float64], second: NDArray[np.float64], confidence: float, delta: float = 0.0
) -> Event:
    """The threshold whose bound is best on these runs; it must be judged on others.

    The best of many bounds is partly luck, the more so for rare events; so more confidence is asked here.
    """
    confidence = 1 - (1 - confidence) / 1000
    pooled = np.sort(np.concatenate([first, second]))
    shares = np.concatenate([np.geomspace(1e-3, 0.5, 16), 1 - np.geomspace(1e-3, 0.5, 16)])
    thresholds = np.unique(pooled[(shares * (len(pooled) - 1)).astype(int)])
    # A hair inside: scores that are equal but for rounding belong together.
    slack = 1e-9 * max(1.0, float(np.abs(pooled[[0, -1]]).max()))
    events = [Event(float(t) - slack, False) for t in thresholds]
    events += [Event(float(t) + slack, True) for t in thresholds]
    return max(events, key=lambda event: event_bound(event, first, second, confidence, delta)[0])


def event_bound(
    event: Event,
    first: NDArray[np.float64],
    second: NDArray[np.float64],
    confidence: float,
    delta: float = 0.0,
) -> tuple[float, tuple[float, float]]:
    """A lower bound on ln((p - delta)/q), p and q the event's probabilities; and their observed values."""
    hits, misses = event.frequency(first), event.frequency(second)
    observed = (hits / len(first), misses / len(second))
    if event.swapped:
        hits, misses, first, second = misses, hits, second, first
    error = (1 - confidence) / 2  # half for each probability
    p, q = lower_probability(hits, len(first), error), upper_probability(misses, len(second), error)
    return (max(0.0, math.log((p - delta) / q)) if p > delta else 0.0), observed


def lower_probability(hits: int, runs: int, error: float) -> float:
    """A bound that the true probability is below with probability at most ``error`` (Clopper and Pearson).

    >>> round(lower_probability(10, 100, 0.025), 4)
    0.049
    """
    if hits == 0:
        return 0.0
    # The p for which so many hits or more have probability `error`: P(Bin(runs, p) >= hits) = I_p(hits, ...).
    # The smaller end of the bisection is on the safe side.
    low, high = 0.0, hits / runs
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        below = incomplete_beta(hits, runs - hits + 1, middle) <= error
        low, high = (middle, high) if below else (low, middle)
    return low


def upper_probability(hits: int, runs: int, error: float) -> float:
    """A bound that the true probability is above with probability at most ``error``.

    >>> round(upper_probability(10, 100, 0.025), 4)
    0.1762
    """
    return 1.0 - lower_probability(runs - hits, runs, error)


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b), by its continued fraction (Lentz's method)."""
    if not 0 < x < 1:
        return min(max(x, 0.0), 1.0)
    if x > (a + 1) / (a + b + 2):  # where the fraction of the other side converges faster
        return 1 - incomplete_beta(b, a, 1 - x)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, 100_000):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / (1 + term * d)
            c = 1 + term / c
            fraction *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return math.exp(log_front) * fraction / a
