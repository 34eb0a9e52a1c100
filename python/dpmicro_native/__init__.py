"""Publish tables about individuals, and say what the release guarantees."""

from __future__ import annotations

from ._core import __version__

__all__ = ["__version__"]
