"""Arguments of the wrong type: pybind11 quotes all arguments of the call, and the table is one of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import BuiltinFunctionType, ModuleType
from typing import Any

from .errors import InputError


def quote_no_arguments(core: ModuleType) -> None:
    """Make every function of the core refuse arguments of the wrong type without quoting them."""
    for name, function in list(vars(core).items()):
        if isinstance(function, BuiltinFunctionType):
            setattr(core, name, _quiet(function))


def _quiet(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        try:
            return function(*arguments, **options)
        except TypeError as error:
            if "incompatible function arguments" not in str(error):
                raise
        raise InputError(
            f"{function.__name__}: an argument has the wrong type; k, sizes, threads and seed are whole numbers, "
            "tables are arrays of numbers"
        )

    return call
