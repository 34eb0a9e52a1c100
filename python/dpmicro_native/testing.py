"""Reproducible randomness, for tests only. A release made under a seed is not private and says so."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

from . import _core

__all__ = ["is_seeded", "seeded"]


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw from a generator with a known seed instead of the system's, on this thread, inside the block.

    The draws do not depend on the number of threads the core uses. Every certificate issued inside
    the block has ``private = False``.

    >>> from dpmicro_native.mask import discrete_laplace
    >>> with seeded(1):
    ...     first = discrete_laplace(10, 5)
    >>> with seeded(1):
    ...     again = discrete_laplace(10, 5)
    >>> bool((first == again).all())
    True
    """
    _core.push_seed(hashlib.sha256(f"dpmicro_native.testing {int(seed)}".encode()).digest())
    try:
        yield
    finally:
        _core.pop_seed()


def is_seeded() -> bool:
    """Whether draws made on this thread now would come from a seeded generator.

    >>> is_seeded()
    False
    """
    return _core.generator_is_seeded()
