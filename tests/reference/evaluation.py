"""Risk and utility figures by their definitions, pair by pair."""

from __future__ import annotations

import itertools

import numpy as np


def linked(original, own, released, scale):
    """Chance that the nearest released record, a random one of several, is the record's own."""
    chances = []
    for point, row in zip(original, own, strict=True):
        distances = []
        for candidate in released:
            total = 0.0
            for a, b, s in zip(candidate, point, scale, strict=True):
                total += (a / s - b / s) ** 2
            distances.append(total)
        nearest = min(distances)
        ties = sum(distance == nearest for distance in distances)
        chances.append(1 / ties if distances[row] == nearest else 0.0)
    return np.array(chances)


def classes(table):
    """Number of distinct rows, of rows that occur once, and the size of the smallest class."""
    counts = {}
    for row in table:
        key = tuple(float(value) for value in row)
        counts[key] = counts.get(key, 0) + 1
    return len(counts), sum(count == 1 for count in counts.values()), min(counts.values())


def inside(table, columns, lower, upper):
    """Records within each range."""
    return [
        sum(all(low[s] <= row[c[s]] <= high[s] for s in (0, 1)) for row in table)
        for c, low, high in zip(columns, lower, upper, strict=True)
    ]


def share_at_or_below(sample, value):
    return sum(x <= value for x in sample) / len(sample)


def kolmogorov_smirnov(a, b):
    return max(abs(share_at_or_below(a, v) - share_at_or_below(b, v)) for v in [*a, *b])


def wasserstein(a, b):
    """Area between the two distribution functions."""
    values = sorted([*a, *b])
    return sum(
        abs(share_at_or_below(a, low) - share_at_or_below(b, low)) * (high - low)
        for low, high in itertools.pairwise(values)
    )
