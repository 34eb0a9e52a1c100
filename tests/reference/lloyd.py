"""The PCL paper's algorithm (section 6 and appendix A), word for word in numpy.

Sizes are only approximate here: the paper needs some 500 points per cell, and repairs the rest by hand.
"""

from __future__ import annotations

import numpy as np


def quantize(X, centroids, costs):
    """Eq. (4): best cell, second-best cell and margin of every point."""
    values = ((X[:, None, :] - centroids) ** 2).sum(axis=2) + costs
    best = values.argmin(axis=1)
    rows = np.arange(len(X))
    least = values[rows, best]
    values[rows, best] = np.inf
    second = values.argmin(axis=1)
    return best, second, values[rows, second] - least


def jacobian(best, second, margin, cells, share=0.05):
    """Raise one cost at a time until 5 % of the cell's points leave; see where they go."""
    n = len(best)
    J = np.zeros((cells, cells))
    for q in range(cells):
        inside = np.flatnonzero(best == q)
        if len(inside) == 0:
            continue
        leaving = inside[np.argsort(margin[inside])][: max(1, int(share * len(inside)))]
        step = max(margin[leaving[-1]], 1e-12)
        J[:, q] = np.bincount(second[leaving], minlength=cells) / (n * step)
        J[q, q] = -len(leaving) / (n * step)
    # The closest negative semidefinite matrix in Frobenius norm.
    values, vectors = np.linalg.eigh((J + J.T) / 2)
    return (vectors * np.minimum(values, 0)) @ vectors.T


def adjust_costs(X, centroids, costs, p0, iterations, damping=1e-6, enough=1e-3):
    """Appendix A: Levenberg-Marquardt on p(c) = cell fractions - p0 with Armijo's rule."""
    cells = len(p0)

    def p(c):
        parts = quantize(X, centroids, c)
        return np.bincount(parts[0], minlength=cells) / len(X) - p0, parts

    p_now, parts = p(costs)
    for _ in range(iterations):
        if np.abs(p_now).sum() <= enough:
            break
        J = jacobian(*parts, cells)
        normal = J.T @ J
        step = np.linalg.solve(
            normal + damping * np.diag(normal.diagonal() + normal.diagonal().mean()), -J.T @ p_now
        )
        t = 1.0
        while t > 1e-3:
            p_next, parts_next = p(costs + t * step)
            if p_next @ p_next <= (1 - 0.1 * t) * (p_now @ p_now):
                break
            t /= 2
        else:
            break
        costs, p_now, parts = costs + t * step, p_next, parts_next
    return costs


def pcl(X, centroids, sizes, iterations=40, inner=300, speed=0.5):
    """Steps 1-5 of section 6.1 with the slow update of section 6.2."""
    p0 = np.asarray(sizes) / len(X)
    costs = np.zeros(len(p0))
    distortions = []
    for _ in range(iterations):
        costs = adjust_costs(X, centroids, costs, p0, inner)
        labels = quantize(X, centroids, costs)[0]
        for q in range(len(p0)):
            if not (labels == q).any():  # split the largest cell
                largest = np.bincount(labels).argmax()
                labels[np.flatnonzero(labels == largest)[::2]] = q
                costs[q] = costs[largest]
        means = np.stack([X[labels == q].mean(axis=0) for q in range(len(p0))])
        distortions.append(((X - means[labels]) ** 2).sum())
        centroids = speed * means + (1 - speed) * centroids
    return labels, centroids, costs, np.asarray(distortions)
