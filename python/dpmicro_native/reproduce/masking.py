"""One release of a projection through the real stations, and what it loses."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from ..compare import _Partitions
from ..methods import Microaggregation, method
from ..partition import sse
from ..release import mask_clusters
from ..testing import seeded
from .tables import Projection


@dataclass(frozen=True)
class Loss:
    """Sums of squared errors in raw units."""

    clustering: float
    noise: float  # its expectation, before truncation
    drawn: float  # the mean over the draws, released values truncated to the bounds

    @property
    def expected(self) -> float:
        """Of clustering and noise, before truncation, in closed form."""
        return self.clustering + self.noise


def loss(table: Projection, name: str, *, seed: int, draws: int = 1, **parameters: Any) -> Loss:
    """Mask the table by a method and compare with the original."""
    made = _Partitions().remembered(method(name, **parameters))  # all draws share the partition
    assert isinstance(made, Microaggregation)
    U, schema, squared = table.U, table.schema, table.width**2
    total = 0.0
    with seeded(seed):
        for _ in range(draws):
            masked = mask_clusters(U, schema, made, 1, lambda station, share: None)
            total += float(((np.clip(masked.released, 0, 1) - U) ** 2).sum(axis=0) @ squared)
    column = {name: j for j, name in enumerate(table.columns)}
    clustering = sum(
        sse(U[:, [column[name]]], labels, threads=1) * squared[column[name]]
        for names, labels in masked.labels.items()
        for name in names
    )
    noise = sum(variance * squared[column[name]] for name, variance in masked.noise_variance.items())
    return Loss(float(clustering), float(noise), total / draws)


def seed_of(*parts: object) -> int:
    """A seed that is the same in every run and differs between tasks.

    >>> seed_of("census", 5) == seed_of("census", 5), seed_of("census", 5) == seed_of("census", 6)
    (True, False)
    """
    import zlib

    shown = [str(part) if isinstance(part, Fraction) else repr(part) for part in parts]
    return zlib.crc32(" ".join(shown).encode())
