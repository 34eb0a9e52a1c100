"""The cross-moment paper (CM), word for word: moments, sensitivities, Fig. 4; and slow oracles."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations_with_replacement, product
from math import prod

import numpy as np


def mean(records):
    """x̄_i = Σ x_ki / n, section 2.4."""
    n = len(records)
    return [sum(column) / n for column in zip(*records, strict=True)]


def covariance(records, i, j):
    """Equation (1)."""
    n = len(records)
    m = mean(records)
    return sum((x[i] - m[i]) * (x[j] - m[j]) for x in records) / (n - 1)


def coskewness(records, i, j, k):
    """Equation (2), Fisher's unbiased estimator."""
    n = len(records)
    m = mean(records)
    total = sum((x[i] - m[i]) * (x[j] - m[j]) * (x[k] - m[k]) for x in records)
    return total * n / ((n - 1) * (n - 2))


def exact(records):
    """Floats as Fractions, so that the formulas above are exact."""
    return [[Fraction(float(v)) for v in x] for x in records]


def vertex_sensitivity(statistic, k, d):
    """max |statistic(C') - statistic(C)| over clusters of k vertices of the cube, one replaced.

    The difference is multilinear in the records' coordinates when the statistic's attributes are
    distinct, so the maximum over the whole cube is attained at vertices. The order of the k - 1 other
    records does not matter.
    """
    vertices = [tuple(map(Fraction, v)) for v in product((0, 1), repeat=d)]
    largest = Fraction(0)
    for others in combinations_with_replacement(vertices, k - 1):
        values = [statistic([*others, v]) for v in vertices]
        largest = max(largest, max(values) - min(values))
    return largest


def largest_change(statistic, k, d, rng, starts=20, sweeps=6, grid=9):
    """A lower bound of the sensitivity by coordinate ascent from random clusters, without vertices."""
    largest = 0.0
    levels = np.linspace(0, 1, grid)
    for _ in range(starts):
        # Rows 0..k-2 are the others, row k-1 the record and row k its replacement.
        x = rng.integers(0, grid, (k + 1, d)) / (grid - 1)

        def change(x):
            others = x[: k - 1]
            return abs(statistic(np.vstack([others, x[k]])) - statistic(np.vstack([others, x[k - 1]])))

        best = change(x)
        for _ in range(sweeps):
            before = best
            for r, j in product(range(k + 1), range(d)):
                trials = []
                for level in levels:
                    y = x.copy()
                    y[r, j] = level
                    trials.append((change(y), level))
                best, x[r, j] = max(trials)
            if best <= before:
                break
        largest = max(largest, best)
    return largest


def dykstra_nearest_correlation(G, iterations=5000):
    """Nearest correlation matrix by Dykstra's alternating projections (Higham 2002)."""
    Y = np.array(G, dtype=float)
    correction = np.zeros_like(Y)
    for _ in range(iterations):
        R = Y - correction
        values, vectors = np.linalg.eigh((R + R.T) / 2)
        X = (vectors * np.maximum(values, 0)) @ vectors.T
        correction = X - R
        previous, Y = Y, X.copy()
        np.fill_diagonal(Y, 1.0)
        if np.abs(Y - previous).max() < 1e-13:
            break
    return Y


#: Theorem 11 (i), unit cube: the numerators of the joint sensitivity of a cluster of k records.
def joint_numerator(d, m):
    total = d
    if m >= 1:
        total += sum(1 for i in range(d) for j in range(i, d))
    if m >= 2:
        total += sum(1 for i in range(d) for j in range(i, d) for _ in range(j, d))
    return total


#: Algorithm 1, lines 4 and 6: how many draws.
def draws(d, m, eigen):
    if eigen:
        return d * (d * m + d**2 * m - d**2 + 2)
    return Fraction(7 * d, 6) - Fraction(d**3, 6) + Fraction(prod((d, m, d + 1, d + 2)), 6)
