"""The cross-moment paper's methods 1 to 26 and B1 to B8 by its numbering (CM, Figures 4 and 5)."""

from __future__ import annotations

from typing import Literal, NamedTuple

from .aggregate import STRATEGIES, MomentQueries


class CatalogueEntry(NamedTuple):
    """A column of Figure 4, or of Figure 5 (``noise`` false)."""

    name: str
    order: int
    family: Literal["coefficient", "eigen"]
    #: MDAV on whole records, or on every attribute by itself with an even share of epsilon (Algorithm 3).
    partition: Literal["MDAV", "IR-MDAV"]
    algorithm: Literal["joint", "separate"]
    terms: Literal["pure", "variances"]
    strategy: int | None
    noise: bool = True

    def queries(self) -> MomentQueries:
        """What the method asks of a cluster."""
        weights = None if self.strategy is None else STRATEGIES[self.order, self.strategy]
        return MomentQueries(self.order, self.family, self.terms, weights)


# The rows of Figure 4, one character per method, '-' for "does not apply".
_FIGURE_4 = {
    "order": "01111112222221112220111222",
    "family": "-CCCCCCCCCCCCEEEEEE-CCCCCC",
    "partition": "MMMMMMMMMMMMMMMMMMMIIIIIII",
    "algorithm": "-JJSSSSJJSSSSJSSJSS-JSSJSS",
    "terms": "-PVPPVVPVPPVVPPPPPP-VVVVVV",
    "strategy": "---1212--1212-12-12--12-12",
}
# The rows of Figure 5.
_FIGURE_5 = {
    "order": "01122012",
    "family": "-CCCC-CC",
    "partition": "MMMMMIII",
    "algorithm": "-" * 8,
    "terms": "-PVPV-VV",
    "strategy": "-" * 8,
}


def _entry(name: str, column: tuple[str, ...], noise: bool) -> CatalogueEntry:
    order, family, partition, algorithm, terms, strategy = column
    return CatalogueEntry(
        name,
        int(order),
        "eigen" if family == "E" else "coefficient",
        "MDAV" if partition == "M" else "IR-MDAV",
        "separate" if algorithm == "S" else "joint",  # for the mean alone they are the same
        "variances" if terms == "V" else "pure",
        None if strategy == "-" else int(strategy),
        noise,
    )


CATALOGUE: dict[str, CatalogueEntry] = {
    name: _entry(name, column, noise)
    for prefix, figure, noise in (("CM-", _FIGURE_4, True), ("B", _FIGURE_5, False))
    for number, column in enumerate(zip(*figure.values(), strict=True), start=1)
    for name in [f"{prefix}{number}"]
}
