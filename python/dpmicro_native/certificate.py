"""What a release guarantees, to whom, under which assumptions: the public certificate."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Literal

from ._core import __version__

Guarantee = Literal["dp", "idp", "k-anonymity"]
Scope = Literal["unconditional", "given-partition"]
Neighbours = Literal["replace-one", "add-remove-one"]

_MEANING: dict[tuple[str, str], str] = {
    ("dp", "unconditional"): (
        "Differential privacy: whatever one individual's record is, the chance of any release changes by a factor "
        "of at most e^epsilon (and by delta, where delta is not 0)."
    ),
    ("dp", "given-partition"): (
        "Differential privacy given the partition: the protected object is the microaggregated table. Neighbouring "
        "tables share the partition into clusters; a record that would move other records between clusters is "
        "outside the guarantee."
    ),
    ("idp", "given-partition"): (
        "Individual differential privacy given the partition: noise is scaled to the local sensitivity of this "
        "table, so the guarantee holds, with that scale, between this table and its neighbours that share the "
        "partition, and not between other pairs of tables. The scale itself is not protected."
    ),
    ("k-anonymity", "unconditional"): (
        "k-anonymity: every released combination of the values that were averaged stands for at least k records; "
        "columns that are kept as they are do not count. This is no differential-privacy guarantee."
    ),
    ("k-anonymity", "given-partition"): (
        "Averages over at least k records: every released statistic is computed from at least k records, but "
        "released combinations of values may be unique. This is no differential-privacy guarantee."
    ),
}


@dataclass(frozen=True)
class Certificate:
    """The public statement that travels with a release.

    Everything in it is known without the data: parameters, bounds, budget. Nothing computed from the
    records is ever added to it; see ``Release.evaluation`` for that.
    """

    guarantee: Guarantee
    scope: Scope
    neighbours: Neighbours
    method: str
    parameters: Mapping[str, Any]
    epsilon: Fraction | None = None
    delta: float = 0.0
    budget: Mapping[str, Fraction] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()
    columns: Mapping[str, Any] = field(default_factory=dict)
    private: bool = True
    version: str = __version__

    def __post_init__(self) -> None:
        if self.budget and sum(self.budget.values()) != self.epsilon:
            raise AssertionError("the shares of a certificate must add up to epsilon")
        for name in ("parameters", "budget", "columns"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    def __reduce__(self) -> tuple[Any, ...]:  # the read-only views do not pickle
        values = [getattr(self, name) for name in self.__dataclass_fields__]
        return (Certificate, tuple(dict(v) if isinstance(v, MappingProxyType) else v for v in values))

    @property
    def meaning(self) -> str:
        """The guarantee in plain words, no stronger than what holds."""
        return _MEANING[self.guarantee, self.scope]

    def to_dict(self) -> dict[str, Any]:
        """The certificate as plain values; shares of the budget are exact fractions, as text."""
        return {
            "guarantee": self.guarantee,
            "scope": self.scope,
            "meaning": self.meaning,
            "epsilon": None if self.epsilon is None else float(self.epsilon),
            "delta": self.delta,
            "neighbours": self.neighbours,
            "method": self.method,
            "parameters": {name: _plain(value) for name, value in self.parameters.items()},
            "budget": {name: str(share) for name, share in self.budget.items()},
            "assumptions": list(self.assumptions),
            "columns": dict(self.columns),
            "private": self.private,
            "version": self.version,
        }

    def to_json(self) -> str:
        """The certificate as JSON text."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False)

    def __repr__(self) -> str:
        parts = [f"{self.method}: {self.guarantee}, {self.scope}"]
        if self.epsilon is not None:
            parts.append(f"epsilon = {float(self.epsilon):g}")
        if self.delta:
            parts.append(f"delta = {self.delta:g}")
        if not self.private:
            parts.append("NOT PRIVATE (see assumptions)")
        return f"<Certificate {', '.join(parts)}>"

    def _repr_html_(self) -> str:
        from html import escape

        rows = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}</th><td>{escape(json.dumps(value, ensure_ascii=False))}"
            "</td></tr>"
            for name, value in self.to_dict().items()
        )
        return f"<table>{rows}</table>"


def _plain(value: Any) -> Any:
    if isinstance(value, Fraction):
        return float(value)
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    return value
