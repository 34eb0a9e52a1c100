"""How far a release is from the table it came from. For the curator's eyes only."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from .schema import Schema

if TYPE_CHECKING:
    from .release import Masked


@dataclass(frozen=True)
class Evaluation:
    """Utility figures computed from the original records: never publish them."""

    records: int
    records_dropped: int  # beyond an individual's max_records
    clusters: dict[str, int]  # per group of attributes
    sse: float  # in raw units
    sse_before_truncation: float
    sse_expected: float  # of clustering and noise together, before truncation, in closed form
    information_loss: float  # 100 SSE/SST, in the unit cube

    def to_json(self) -> str:
        """The figures as JSON text."""
        return json.dumps(asdict(self), indent=2)


def evaluate_masked(masked: Masked, schema: Schema, dropped: int) -> Evaluation:
    """Compare the masked records with the originals they stand for."""
    from .partition import sse

    widths = np.array([float(schema.bounds(name).width) for name in masked.names])
    U, V = masked.original, masked.released
    clipped = np.clip(V, 0.0, 1.0)
    losses = ((clipped - U) ** 2).sum(axis=0)
    expected = sum(
        sse(U[:, [masked.names.index(name)]], labels) * float(schema.bounds(name).width) ** 2
        for group, labels in masked.labels.items()
        for name in group
    ) + sum(
        variance * float(schema.bounds(name).width) ** 2 for name, variance in masked.noise_variance.items()
    )
    total = ((U - U.mean(axis=0)) ** 2).sum()
    return Evaluation(
        records=len(U),
        records_dropped=dropped,
        clusters={", ".join(group): int(labels.max()) + 1 for group, labels in masked.labels.items()},
        sse=float(losses @ widths**2),
        sse_before_truncation=float(((V - U) ** 2).sum(axis=0) @ widths**2),
        sse_expected=float(expected),
        information_loss=float(100 * losses.sum() / total),
    )
