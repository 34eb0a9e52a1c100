"""Methods: small frozen dataclasses that say which stations to visit, and the papers' names for them."""

from __future__ import annotations

import inspect
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, TypeAlias, get_args

from ._cm_catalogue import CATALOGUE as CROSS_MOMENTS
from ._cm_catalogue import CatalogueEntry
from .aggregate import MomentQueries
from .certificate import Guarantee, Neighbours, Scope
from .errors import BudgetError, InputError
from .lloyd import PCL, Start
from .mask import Budget, exact
from .partition import IR, MDAV, VMDAV, Insensitive, Optimal, Partition, Singletons
from .safepub import SafePub
from .schema import Categorical, Column, Keep, Numeric, Schema

Groups: TypeAlias = Literal["together", "each"] | tuple[tuple[str, ...], ...]
Split: TypeAlias = Literal["even", "width"] | Mapping[str, Any]
Order = Literal["shuffled", "aligned"]
MEANS = MomentQueries(0)
# Noise on a sum, in widths of the attribute, beyond which the exact sampler's integers would not do.
_MOST_NOISE = 1 << 25
#: Records again, or a tidy table of the clusters' statistics.
Output = Literal["records", "moments"]


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

    @property
    def delta(self) -> float:
        """The additive term of (epsilon, delta)-differential privacy."""
        return 0.0

    @property
    def sound(self) -> bool:
        """False for what is known not to keep its promise and exists for comparison only."""
        return True

    @abstractmethod
    def check(self, schema: Schema) -> None:
        """Refuse what cannot work with this schema, before any data is read."""

    def budget(self, schema: Schema) -> Budget | None:
        """Epsilon and its named shares; None where nothing is spent because nothing is promised."""
        return None

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
    """Replace each cluster's records by their mean, or by records drawn from their first moments.

    No noise is added, so this is k-anonymity at most. ``groups`` says which attributes are clustered
    together: all (``"together"``), each by itself (``"each"``), or disjoint groups that name every Numeric
    column once. ``partition`` makes the clusters; a class instead of an instance (``MDAV``) stands for the
    cluster size that is best in the worst case, computed from public facts.
    """

    partition: Partition | type[Partition]
    groups: Groups = "together"
    moments: MomentQueries = MEANS
    output: Output = "records"

    def __post_init__(self) -> None:
        if self.output not in get_args(Output):
            raise InputError(f"output = {self.output!r} is unknown; use 'records' or 'moments'")

    @property
    def guarantee(self) -> Guarantee:
        """k-anonymity: no noise is added."""
        return "k-anonymity"

    @property
    def sound(self) -> bool:
        """k = 1 is no anonymity at all."""
        smallest = getattr(self.partition, "k", getattr(self.partition, "min_size", None))
        return self.guarantee != "k-anonymity" or smallest != 1

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
        if self.output == "moments" and any(isinstance(column, Keep) for column in schema.columns.values()):
            raise InputError(
                "output='moments' has one row per statistic, so no column can be kept; Drop() it"
            )
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
        whole = len(self.grouped(schema)) == 1 and self.moments.order == 0
        return "unconditional" if whole else "given-partition"

    def parameters(self, schema: Schema, n: int) -> dict[str, Any]:
        """The partition's parameters and the groups."""
        partitions = self.partitions(schema, n)
        groups = self.grouped(schema)
        described: dict[str, Any] = {"partition": type(partitions[0]).__name__}
        for key in vars(partitions[0]):
            values = [getattr(partition, key) for partition in partitions]
            described[key] = values[0] if len(set(values)) == 1 else values
        described["groups"] = [list(group) for group in groups]
        if self.moments.order > 0:
            described |= {
                "moments": self.moments.order,
                "family": self.moments.family,
                "terms": self.moments.terms,
                "output": self.output,
            }
        return described

    def assumptions(self, schema: Schema, order: Order) -> tuple[str, ...]:
        """What k-anonymity does not cover."""
        sentences = []
        if not self.sound:
            sentences.append("NOT PRIVATE: k = 1 hides nobody, every record is released as it is.")
        if self.moments.order > 0:
            sentences.append(
                "Exact moments of clusters of at least k records are released (as such or through records drawn from "
                "them); the drawn records are not k-anonymous themselves."
            )
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
        super().__post_init__()
        try:
            object.__setattr__(self, "epsilon", exact(self.epsilon))
        except InputError:
            raise BudgetError("epsilon must be a finite positive number, such as 1") from None
        if self.epsilon <= 0:
            raise BudgetError(
                "epsilon must be positive, such as 1; smaller means more noise and more privacy"
            )
        if not isinstance(self.split, Mapping) and self.split not in ("even", "width"):
            raise InputError(
                f"split = {self.split!r} is unknown; use 'even', 'width' or weights per attribute"
            )
        if self.norm not in ("unit", "raw"):
            raise InputError(f"norm = {self.norm!r} is unknown; use 'unit' or 'raw'")

    @property
    def guarantee(self) -> Guarantee:
        """Differential privacy; individual where the noise follows local sensitivities."""
        return "idp" if self.moments.family == "eigen" else "dp"

    def check(self, schema: Schema) -> None:
        """Also refuse raw columns beside noisy ones, unsound dropping, and a budget that does not add up."""
        super().check(schema)
        refuse_raw_columns(self.name, schema)
        if self.guarantee == "idp" and schema.max_records > 1:
            raise InputError(
                f"{self.name} scales noise to local sensitivities, which are proved for one record per individual "
                "only; use a coefficient method such as CM-3"
            )
        for name in schema.numeric:
            if schema.bounds(name).missing == "drop":
                raise InputError(
                    f"column {name!r}: missing='drop' would make the number of records depend on the data, "
                    f"which {self.name} takes as public; use missing='midpoint'"
                )
        self.budget(schema)
        smallest = min(self.attribute_shares(schema).shares.values())
        if schema.max_records / smallest > _MOST_NOISE:
            raise BudgetError(
                f"epsilon is too small: an attribute would get noise of {_MOST_NOISE:,} times its width or more; "
                "give more epsilon, or fewer columns"
            )

    def budget(self, schema: Schema) -> Budget:
        """Named shares of epsilon that add up exactly: attributes, or with moments a group's statistics."""
        attributes = self.attribute_shares(schema)
        if self.moments.order == 0:
            return attributes
        groups = self.grouped(schema)
        shares: dict[str, Fraction] = {}
        for group in groups:
            share = sum((attributes[name] for name in group), Fraction(0))
            for statistic, part in self.moments.budget(len(group)).items():
                label = statistic if len(groups) == 1 else f"{', '.join(group)}: {statistic}"
                shares[label] = share * part
        return Budget(self.epsilon, shares)

    def attribute_shares(self, schema: Schema) -> Budget:
        """Share of epsilon of every attribute; a group's share is the sum of its attributes'."""
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
        shares = self.attribute_shares(schema).shares
        smallest = min(shares[name] for name in self.grouped(schema)[number])
        return kind(worst_case_cluster_size(n, smallest / schema.max_records))  # type: ignore[call-arg]

    def noise_cost(self, schema: Schema, name: str) -> float:
        """K = 2 (records per individual / share)^2: the noise on a cluster's sum has that variance."""
        return float(2 * (schema.max_records / self.attribute_shares(schema)[name]) ** 2)

    def scope(self, schema: Schema, order: Order) -> Scope:
        """Unconditional when the partition is insensitive and nothing released links records to it."""
        # The partition's sensitivity is proved for sums only, not for higher moments.
        if len(self.grouped(schema)) > 1 or self.partition.reads == "freely" or self.moments.order > 0:
            return "given-partition"
        linked = order == "aligned" or any(isinstance(column, Keep) for column in schema.columns.values())
        alone = isinstance(self.partition, Singletons)  # a record's row then says nothing about the others
        return "given-partition" if linked and not alone else "unconditional"

    def parameters(self, schema: Schema, n: int) -> dict[str, Any]:
        """The partition's parameters, the groups and how epsilon is divided."""
        described = super().parameters(schema, n)
        split = self.split if isinstance(self.split, str) else {k: exact(v) for k, v in self.split.items()}
        if self.moments.order > 0:
            weights = self.moments.weights
            described["weights"] = "joint" if weights is None else list(weights)
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
        if self.guarantee == "idp":
            sentences.append(
                "The scale of the noise follows the sensitivity at this very table, and so depends on the data. "
                "The guarantee is about this table's scale on both tables (CM, Definition 4); the scale itself is "
                "not protected, and a neighbour released with its own may be told apart."
            )
        public = [name for name, column in schema.columns.items() if isinstance(column, Keep)]
        if public:
            sentences.append(
                f"The columns {', '.join(public)} are public knowledge; they are released untouched and may link "
                "records to persons."
            )
        return tuple(sentences)


@dataclass(frozen=True, kw_only=True)
class TruthfulDP(Method):
    """SafePub: sampled, generalised and suppressed records, all of them true (see ``SafePub``)."""

    safepub: SafePub

    def __post_init__(self) -> None:
        self.safepub.check()

    @property
    def guarantee(self) -> Guarantee:
        """Differential privacy; as published only the k-anonymity of what is released holds."""
        return "k-anonymity" if self.safepub.as_published else "dp"

    @property
    def neighbours(self) -> Neighbours:
        """One record more or less: the number of records is not public."""
        return "add-remove-one"

    def scope(self, schema: Schema, order: Order) -> Scope:
        """No partition is involved."""
        return "unconditional"

    def identifying(self, schema: Schema) -> tuple[str, ...]:
        """The columns that are generalised together: those with a hierarchy."""
        return tuple(name for name, column in schema.columns.items() if hierarchy_of(column) is not None)

    def class_column(self, schema: Schema) -> int | None:
        """Which of the identifying columns the classification score predicts."""
        target = self.safepub.class_column
        return None if target is None else self.identifying(schema).index(target)

    def check(self, schema: Schema) -> None:
        """Refuse columns without a hierarchy, raw columns, and several records per individual."""
        target = self.safepub.class_column
        for name, column in schema.columns.items():
            if isinstance(column, Keep):
                raise InputError(
                    f"column {name!r} is Keep(), and a raw column tells who is in the sample of {self.name}; "
                    "make it Drop(), or Categorical with a hierarchy"
                )
            if isinstance(column, (Categorical, Numeric)) and column.hierarchy is None:
                raise InputError(
                    f"column {name!r} needs a hierarchy for {self.name}, such as "
                    "Hierarchy.from_csv(...) or Hierarchy.intervals(...); or make it Drop()"
                )
            if (
                isinstance(column, Numeric)
                and column.missing == "midpoint"
                and not _interval_hierarchy(column)
            ):
                raise InputError(f"column {name!r}: missing='midpoint' needs a hierarchy of intervals")
        if not self.identifying(schema):
            raise InputError(f"{self.name} needs at least one column with a hierarchy")
        if target is not None and target not in self.identifying(schema):
            raise InputError(f"class_column = {target!r} is not a column with a hierarchy")
        if schema.individual is not None:
            raise InputError(
                f"{self.name} is proved for one record per individual; individual= cannot be used"
            )

    @property
    def delta(self) -> float:
        """As asked for; the sample size k was chosen to keep it."""
        return 0.0 if self.safepub.as_published else float(exact(self.safepub.delta))

    @property
    def sound(self) -> bool:
        """The paper's own algorithm is not (docs/errata.md)."""
        return not self.safepub.as_published

    def budget(self, schema: Schema) -> Budget | None:
        """Shares of the search and of the sample that is released."""
        return None if self.safepub.as_published else self.safepub.budget

    def parameters(self, schema: Schema, n: int) -> dict[str, Any]:
        """All public parameters, and the curve of (epsilon', delta') that hold at once (SP, theorem 11)."""
        safepub = self.safepub
        described = {
            "beta": safepub.beta,
            "k": safepub.k,
            "steps": safepub.steps,
            "score": safepub.score,
            "final_share": exact(safepub.final_share),
            "as_published": safepub.as_published,
        }
        if safepub.class_column is not None:
            described["class_column"] = safepub.class_column
        if not safepub.as_published:
            described["also_holds"] = [{"epsilon": e, "delta": d} for e, d in safepub.curve()]
        return described

    def assumptions(self, schema: Schema, order: Order) -> tuple[str, ...]:
        """What the claim rests on, and what does not hold as published."""
        return self.safepub.assumptions + self.safepub.caveats


def hierarchy_of(column: Column) -> Any:
    """The hierarchy of a column that has one."""
    return column.hierarchy if isinstance(column, (Categorical, Numeric)) else None


def _interval_hierarchy(column: Numeric) -> bool:
    return column.hierarchy is not None and column.hierarchy.numeric


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
    cube = 16 * n / epsilon**2  # of the best k; far beyond n^3 it does not fit a float
    best: int = n if cube >= n**3 else round(float(cube) ** (1 / 3))
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


def spec_parameters(given: Method, name: str) -> dict[str, Any]:
    """What a method says of epsilon, delta and k, as far as the method of that name takes them."""
    if name not in catalogue():
        return {}
    taken = inspect.signature(catalogue()[name].build).parameters
    source: Any = given.safepub if isinstance(given, TruthfulDP) else given
    found = {
        "epsilon": getattr(source, "epsilon", None),
        "delta": source.delta if isinstance(given, TruthfulDP) else None,
        "k": getattr(getattr(source, "partition", None), "k", None),
    }
    return {key: value for key, value in found.items() if key in taken and value is not None}


def _whole(value: Any, name: str = "k", least: int = 1, most: int = (1 << 31) - 1) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise InputError(f"{name} must be a whole number, such as {name}=5")
    if number > most:  # more than the core's integers hold
        raise InputError(f"{name} must be at most {most:,}")
    if number < least:
        what = "; it is the smallest cluster size" if name == "k" else ""
        raise InputError(f"{name} must be at least {least}, not {number}{what}")
    return number


def _groups(groups: Any) -> Groups:
    if isinstance(groups, str):
        if groups not in ("together", "each"):
            raise InputError(
                f"groups = {groups!r} is unknown; use 'together', 'each' or lists of column names"
            )
        return groups  # type: ignore[return-value]
    listed = isinstance(groups, (list, tuple))
    if not listed or not all(isinstance(group, (list, tuple)) for group in groups):
        raise InputError(
            "groups must be 'together', 'each' or lists of column names, such as [['age', 'pay']]"
        )
    return tuple(tuple(map(str, group)) for group in groups)


_K_ANONYMITY = "k-anonymity"
_GIVEN = "dp, given the partition"
_ALWAYS = "dp, unconditional"


@_named("MDAV", _K_ANONYMITY, "Means of clusters of k similar records (MDAV).")
def _mdav(k: int, groups: Groups = "together") -> Method:
    return Microaggregation(name="MDAV", partition=MDAV(_whole(k)), groups=_groups(groups))


@_named("VMDAV", _K_ANONYMITY, "Means of clusters of k to 2k-1 similar records (V-MDAV).")
def _vmdav(k: int, gamma: float = 0.2, groups: Groups = "together") -> Method:
    return Microaggregation(name="VMDAV", partition=VMDAV(_whole(k), gamma), groups=_groups(groups))


@_named("PCL", _K_ANONYMITY, "Means of cells of k similar records with less distortion than MDAV's (PCL).")
def _pcl(
    k: int, init: Start | None = None, max_iter: int = 100, seed: int = 0, groups: Groups = "together"
) -> Method:
    partition = PCL(_whole(k), init, _whole(max_iter, "max_iter", 0), _whole(seed, "seed", 0, (1 << 64) - 1))
    return Microaggregation(name="PCL", partition=partition, groups=_groups(groups))


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
    partition = Optimal(min_size=_whole(min_size, "min_size"))
    return MicroaggregatedDP(
        name="OPT_DP_1", partition=partition, groups="each", epsilon=epsilon, split="even"
    )


@_named(
    "OPT_DP_2", _GIVEN, "Noisy means of the clusters with the least expected error, epsilon split by width."
)
def _opt_dp_2(epsilon: Any, min_size: int = 1) -> Method:
    partition = Optimal(min_size=_whole(min_size, "min_size"))
    return MicroaggregatedDP(
        name="OPT_DP_2", partition=partition, groups="each", epsilon=epsilon, split="width"
    )


@_named("INS_DP", _ALWAYS, "Noisy means of insensitive clusters: the earlier method, for comparison.")
def _ins_dp(epsilon: Any, k: int, norm: str = "unit") -> Method:
    return _mean_of("INS_DP", Insensitive, k, epsilon, "together", norm=norm)


@_named("IR_DP", f"{_ALWAYS} for one attribute; {_GIVEN} for several", "Noisy means of sorted runs of k.")
def _ir_dp(epsilon: Any, k: int | None = None) -> Method:
    return _mean_of("IR_DP", IR, k, epsilon, "each")


@_named("SAFEPUB", "(epsilon, delta)-dp, unconditional", "True but generalised records of a random sample.")
def _safepub(
    epsilon: Any,
    delta: Any,
    epsilon_search: Any = None,
    steps: int = 300,
    score: str = "granularity",
    class_column: str | None = None,
    as_published: bool = False,
) -> Method:
    safepub = SafePub(
        epsilon,
        delta,
        epsilon_search,
        _whole(steps, "steps"),
        score,
        class_column=class_column,
        as_published=as_published,
    )
    return TruthfulDP(name="SAFEPUB", safepub=safepub)


def _cross_moments(entry: CatalogueEntry, k: Any, output: Output, **how: Any) -> Method:
    """A method of the cross-moment paper: MDAV on whole records, or on each attribute by itself."""
    groups: Groups = "together" if entry.partition == "MDAV" else "each"
    partition = how.pop("partition")
    if partition is None:
        partition = MDAV(_whole(k))
    if not isinstance(partition, Partition):
        raise InputError(
            f"{entry.name}: partition must be a Partition such as MDAV(5); in a spec, give k instead"
        )
    kind = MicroaggregatedDP if entry.noise else Microaggregation
    return kind(
        name=entry.name,
        partition=partition,
        groups=_groups(how.pop("groups") or groups),
        moments=entry.queries(),
        output=output,
        **how,
    )


def _register_cross_moments(entry: CatalogueEntry) -> None:
    def noisy(
        epsilon: Any,
        k: int | None = None,
        partition: Partition | None = None,
        groups: Groups | None = None,
        output: Output = "records",
    ) -> Method:
        _need_one_of(entry.name, k, partition)
        return _cross_moments(entry, k, output, partition=partition, groups=groups, epsilon=epsilon)

    def exact_moments(
        k: int | None = None,
        partition: Partition | None = None,
        groups: Groups | None = None,
        output: Output = "records",
    ) -> Method:
        _need_one_of(entry.name, k, partition)
        return _cross_moments(entry, k, output, partition=partition, groups=groups)

    what = ("mean", "mean and covariance", "mean, covariance and skewness")[entry.order]
    how = [
        {"MDAV": "whole records", "IR-MDAV": "each attribute"}[entry.partition],
        *(["eigen"] if entry.family == "eigen" else []),
        *([entry.algorithm] if entry.noise and entry.order else []),
        *(["variances only"] if entry.order and entry.terms == "variances" else []),
        *([f"strategy {entry.strategy}"] if entry.strategy else []),
    ]
    guarantee = "averages of at least k" if not entry.noise else _GIVEN
    if entry.family == "eigen":
        guarantee = "idp, given the partition"
    summary = f"Records from the {'noisy ' if entry.noise else ''}{what} of clusters ({', '.join(how)})."
    _named(entry.name, guarantee, summary)(noisy if entry.noise else exact_moments)


def _need_one_of(name: str, k: int | None, partition: Partition | None) -> None:
    if (k is None) == (partition is None):
        raise InputError(f"{name} needs k or a partition; for example k=100")


for _entry in CROSS_MOMENTS.values():
    _register_cross_moments(_entry)
