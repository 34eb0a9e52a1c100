"""The papers' tables and figures, redone: `dpmicro reproduce`.

Every figure is a function of an :class:`Experiment` (where the tables are, quick or full) that returns a
:class:`Figure`: its curves, what the paper's text states, and what came out. Draws are seeded, so that a figure
is the same each time; running times are not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path

from ..errors import InputError
from .figure import Experiment, Figure

__all__ = ["FIGURES", "Experiment", "Figure", "find_figure", "reproduce"]

_NAMES = {
    "cm": ("table1", "fig7", "fig8", "fig9", "fig10", "fig11", "fig12", "fig13", "fig14"),
    "opt": ("fig3", "fig4", "fig5"),
    "ir": ("fig1",),
    "pcl": ("fig4", "fig6", "fig7", "fig8"),
    "sp": ("fig9", "fig10", "fig11", "fig14", "fig16"),
}
#: Names of the figures, by paper.
FIGURES: Mapping[str, tuple[str, str]] = {
    f"{paper}-{name}": (paper, name) for paper, names in _NAMES.items() for name in names
}


def find_figure(name: str) -> str:
    """The name if there is such a figure; otherwise an error that suggests one.

    >>> find_figure("cm-fig7")
    'cm-fig7'
    """
    import difflib

    if name not in FIGURES:
        close = difflib.get_close_matches(name, FIGURES, n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(FIGURES)}"
        raise InputError(f"there is no figure {name!r}; {hint}")
    return name


def reproduce(
    name: str, data: str | Path, *, quick: bool = False, progress: Callable[[float], object] | None = None
) -> Figure:
    """Redo one figure from the tables in ``data``."""
    paper, function = FIGURES[find_figure(name)]
    module = import_module(f".{paper}", __name__)
    made: Figure = getattr(module, function)(Experiment(Path(data), quick, progress or (lambda share: None)))
    return made
