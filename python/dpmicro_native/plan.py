"""What a release will cost in accuracy, before it is made: from public facts only."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from .errors import InputError
from .methods import Method, MicroaggregatedDP, Microaggregation
from .partition import IR, MDAV, Insensitive, Optimal, Partition, Singletons
from .schema import Schema


@dataclass(frozen=True)
class AttributePlan:
    """What to expect for one attribute, in its own units (squared for the errors, summed over the records).

    A cluster's mean gets Laplace noise of scale ``noise_scale / |C|``. Where the sizes of the clusters are
    public, ``cluster_size`` is the usual one, ``clusters`` their number, and ``noise_sse`` the expected squared
    error that the noise makes; where they follow the data these are None. ``worst_case_sse`` bounds
    the whole expected error, clustering and noise, whatever the data are; None where only the data can tell.
    """

    name: str
    epsilon: Fraction | None
    noise_scale: float
    cluster_size: int | None
    clusters: int | None
    noise_sse: float | None
    worst_case_sse: float | None

    def noise_scale_of_mean(self, cluster_size: int) -> float:
        """Scale of the Laplace noise on the mean of a cluster of that size."""
        return self.noise_scale / cluster_size


@dataclass(frozen=True)
class Plan:
    """Expected noise of a method for n records; nothing in it comes from data."""

    method: str
    records: int
    attributes: tuple[AttributePlan, ...]

    def __getitem__(self, name: str) -> AttributePlan:
        return {attribute.name: attribute for attribute in self.attributes}[name]

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain values; shares of epsilon are exact fractions, as text."""
        attributes = [
            asdict(attribute) | {"epsilon": None if attribute.epsilon is None else str(attribute.epsilon)}
            for attribute in self.attributes
        ]
        return {"method": self.method, "records": self.records, "attributes": attributes}


def plan(schema: Schema, method: Method, n: int) -> Plan:
    """Say what a method's noise will be for n records, without any data.

    Clusters of public size (MDAV, IR, insensitive ones, single records) give the expected squared error of
    the noise exactly. The clusters with the least expected error (OPT) follow the data, but can be no worse than
    runs of equal length, which bounds their whole expected error.

    >>> from dpmicro_native.methods import method
    >>> from dpmicro_native.schema import Numeric, Schema
    >>> age = plan(Schema({"age": Numeric(0, 100)}), method("IR_DP", epsilon=1, k=50), n=1000)["age"]
    >>> age.clusters, age.noise_scale_of_mean(50), age.noise_sse
    (20, 2.0, 8000.0)
    """
    if not isinstance(method, Microaggregation) or method.moments.order > 0:
        raise InputError(
            f"{method.name} releases more than means, and its error follows the data; plan a method of means"
        )
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise InputError("n, the number of records, must be a whole number of at least 1")
    method.check(schema)
    shares: Mapping[str, Fraction | None] = (
        method.attribute_shares(schema).shares
        if isinstance(method, MicroaggregatedDP)
        else dict.fromkeys(schema.numeric)
    )
    planned = {}
    for group, partition in zip(method.grouped(schema), method.partitions(schema, n), strict=True):
        reach = schema.max_records * partition.sum_sensitivity(n)
        for name in group:
            share = shares[name]
            scale = 0.0 if share is None else float(reach / share)  # on a cluster's sum, in the unit cube
            width = float(schema.bounds(name).width)
            sizes = _public_sizes(partition, n)
            noise, worst = _errors(partition, n, sizes, 2 * scale**2, alone=len(group) == 1)
            planned[name] = AttributePlan(
                name=name,
                epsilon=share,
                noise_scale=scale * width,
                cluster_size=None if sizes is None else sizes[0],
                clusters=None if sizes is None else sizes[1],
                noise_sse=None if noise is None else noise * width**2,
                worst_case_sse=None if worst is None else worst * width**2,
            )
    return Plan(method.name, n, tuple(planned[name] for name in schema.numeric))


def _public_sizes(partition: Partition, n: int) -> tuple[int, int, int] | None:
    """The usual size, the number of clusters and the size of the last one, where they follow from n and k."""
    if isinstance(partition, Singletons):
        return 1, n, 1
    if isinstance(partition, (MDAV, IR, Insensitive)):
        clusters = max(1, n // partition.k)
        return min(partition.k, n), clusters, n - (clusters - 1) * partition.k
    return None


def _errors(
    partition: Partition, n: int, sizes: tuple[int, int, int] | None, noise_cost: float, *, alone: bool
) -> tuple[float | None, float | None]:
    """Expected squared error of the noise, and the most that clustering and noise make together, in the unit cube.

    The noise makes noise_cost/|C| per cluster. A run of |C| records over a range r has SSE at most |C| r^2/4,
    and the ranges of the runs of one attribute add up to at most 1, so all runs together have SSE at most
    max|C|/4 (OPT, section 7).
    """
    if sizes is not None:
        size, clusters, last = sizes
        noise = noise_cost * ((clusters - 1) / size + 1 / last)
        if size == last == 1:
            return noise, noise
        return noise, noise + max(size, last) / 4 if alone else None
    if isinstance(partition, Optimal) and alone:
        return None, _least_balanced(n, noise_cost, partition.min_size)
    return None, None


def _least_balanced(n: int, noise_cost: float, min_size: int) -> float:
    """The best bound among runs of equal length (give or take one), which compete with the optimum."""
    best = (4 * n * 2 * noise_cost) ** (1 / 3)  # where s/4 + n noise_cost/s^2 is least
    most = max(1, n // max(1, min_size))
    around = n / max(best, 1.0)
    candidates = {min(most, max(1, math.floor(around) + step)) for step in range(-2, 4)} | {1, most}

    def bound(clusters: int) -> float:
        size, longer = divmod(n, clusters)
        noise = noise_cost * (longer / (size + 1) + (clusters - longer) / size)
        longest = size + (longer > 0)
        return noise + (0.0 if longest == 1 else longest / 4)

    return min(bound(clusters) for clusters in candidates)
