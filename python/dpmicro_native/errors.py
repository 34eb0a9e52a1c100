"""The package's exceptions. Messages give the reason and the remedy, never a value of the table."""

from __future__ import annotations


class DpmicroError(Exception):
    """Anything this package raises on purpose."""


class InputError(DpmicroError, ValueError):
    """Input that cannot be worked on: a table, a schema, a parameter."""


class BudgetError(InputError):
    """A privacy budget that is not positive, does not add up, or is spent."""


class GeneratorError(DpmicroError, RuntimeError):
    """The system's random generator failed; nothing was released."""
