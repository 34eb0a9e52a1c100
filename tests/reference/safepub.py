"""SafePub word for word: section 4 (parameters), section 5 (scores), figure 7 (search).

Plain Python on records as tuples of labels, without compression, pruning or caching. ``credit`` stands
for the suppression: the paper's, or the ramp of the corrected search.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from fractions import Fraction

Record = tuple[str, ...]
Scheme = tuple[int, ...]
Credit = Callable[[int], int]


# Section 4 -------------------------------------------------------------------------------------------


def tail(n: int, beta: Decimal, gamma: Decimal) -> Decimal:
    """a_n: the sum of f(j; n, β) over j > γ n (equation 3)."""
    first = math.floor(gamma * n) + 1
    if first > n:
        return Decimal(0)
    term = math.comb(n, first) * beta**first * (1 - beta) ** (n - first)
    total = Decimal(0)
    for j in range(first, n + 1):
        total += term
        term *= Decimal(n - j) / (j + 1) * beta / (1 - beta)
    return total


def delta(k: int, beta: Decimal, epsilon: Decimal) -> Decimal:
    """d(k, β, ε) by theorem 4: the largest a_n from n_m on, until c_n falls below a_(n_m)."""
    gamma = (epsilon.exp() - 1 + beta) / epsilon.exp()
    n = math.ceil(k / gamma - 1)
    first = best = tail(n, beta, gamma)
    decay = (-(gamma * (gamma / beta).ln() - (gamma - beta))).exp()
    c = decay**n
    while c > first:
        n += 1
        c *= decay
        best = max(best, tail(n, beta, gamma))
    return best


# Section 5 -------------------------------------------------------------------------------------------


def hard(k: int) -> Credit:
    """The paper's suppression: all records of a class, or none."""
    return lambda size: size if size >= k else 0


def ramp(k: int) -> Credit:
    """Half of the records of a class of size k, all from 3k/2 on, none up to 3k/4."""
    end = math.ceil(Fraction(3 * k, 2))
    return lambda size: min(size, max(0, 2 * size - end))


def suppress(records: Sequence[Record], roots: Record, credit: Credit) -> Counter[Record]:
    """S(D): how often each record is kept. What is missing to |D| is suppressed."""
    counts = Counter(records)
    return Counter({r: credit(size) for r, size in counts.items() if r != roots and credit(size)})


def generalise(table: Iterable[Record], rows: Sequence[dict[str, Record]], scheme: Scheme) -> list[Record]:
    """g(D); rows[i] gives the generalisations of attribute i's leaves."""
    return [
        tuple(rows[i][leaf][level] for i, (leaf, level) in enumerate(zip(r, scheme, strict=True)))
        for r in table
    ]


def phi(kept: Counter[Record], records: int) -> Fraction:
    """Equation 7."""
    if records == 0:
        return Fraction(0)
    squares = sum(size * size for size in kept.values())
    return Fraction(squares, records) + (records - sum(kept.values()))


def score(
    name: str,
    table: Sequence[Record],
    rows: Sequence[dict[str, Record]],
    scheme: Scheme,
    credit: Credit,
    class_column: int | None = None,
    ramp_end: int | None = None,
) -> Fraction:
    """Definitions 4 to 8."""
    m, n = len(rows), len(table)
    roots = tuple("*" if i == class_column else next(iter(rows[i].values()))[-1] for i in range(m))
    generalised = generalise(table, rows, scheme)
    # The class column has no root: a record is suppressed by generalisation if all its features are.
    if class_column is not None and all(
        level == len(next(iter(rows[i].values()))) - 1 for i, level in enumerate(scheme) if i != class_column
    ):
        return Fraction(0)
    kept = suppress(generalised, roots, credit)
    suppressed = n - sum(kept.values())

    def leaves(i: int, value: str) -> int:
        return sum(row[scheme[i]] == value for row in rows[i].values())

    if name == "granularity":
        loss = sum(
            size * sum(Fraction(leaves(i, value), len(rows[i])) for i, value in enumerate(record))
            for record, size in kept.items()
        )
        return -(loss + Fraction(suppressed * m))
    if name == "intensity":
        cell = sum(
            Fraction(level, top) if (top := len(next(iter(rows[i].values()))) - 1) else Fraction(1)
            for i, level in enumerate(scheme)
        )
        return -(sum(kept.values()) * cell + suppressed * m)
    if name == "discernibility":
        return -phi(kept, n)
    if name == "entropy":
        total = Fraction(0)
        for i in range(m):
            column: Counter[Record] = Counter()
            for record, size in kept.items():
                if scheme[i] < len(next(iter(rows[i].values()))) - 1:  # a root counts as suppressed
                    column[(record[i],)] += size
            total += phi(column, n)
        return -total
    if name == "groups":
        if ramp_end is None:
            return Fraction(len(kept))
        counts = Counter(r for r in generalised if r != roots)
        return sum((Fraction(credit(min(size, ramp_end)), ramp_end) for size in counts.values()), Fraction(0))
    if name == "classification":
        assert class_column is not None
        by_features: dict[Record, list[int]] = {}
        for record, size in kept.items():
            by_features.setdefault(record[:class_column] + record[class_column + 1 :], []).append(size)
        return Fraction(sum(max(sizes) for sizes in by_features.values()))
    raise ValueError(name)


# Section 6 -------------------------------------------------------------------------------------------


def search(
    top: Scheme, score_of: Callable[[Scheme], float], steps: int, epsilon: float, sensitivity: float
) -> Scheme:
    """Figure 7, floating point included."""
    pivot = optimum = top
    candidates = {top}
    for _ in range(steps):
        candidates |= {(*pivot[:i], level - 1, *pivot[i + 1 :]) for i, level in enumerate(pivot) if level > 0}
        candidates -= {pivot}
        if not candidates:
            break
        listed = sorted(candidates)
        scores = [score_of(candidate) for candidate in listed]
        best = max(scores)
        weights = [math.exp(epsilon / steps * (s - best) / (2 * sensitivity)) for s in scores]
        pivot = random.choices(listed, weights)[0]
        if score_of(pivot) > score_of(optimum):
            optimum = pivot
    return optimum


def lattice(heights: Sequence[int], class_column: int | None = None) -> list[Scheme]:
    """All schemes; heights[i] levels of attribute i, the class column at its leaves."""
    return list(itertools.product(*(range(1 if i == class_column else h) for i, h in enumerate(heights))))
