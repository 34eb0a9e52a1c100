"""Does a mechanism keep its promise? A lower bound on epsilon from many runs on a pair of neighbours.

The question and the verdict: ``audit_mechanisms`` has what is run, ``audit_statistics`` what is concluded. For
the curator's eyes: the figures depend on the table.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from .audit_mechanisms import FixedScheme, Mechanism, NoisyClusters, WholeSafePub, partition_labels
from .audit_statistics import choose_event, event_bound
from .errors import InputError
from .methods import Method, MicroaggregatedDP, TruthfulDP
from .release import certify, identifying_codes, limit_records
from .schema import Schema
from .table import Table, complete_rows, read_table, unit_cube

if TYPE_CHECKING:
    from .files import FileOptions


@dataclass(frozen=True)
class Bound:
    """What the runs say about one pair of neighbours."""

    rows: tuple[int, ...]  # of the table, counted from 0: these differ between the two
    epsilon: float  # at least this, with the audit's confidence
    probabilities: tuple[float, float]  # of the event, as observed on the two tables
    held: str  # what both runs share, or that nothing is
    claim: float | None  # the epsilon that is promised between such neighbours, if any
    judged: bool  # whether more than that contradicts the certificate
    runs: int

    @property
    def contradicts(self) -> bool:
        """Whether the runs show more than is promised."""
        return self.judged and self.claim is not None and self.epsilon > self.claim


@dataclass(frozen=True)
class Audit:
    """The result of an audit."""

    method: str
    guarantee: str
    scope: str
    epsilon: float  # as claimed
    delta: float
    runs: int
    confidence: float
    given_partition: Bound  # SafePub: given the generalisation
    recomputed: Bound

    @property
    def contradicted(self) -> bool:
        """Whether the runs contradict the certificate, with the audit's confidence."""
        return self.given_partition.contradicts or self.recomputed.contradicts

    @property
    def verdict(self) -> str:
        """The result in a sentence or two."""
        claim = f"epsilon = {self.epsilon:g}" + (f", delta = {self.delta:g}" if self.delta else "")
        if self.contradicted:
            return (
                f"CONTRADICTED: the certificate claims {claim}, and the runs show more. "
                "Do not publish; please report this as a security problem."
            )
        sentence = f"The claim of {claim}, {self.scope}, is not contradicted."
        if self.recomputed.epsilon > self.epsilon:
            what = "the partition" if self.guarantee == "dp" else "the partition and the scale of the noise"
            sentence += (
                f" It rests on {what}: between these two tables that changes, and the runs "
                "tell them apart better than epsilon allows. That is outside the guarantee."
            )
        return sentence

    def to_json(self) -> str:
        """The result as JSON text."""
        return json.dumps(
            asdict(self) | {"contradicted": self.contradicted, "verdict": self.verdict}, indent=2
        )


def audit(
    table: Any,
    schema: Schema,
    method: Method,
    *,
    runs: int = 200_000,
    confidence: float = 0.95,
    file_options: FileOptions | None = None,
    progress: Callable[[float], object] | None = None,
) -> Audit:
    """Run a mechanism many times on two neighbours and bound epsilon from below.

    The neighbours are the table with one individual's records moved to one corner of the bounds, and the
    same with them in the opposite corner: the worst of some candidates. For moments, candidates where the
    rest of the cluster sits in the first corner are built as well. This is done twice: with the
    table's own partition for both, and with the partition computed anew for each. Of the runs on
    each neighbour, the first half chooses an event, and the second half bounds its two probabilities
    (Clopper and Pearson 1934): epsilon is at least ln(p/q). A bound far below the claim proves nothing;
    a bound above the claim contradicts it.

    Individual differential privacy (the eigen methods) is about this table: one of the neighbours is the
    table itself, and with the partition the scales of its noise are held.

    SafePub: the neighbours are the table and the table without one record; epsilon is at least
    ln((p - delta)/q). First the generalisation is held and the sample is drawn anew; then, with a twentieth
    of the runs, all is done anew. Each bound has half the error, since both are promised.

    >>> import numpy as np
    >>> from dpmicro_native import Numeric, Schema, method
    >>> ages = np.array([[20.0], [30.0], [31.0], [45.0], [46.0], [70.0]])
    >>> result = audit(ages, Schema({"age": Numeric(0, 100)}), method("IR_DP", epsilon=1, k=2), runs=20_000)
    >>> result.contradicted, result.recomputed.epsilon > 0.5
    (False, True)
    """
    if method.guarantee not in ("dp", "idp"):
        raise InputError(
            f"{method.name} cannot be audited; it makes no claim of differential privacy, as MDAV_DP does"
        )
    if isinstance(runs, bool) or not isinstance(runs, int) or runs < 1000:
        raise InputError("runs must be a whole number of at least 1000; 200000 is usual")
    if not 0.5 <= confidence < 1:
        raise InputError("confidence must lie between 0.5 and 1, such as 0.95")
    method.check(schema)
    source, _ = limit_records(complete_rows(read_table(table, schema, file_options), schema), schema)
    certificate = certify(method, schema, "shuffled", source.rows, seeded=False)
    assert certificate.epsilon is not None
    epsilon, delta = float(certificate.epsilon), float(method.delta)
    plans = _clusters(source, schema, method) if isinstance(method, MicroaggregatedDP) else None
    if plans is None:
        assert isinstance(method, TruthfulDP)
        plans = _safepub(source, schema, method)
    report = progress or (lambda share: None)
    bounds = []
    for number, plan in enumerate(plans):
        bounds.append(
            _bound(
                plan,
                max(1000, runs // plan.fewer),
                1 - (1 - confidence) / plan.tests,
                delta,
                lambda share, done=number: report((done + share) / 2),  # type: ignore[misc]
            )
        )
    return Audit(
        certificate.method,
        certificate.guarantee,
        certificate.scope,
        epsilon,
        delta,
        runs,
        confidence,
        *bounds,
    )


@dataclass(frozen=True)
class _Plan:
    """One of the two halves of an audit."""

    mechanism: Mechanism
    held: str
    claim: float | None
    judged: bool
    fewer: int = 1  # one run where others make so many
    tests: int = 1  # that the audit's error is divided over


def _clusters(source: Table, schema: Schema, method: MicroaggregatedDP) -> tuple[_Plan, _Plan]:
    U = unit_cube(source, schema, schema.numeric)
    unconditional = method.scope(schema, "shuffled") == "unconditional"
    claim = float(method.epsilon)
    labels = partition_labels(U, schema, method)
    # An unconditional claim holds for both, but is judged once: two tests would accuse the right too often.
    return (
        _Plan(
            NoisyClusters(U, schema, method, labels),
            "given the partition" + (" and the scales" if method.guarantee == "idp" else ""),
            claim,
            judged=not unconditional,
        ),
        _Plan(
            NoisyClusters(U, schema, method, None),
            "partition recomputed" if method.guarantee == "dp" else "all recomputed",
            claim if unconditional else None,
            judged=unconditional,
        ),
    )


def _safepub(source: Table, schema: Schema, method: TruthfulDP) -> tuple[_Plan, _Plan]:
    hierarchies, codes = identifying_codes(source, schema, method)
    fixed = FixedScheme(codes, tuple(hierarchies), method.safepub, method.class_column(schema))
    shares = method.safepub.budget
    # The proof composes a search with a release that keeps its part of the claim for every generalisation.
    return (
        _Plan(fixed, "given the generalisation", float(shares["sample"]), judged=True, tests=2),
        _Plan(WholeSafePub(fixed), "all done anew", float(shares.epsilon), judged=True, fewer=20, tests=2),
    )


def _bound(
    plan: _Plan, runs: int, confidence: float, delta: float, report: Callable[[float], object]
) -> Bound:
    rows, first, second = plan.mechanism.worst_pair()
    a = first(runs, lambda share: report(share / 2))
    b = second(runs, lambda share: report(0.5 + share / 2))
    half = runs // 2
    event = choose_event(a[:half], b[:half], confidence, delta)
    epsilon, probabilities = event_bound(event, a[half:], b[half:], confidence, delta)
    return Bound(rows, epsilon, probabilities, plan.held, plan.claim, plan.judged, runs)
