"""The partitioners as the papers write them (PAPERS.md, "Partitioners"), nothing clever.

Tables are lists of tuples, labels are lists. Two points the papers leave open are fixed here, as in
the core: squared distances are summed over the attributes in order, and a mean is the correctly
rounded sum (math.fsum) divided by the count. Every tie goes to the lowest row index.
"""

from __future__ import annotations

import math


def squared_distance(x, y):
    total = 0.0
    for a, b in zip(x, y, strict=True):
        total += (a - b) * (a - b)
    return total


def mean(rows):
    return tuple(math.fsum(column) / len(rows) for column in zip(*rows, strict=True))


def farthest(X, records, point):
    return min(records, key=lambda i: (-squared_distance(X[i], point), i))


def k_nearest(X, records, point, k):
    return sorted(records, key=lambda i: (squared_distance(X[i], point), i))[:k]


def mdav(X, k):
    labels = [-1] * len(X)
    remaining = list(range(len(X)))
    cluster = 0

    def close(members):
        nonlocal remaining, cluster
        for i in members:
            labels[i] = cluster
        remaining = [i for i in remaining if labels[i] < 0]
        cluster += 1

    while len(remaining) >= 3 * k:
        centre = mean([X[i] for i in remaining])
        r = X[farthest(X, remaining, centre)]
        s = X[farthest(X, remaining, r)]
        close(k_nearest(X, remaining, r, k))
        close(k_nearest(X, remaining, s, k))
    if len(remaining) >= 2 * k:
        centre = mean([X[i] for i in remaining])
        r = X[farthest(X, remaining, centre)]
        close(k_nearest(X, remaining, r, k))
    close(list(remaining))
    return labels


def vmdav(X, k, gamma):
    labels = [-1] * len(X)
    unassigned = list(range(len(X)))
    centre = mean(X)
    groups = []
    while len(unassigned) >= k:
        start = farthest(X, unassigned, centre)
        group = k_nearest(X, unassigned, X[start], k)
        unassigned = [i for i in unassigned if i not in group]
        while len(group) < 2 * k - 1 and unassigned:
            inner, e = min((squared_distance(X[i], X[m]), i) for i in unassigned for m in group)
            others = [squared_distance(X[e], X[i]) for i in unassigned if i != e]
            outer = min(others, default=math.inf)
            if not math.sqrt(inner) < gamma * math.sqrt(outer):
                break
            group.append(e)
            unassigned.remove(e)
        for i in group:
            labels[i] = len(groups)
        groups.append(group)
    means = [mean([X[i] for i in group]) for group in groups]
    for i in unassigned:
        labels[i] = min(range(len(means)), key=lambda g: (squared_distance(means[g], X[i]), g))
    return labels


def runs(order, k):
    """Cut an order of the records into runs of k; the last run takes the remainder."""
    labels = [0] * len(order)
    last = len(order) // k - 1
    for position, i in enumerate(order):
        labels[i] = min(position // k, last)
    return labels


def individual_ranking(x, k):
    return runs(sorted(range(len(x)), key=lambda i: (x[i], i)), k)


def insensitive_ranking(U, k):
    corner = (0.0,) * len(U[0])
    return runs(sorted(range(len(U)), key=lambda i: (squared_distance(U[i], corner), U[i], i)), k)


def cluster_cost(values, noise_cost):
    centre = math.fsum(values) / len(values)
    return math.fsum((v - centre) ** 2 for v in values) + noise_cost / len(values)


def partition_cost(x, labels, noise_cost):
    clusters = {}
    for value, label in zip(x, labels, strict=True):
        clusters.setdefault(label, []).append(value)
    return math.fsum(cluster_cost(values, noise_cost) for values in clusters.values())


def optimal_cost(x, noise_cost, min_size):
    """Least cost of a partition of x: the shortest path over all cuts of the sorted values."""
    x = sorted(x)
    best = [0.0] + [math.inf] * len(x)
    for end in range(min_size, len(x) + 1):
        # Welford's update, from the last value backwards, spares a pass over each cluster.
        centre, spread = 0.0, 0.0
        for start in range(end - 1, -1, -1):
            length = end - start
            difference = x[start] - centre
            centre += difference / length
            spread += difference * (x[start] - centre)
            if length >= min_size:
                best[end] = min(best[end], best[start] + spread + noise_cost / length)
    return best[len(x)]


def sse(X, labels):
    clusters = {}
    for row, label in zip(X, labels, strict=True):
        clusters.setdefault(label, []).append(row)
    return math.fsum(
        squared_distance(row, centre) for rows in clusters.values() for centre in [mean(rows)] for row in rows
    )
