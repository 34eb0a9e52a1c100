"""Methods: small frozen dataclasses that say which stations to visit, and the papers' names for them."""

from __future__ import annotations

import inspect
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, TypeAlias

from .certificate import Guarantee, Neighbours, Scope
from .errors import BudgetError, InputError
from .mask import Budget, exact
from .partition import IR, MDAV, VMDAV, Insensitive, Optimal, Partition, Singletons
from .schema import Categorical, Keep, Numeric, Schema

Groups: TypeAlias = Literal["together", "each"] | tuple[tuple[str, ...], ...]
Split: TypeAlias = Literal["even", "width"] | Mapping[str, Any]
Order = Literal["shuffled", "aligned"]


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """What to do with a table; holds parameters only."""

    name: str

    @property
    @abstractmethod
    def guarantee(self) -> Guarantee:
        """Which kind of promise the release makes."""

    @property
    def neighbours(self) -> Neighbours:
        """Which tables the promise compares."""
        return "replace-one"

    @abstractmethod
    def check(self, schema: Schema) -> None:
        """Refuse what cannot work with this schema, before any data is read."""

    @abstractmethod
    def scope(self, schema: Schema, order: Order) -> Scope:
        """Whether the promise holds for all neighbours or given the partition."""

    @abstractmethod
    def parameters(self, schema: Schema, n: int) -> dict[str, Any]:
        """Parameters for the certificate: public facts only."""

    @abstractmethod
    def assumptions(self, schema: Schema, order: Order) -> tuple[str, ...]:
        """What the promise rests on, in sentences."""


@dataclass(frozen=True, kw_only=True)
class Microaggregation(Method):
    """Replace each cluster's records by their mean; no noise, so k-anonymity at most.

    ``groups`` says which attributes are clustered together: all (``"together"``), each by itself
    (``"each"``), or disjoint groups that name every Numeric column once. ``partition`` makes the
    clusters; a class instead of an instance (``MDAV``) stands for the cluster size that is best in the
    worst case, computed from public facts.
    """

    partition: Partition | type[Partition]
    groups: Groups = "together"

    @property
    def guarantee(self) -> Guarantee:
        """k-anonymity: no noise is added."""
        return "k-anonymity"

    def grouped(self, schema: Schema) -> tuple[tuple[str, ...], ...]:
        """The groups of attributes, by name."""
        names = schema.numeric
        if self.groups == "together":
            return (names,)
        if self.groups == "each":
            return tuple((name,) for name in names)
        return tuple(tuple(group) for group in self.groups)

    def check(self, schema: Schema) -> None:
        """Refuse schemas without numbers, and groups that overlap or miss a column."""
        if not schema.numeric:
            raise InputError(f"{self.name} needs at least one Numeric column with public bounds")
        for name, column in schema.columns.items():
            if isinstance(column, Categorical):
                raise InputError(
                    f"column {name!r} is Categorical, which {self.name} cannot average; "
                    "make it Drop() or Keep(), or use SAFEPUB"
                )
        if not isinstance(self.groups, str):
            self._check_groups(schema)
        if any(len(group) > 1 for group in self.grouped(schema)) and self.partition.univariate:
            raise InputError(f"{self.name}: this partition orders one attribute at a time; use groups='each'")

    def _check_groups(self, schema: Schema) -> None:
        named = [name for group in self.groups for name in group]
        for name in named:
            if not isinstance(schema.columns.get(name), Numeric):
                raise InputError(f"groups name {name!r}, which is not a Numeric column of the schema")
            if named.count(name) > 1:
                raise InputError(f"groups overlap: column {name!r} is in more than one; name it once")
        for name in schema.numeric:
            if name not in named:
                raise InputError(f"groups miss column {name!r}; name every Numeric column once")
        if any(len(group) == 0 for group in self.groups):
            raise InputError("a group is empty; name at least one column in each")

    def partitions(self, schema: Schema, n: int) -> tuple[Partition, ...]:
        """The partition of each group, checked against the number of records."""
        chosen = []
        for number, group in enumerate(self.grouped(schema)):
            partition = self.partition
            if isinstance(partition, type):
                partition = self._worst_case_best(partition, schema, number, n)
            partition.check(n, len(group))
            chosen.append(partition)
        return tuple(chosen)

    def _worst_case_best(self, kind: type[Partition], schema: Schema, number: int, n: int) -> Partition:
        raise InputError(f"{self.name} needs k, the smallest cluster size; for example k=5")

    def noise_cost(self, schema: Schema, name: str) -> float:
        """K of the expected error SSE(C) + K/|C| of the attribute, in the unit cube."""
        return 0.0

    def scope(self, schema: Schema, order: Order) -> Scope:
        """k-anonymity is a property of the released table; it needs whole records in one cluster."""
        return "unconditional" if len(self.grouped(schema)) == 1 else "given-partition"

    def parameters(self, schema: Schema, n: int) -> dict[str, Any]:
        """The partition's parameters and the groups."""
        partitions = self.partitions(schema, n)
        groups = self.grouped(schema)
        described: dict[str, Any] = {"partition": type(partitions[0]).__name__}
        for key in vars(partitions[0]):
            values = [getattr(partition, key) for partition in partitions]
            described[key] = values[0] if len(set(values)) == 1 else values
        described["groups"] = [list(group) for group in groups]
        return described

    def assumptions(self, schema: Schema, order: Order) -> tuple[str, ...]:
        """What k-anonymity does not cover."""
        sentences = []
        if len(self.grouped(schema)) > 1:
            sentences.append(
                "Groups of attributes are clustered separately: a value within one group stands for at least k "
                "records, but the combination of values across groups may be unique."
            )
        if any(isinstance(column, Keep) for column in schema.columns.values()):
            sentences.append("Kept columns are released untouched and are outside the guarantee.")
        return tuple(sentences)


@dataclass(frozen=True, kw_only=True)
class MicroaggregatedDP(Microaggregation):
    """Noisy cluster means: one draw of discrete Laplace noise per cluster and attribute.

    ``split`` divides epsilon over the groups: evenly, or by the widths of their attributes; or it gives
    every attribute its weight. ``norm`` divides a group's share over its attributes: ``"unit"`` evenly, the
    same noise in the unit cube (the scale d/(|C| epsilon)); ``"raw"`` by width, the same noise in raw
    units (the scale sum of widths/(|C| epsilon) of OPT's Algorithm 1).

    >>> from dpmicro_native import Numeric, Schema
    >>> schema = Schema({"age": Numeric(0, 120), "hours": Numeric(0, 80), "pay": Numeric(0, 10)})
    >>> dict(method("OPT_DP_1", epsilon=1).budget(schema).shares)
    {'age': Fraction(1, 3), 'hours': Fraction(1, 3), 'pay': Fraction(1, 3)}
    """

    epsilon: Fraction
    split: Split = "even"
    norm: Literal["unit", "raw"] = "unit"

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "epsilon", exact(self.epsilon))
        except InputError:
            raise BudgetError("epsilon must be a finite positive number, such as 1") from None
        if self.epsilon <= 0:
            raise BudgetError(
                "epsilon must be positive, such as 1; smaller means more noise and more privacy"
            )
        if isinstance(self.split, str) and self.split not in ("even", "width"):
            raise InputError(
                f"split = {self.split!r} is unknown; use 'even', 'width' or weights per attribute"
            )
        if self.norm not in ("unit", "raw"):
            raise InputError(f"norm = {self.norm!r} is unknown; use 'unit' or 'raw'")

    @property
    def guarantee(self) -> Guarantee:
        """Differential privacy."""
        return "dp"

    def check(self, schema: Schema) -> None:
        """Also refuse raw columns beside noisy ones, unsound dropping, and a budget that does not add up."""
        super().check(schema)
        refuse_raw_columns(self.name, schema)
        for name in schema.numeric:
            if schema.bounds(name).missing == "drop":
                raise InputError(
                    f"column {name!r}: missing='drop' would make the number of records depend on the data, "
                    f"which {self.name} takes as public; use missing='midpoint'"
                )
        self.budget(schema)

    def budget(self, schema: Schema) -> Budget:
        """Share of epsilon of every attribute; they add up exactly."""
        groups = self.grouped(schema)
        widths = {name: schema.bounds(name).width for name in schema.numeric}
        if isinstance(self.split, Mapping):
            return Budget.by_weights(self.epsilon, self._weights(schema))
        weights: dict[str, Fraction] = {}
        for group in groups:
            share = (
                sum((widths[name] for name in group), Fraction(0)) if self.split == "width" else Fraction(1)
            )
            parts = {name: widths[name] if self.norm == "raw" else Fraction(1) for name in group}
            weights |= {name: share * part / sum(parts.values()) for name, part in parts.items()}
        return Budget.by_weights(self.epsilon, {name: weights[name] for name in schema.numeric})

    def _weights(self, schema: Schema) -> dict[str, Fraction]:
        assert isinstance(self.split, Mapping)
        for name in self.split:
            if name not in schema.numeric:
                raise BudgetError(f"split names {name!r}, which is not a Numeric column of the schema")
        for name in schema.numeric:
            if name not in self.split:
                raise BudgetError(f"split has no weight for column {name!r}; name every Numeric column")
        return {name: exact(self.split[name]) for name in schema.numeric}

    def _worst_case_best(self, kind: type[Partition], schema: Schema, number: int, n: int) -> Partition:
        shares = self.budget(schema).shares
        smallest = min(shares[name] for name in self.grouped(schema)[number])
        return kind(worst_case_cluster_size(n, smallest / schema.max_records))  # type: ignore[call-arg]

    def noise_cost(self, schema: Schema, name: str) -> float:
        """K = 2 (records per individual / share)^2: the noise on a cluster's sum has that variance."""
        return float(2 * (schema.max_records / self.budget(schema).shares[name]) ** 2)

    def scope(self, schema: Schema, order: Order) -> Scope:
        """Unconditional when the partition is insensitive and nothing released links records to it."""
        if len(self.grouped(schema)) > 1 or self.partition.reads == "freely":
            return "given-partition"
        linked = order == "aligned" or any(isinstance(column, Keep) for column in schema.columns.values())
        alone = isinstance(self.partition, Singletons)  # a record's row then says nothing about the others
        return "given-partition" if linked and not alone else "unconditional"

    def parameters(self, schema: Schema, n: int) -> dict[str, Any]:
        """The partition's parameters, the groups and how epsilon is divided."""
        described = super().parameters(schema, n)
        split = self.split if isinstance(self.split, str) else {k: exact(v) for k, v in self.split.items()}
        return described | {"split": split, "norm": self.norm}

    def assumptions(self, schema: Schema, order: Order) -> tuple[str, ...]:
        """What the claim rests on."""
        sentences = [
            "The bounds of every column and the number of records are public knowledge.",
            "Individuals are independent of each other, and each contributes "
            + (
                "one record."
                if schema.individual is None
                else f"at most {schema.max_records} records; neighbours replace all records of one individual by "
                "as many others."
            ),
        ]
        if self.scope(schema, order) == "given-partition":
            sentences.append(
                "The partition into clusters is not part of the protected information: neighbouring tables share "
                "it, and the sizes of the clusters can be read from the release."
            )
        if order == "aligned" and not isinstance(self.partition, Singletons):
            sentences.append(
                "Rows are in the order of the input, which reveals who shares a cluster with whom."
            )
        public = [name for name, column in schema.columns.items() if isinstance(column, Keep)]
        if public:
            sentences.append(
                f"The columns {', '.join(public)} are public knowledge; they are released untouched and may link "
                "records to persons."
            )
        return tuple(sentences)


def refuse_raw_columns(name: str, schema: Schema) -> None:
    """Differentially private methods cannot release a raw column beside their own."""
    for column_name, column in schema.columns.items():
        if isinstance(column, Keep) and not column.public:
            raise InputError(
                f"column {column_name!r} is Keep(), and a raw column voids the claim of {name}; make it Drop(), or "
                "Keep(public=True) if everybody may know it already"
            )


def worst_case_cluster_size(n: int, epsilon: Fraction) -> int:
    """The k that minimises (k/n)(1/2)^2 + 2/(k epsilon)^2, the worst-case error of a mean (OPT, section 7).

    >>> worst_case_cluster_size(1000, Fraction(1))
    25
    """
    best: int = round(float(16 * n / epsilon**2) ** (1 / 3))
    return max(1, min(n, max(2, best)))


@dataclass(frozen=True)
class Entry:
    """One line of the catalogue: how to build a method and what to say of it."""

    build: Callable[..., Method]
    guarantee: str
    summary: str

    @property
    def needs(self) -> str:
        """Its parameters, those in brackets optional."""
        shown = []
        for parameter in inspect.signature(self.build).parameters.values():
            optional = parameter.default is not inspect.Parameter.empty
            shown.append(f"[{parameter.name}]" if optional else parameter.name)
        return " ".join(shown)


_CATALOGUE: dict[str, Entry] = {}


def _named(
    name: str, guarantee: str, summary: str
) -> Callable[[Callable[..., Method]], Callable[..., Method]]:
    def register(build: Callable[..., Method]) -> Callable[..., Method]:
        _CATALOGUE[name] = Entry(build, guarantee, summary)
        return build

    return register


def catalogue() -> Mapping[str, Entry]:
    """Every method by its paper's name."""
    return _CATALOGUE


def method(name: str, **parameters: Any) -> Method:
    """Build a method by its paper's name.

    >>> method("IR", k=5).guarantee
    'k-anonymity'
    """
    import difflib

    if name not in _CATALOGUE:
        close = difflib.get_close_matches(str(name).upper(), _CATALOGUE, n=1, cutoff=0.4)
        hint = f"; did you mean {close[0]!r}?" if close else "; `dpmicro methods` lists them"
        raise InputError(f"there is no method {name!r}{hint}")
    build = _CATALOGUE[name].build
    accepted = inspect.signature(build).parameters
    for key in parameters:
        if key not in accepted:
            close = difflib.get_close_matches(key, accepted, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else f"; it takes {_CATALOGUE[name].needs}"
            raise InputError(f"{name} has no parameter {key!r}{hint}")
    for key, parameter in accepted.items():
        if parameter.default is inspect.Parameter.empty and key not in parameters:
            example = {"epsilon": "epsilon=1", "k": "k=5", "gamma": "gamma=0.2", "delta": "delta=1e-6"}.get(
                key, key
            )
            raise InputError(f"{name} needs {key}; for example {example}")
    return build(**parameters)


def _whole(k: Any) -> int:
    if isinstance(k, bool) or not hasattr(k, "__index__"):
        raise InputError("k must be a whole number, such as k=5")
    size: int = operator.index(k)
    if size < 1:
        raise InputError(f"k must be at least 1, not {size}; it is the smallest cluster size")
    return size


def _groups(groups: Any) -> Groups:
    if isinstance(groups, str):
        if groups not in ("together", "each"):
            raise InputError(
                f"groups = {groups!r} is unknown; use 'together', 'each' or lists of column names"
            )
        return groups  # type: ignore[return-value]
    return tuple(tuple(group) for group in groups)


_K_ANONYMITY = "k-anonymity"
_GIVEN = "dp, given the partition"
_ALWAYS = "dp, unconditional"


@_named("MDAV", _K_ANONYMITY, "Means of clusters of k similar records (MDAV).")
def _mdav(k: int, groups: Groups = "together") -> Method:
    return Microaggregation(name="MDAV", partition=MDAV(_whole(k)), groups=_groups(groups))


@_named("VMDAV", _K_ANONYMITY, "Means of clusters of k to 2k-1 similar records (V-MDAV).")
def _vmdav(k: int, gamma: float = 0.2, groups: Groups = "together") -> Method:
    return Microaggregation(name="VMDAV", partition=VMDAV(_whole(k), gamma), groups=_groups(groups))


@_named(
    "IR",
    "k-anonymity of each attribute",
    "Each attribute sorted and cut into runs of k, replaced by their mean.",
)
def _ir(k: int) -> Method:
    return Microaggregation(name="IR", partition=IR(_whole(k)), groups="each")


@_named(
    "OPT",
    "k-anonymity of each attribute",
    "Each attribute in the runs of at least k with the least squared error.",
)
def _opt(k: int) -> Method:
    return Microaggregation(name="OPT", partition=Optimal(min_size=_whole(k)), groups="each")


@_named("LAPLACE", _ALWAYS, "Noise on every record and attribute: the baseline.")
def _laplace(epsilon: Any) -> Method:
    # One record per cluster: its mean is the record itself, so noise on means is noise on records.
    return MicroaggregatedDP(name="LAPLACE", partition=Singletons(), epsilon=epsilon)


def _mean_of(
    name: str, kind: type[Partition], k: int | None, epsilon: Any, groups: Groups, **how: Any
) -> MicroaggregatedDP:
    partition = kind if k is None else kind(_whole(k))  # type: ignore[call-arg]
    return MicroaggregatedDP(name=name, partition=partition, epsilon=epsilon, groups=_groups(groups), **how)


@_named("MDAV_DP", _GIVEN, "Noisy means of clusters of similar whole records.")
def _mdav_dp(
    epsilon: Any, k: int | None = None, groups: Groups = "together", split: Split = "even", norm: str = "unit"
) -> Method:
    return _mean_of("MDAV_DP", MDAV, k, epsilon, groups, split=split, norm=norm)


@_named("MDAV_IR_DP_1", _GIVEN, "Noisy means, MDAV on each attribute, epsilon split evenly.")
def _mdav_ir_dp_1(epsilon: Any, k: int | None = None) -> Method:
    return _mean_of("MDAV_IR_DP_1", MDAV, k, epsilon, "each", split="even")


@_named("MDAV_IR_DP_2", _GIVEN, "Noisy means, MDAV on each attribute, epsilon split by width.")
def _mdav_ir_dp_2(epsilon: Any, k: int | None = None) -> Method:
    return _mean_of("MDAV_IR_DP_2", MDAV, k, epsilon, "each", split="width")


@_named(
    "OPT_DP_1", _GIVEN, "Noisy means of the clusters with the least expected error, epsilon split evenly."
)
def _opt_dp_1(epsilon: Any, min_size: int = 1) -> Method:
    partition = Optimal(min_size=_whole(min_size))
    return MicroaggregatedDP(
        name="OPT_DP_1", partition=partition, groups="each", epsilon=epsilon, split="even"
    )


@_named(
    "OPT_DP_2", _GIVEN, "Noisy means of the clusters with the least expected error, epsilon split by width."
)
def _opt_dp_2(epsilon: Any, min_size: int = 1) -> Method:
    partition = Optimal(min_size=_whole(min_size))
    return MicroaggregatedDP(
        name="OPT_DP_2", partition=partition, groups="each", epsilon=epsilon, split="width"
    )


@_named("INS_DP", _ALWAYS, "Noisy means of insensitive clusters: the earlier method, for comparison.")
def _ins_dp(epsilon: Any, k: int, norm: str = "unit") -> Method:
    return _mean_of("INS_DP", Insensitive, k, epsilon, "together", norm=norm)


@_named("IR_DP", f"{_ALWAYS} for one attribute; {_GIVEN} for several", "Noisy means of sorted runs of k.")
def _ir_dp(epsilon: Any, k: int | None = None) -> Method:
    return _mean_of("IR_DP", IR, k, epsilon, "each")
