"""Decision trees in the manner of C4.5 for coded attributes: gain ratio, one branch per value, pessimistic pruning.

SafePub's Figure 16 measures how well a tree learnt from released records predicts. A tree needs only the
distinct combinations of values and how often each class occurs with them, so it is learnt from counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.int32]
Counts = NDArray[np.float64]

#: C4.5's confidence for pruning, as the quantile of the normal distribution.
_Z = NormalDist().inv_cdf(1 - 0.25)
_LEAST = 2  # records in at least two branches of a split


@dataclass
class Tree:
    """A node: the class it predicts, and where it asks further, the attribute and a branch per value."""

    prediction: int
    errors: float  # pessimistic estimate
    attribute: int = -1
    branches: dict[int, Tree] = field(default_factory=dict)

    def predict(self, codes: Codes) -> NDArray[np.int64]:
        """The class of each row; a value that was not seen gets the node's own prediction."""
        found = np.full(len(codes), self.prediction, dtype=np.int64)
        if self.branches:
            column = codes[:, self.attribute]
            for value, branch in self.branches.items():
                rows = np.flatnonzero(column == value)
                if len(rows):
                    found[rows] = branch.predict(codes[rows])
        return found


def grow(codes: Codes, counts: Counts, attributes: tuple[int, ...] | None = None) -> Tree:
    """Learn from distinct combinations (rows of ``codes``) and their counts per class (rows of ``counts``)."""
    if attributes is None:
        attributes = tuple(range(codes.shape[1]))
    total = counts.sum(axis=0)
    records = float(total.sum())
    node = Tree(int(total.argmax()), _pessimistic(records, records - float(total.max())))
    if records < 2 * _LEAST or total.max() == records or not attributes:
        return node
    chosen = _best_split(codes, counts, attributes)
    if chosen < 0:
        return node
    column = codes[:, chosen]
    rest = tuple(attribute for attribute in attributes if attribute != chosen)
    order = np.argsort(column, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(column[order]) != 0])
    branches = {
        int(column[rows[0]]): grow(codes[rows], counts[rows], rest) for rows in np.split(order, starts[1:])
    }
    below = sum(branch.errors for branch in branches.values())
    if below < node.errors - 0.1:  # C4.5 keeps a subtree only if it is expected to err less
        node.attribute, node.branches, node.errors = chosen, branches, below
    return node


def _best_split(codes: Codes, counts: Counts, attributes: tuple[int, ...]) -> int:
    """The attribute with the greatest gain ratio among those with at least the average gain; -1 if none."""
    total = counts.sum(axis=0)
    records = total.sum()
    before = _entropy(total[None, :])[0]
    gains, ratios = {}, {}
    for attribute in attributes:
        column = codes[:, attribute]
        table: Counts = np.stack([np.bincount(column, weights=count) for count in counts.T], axis=1)
        table = table[table.any(axis=1)]
        sizes: Counts = table.sum(axis=1)
        if (sizes >= _LEAST).sum() < 2:
            continue
        gain = before - float(sizes @ _entropy(table)) / records
        if gain > 1e-12:
            gains[attribute] = gain
            ratios[attribute] = gain / _entropy(sizes[None, :])[0]
    if not gains:
        return -1
    average = sum(gains.values()) / len(gains)
    return max((a for a in gains if gains[a] >= average - 1e-12), key=ratios.__getitem__)


def _entropy(table: Counts) -> Counts:
    share = table / table.sum(axis=1, keepdims=True)
    logs = np.log2(share, out=np.zeros_like(share), where=share > 0)
    entropy: Counts = -(share * logs).sum(axis=1)
    return entropy


def _pessimistic(records: float, errors: float) -> float:
    """Upper confidence limit of the number of errors (Quinlan 1993, section 4.2; Wilson's interval)."""
    if records == 0:
        return 0.0
    share, z2 = errors / records, _Z**2
    root = math.sqrt(share / records - share**2 / records + z2 / (4 * records**2))
    return records * (share + z2 / (2 * records) + _Z * root) / (1 + z2 / records)


def accuracy(features: Codes, target: Codes, train: NDArray[np.int64], fold: NDArray[np.int64]) -> float:
    """Share of all records whose class is predicted, by cross-validation.

    For every fold a tree is learnt from the rows in ``train`` outside the fold (with repetition where a row
    number is repeated) and asked for the records inside it.
    """
    combinations, code = np.unique(features, axis=0, return_inverse=True)
    code = code.reshape(-1)
    classes = int(target.max()) + 1
    folds = int(fold.max()) + 1
    cell = (fold * len(combinations) + code) * classes + target
    shape = (folds, len(combinations), classes)
    everything = np.bincount(cell, minlength=math.prod(shape)).reshape(shape).astype(float)
    learnt = np.bincount(cell[train], minlength=math.prod(shape)).reshape(shape).astype(float)
    total = learnt.sum(axis=0)
    right = 0.0
    for number in range(folds):
        counts = total - learnt[number]
        known = counts.any(axis=1)
        if not known.any():
            continue
        predicted = grow(combinations[known], counts[known]).predict(combinations)
        right += float(everything[number, np.arange(len(combinations)), predicted].sum())
    return right / len(features)
