"""Canonne, Kamath & Steinke 2020, Algorithms 1 and 2; exact probabilities of private selection.

Word for word, with Python's integers and the system's generator, as oracle and as baseline of the benchmarks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from secrets import randbelow

import numpy as np


def bernoulli(p: Fraction) -> bool:
    return randbelow(p.denominator) < p.numerator


def bernoulli_exp(gamma: Fraction) -> bool:
    """Algorithm 1: Bernoulli(exp(-gamma)) for gamma >= 0."""
    if gamma <= 1:
        k = 1
        while True:
            a = bernoulli(gamma / k)
            if not a:
                break
            k += 1
        return k % 2 == 1
    for _ in range(math.floor(gamma)):
        b = bernoulli_exp(Fraction(1))
        if not b:
            return False
    return bernoulli_exp(gamma - math.floor(gamma))


def discrete_laplace(s: int, t: int) -> int:
    """Algorithm 2: P(x) proportional to exp(-|x| s / t)."""
    while True:
        u = randbelow(t)
        d = bernoulli_exp(Fraction(u, t))
        if not d:
            continue
        v = 0
        while True:
            a = bernoulli_exp(Fraction(1))
            if not a:
                break
            v += 1
        x = u + t * v
        y = x // s
        b = randbelow(2)
        if b == 1 and y == 0:
            continue
        return (1 - 2 * b) * y


def discrete_laplace_probability(y: int, scale: float) -> float:
    """Definition of the discrete Laplace distribution."""
    q = math.exp(-1 / scale)
    return (1 - q) / (1 + q) * q ** abs(y)


def permute_and_flip_probabilities(scores: Sequence[float], factor: float) -> np.ndarray:
    """McKenna & Sheldon 2020, Algorithm 1. Let every candidate arrive at a uniform time t. Candidate i wins
    if its coin p_i is true and the coin of each j that arrives earlier is false: the integral over t of
    p_i prod_{j != i} (1 - t p_j)."""
    p = np.exp(-factor * (max(scores) - np.asarray(scores, dtype=float)))
    chosen = []
    for i in range(len(p)):
        polynomial = np.array([p[i]])  # coefficients of 1, t, t^2, ...
        for j in range(len(p)):
            if j != i:
                polynomial = np.convolve(polynomial, [1.0, -p[j]])
        chosen.append((polynomial / np.arange(1, len(polynomial) + 1)).sum())
    return np.array(chosen)


def exponential_mechanism_probabilities(scores: Sequence[float], factor: float) -> np.ndarray:
    """McSherry & Talwar 2007."""
    weights = np.exp(-factor * (max(scores) - np.asarray(scores, dtype=float)))
    return weights / weights.sum()


def cluster_sums(U: np.ndarray, labels: np.ndarray, bits: int) -> tuple[list[int], list[list[int]]]:
    """PAPERS.md, "Noise": quantise to integers once, sum in integers."""
    clusters = int(labels.max()) + 1
    sizes = [0] * clusters
    sums = [[0] * U.shape[1] for _ in range(clusters)]
    for row, label in zip(U, labels, strict=True):
        sizes[label] += 1
        for j, u in enumerate(row):
            sums[label][j] += math.floor(Fraction(float(u)) * 2**bits + Fraction(1, 2))
    return sizes, sums
