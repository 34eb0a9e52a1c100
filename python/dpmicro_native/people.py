"""Made-up people for `dpmicro demo`: skewed and correlated as real ones are, and nobody in particular."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .schema import Numeric, Schema

if TYPE_CHECKING:
    import pyarrow as pa

#: What everybody may know of such a table.
SCHEMA = Schema(
    {
        "age": Numeric(0, 120),
        "income": Numeric(0, 500_000),
        "hours": Numeric(0, 100),
        "household_size": Numeric(1, 15),
    }
)


def made_up_people(rows: int) -> pa.Table:
    """A table of people, always the same for the same number of rows.

    >>> made_up_people(3).column_names
    ['age', 'income', 'hours', 'household_size']
    """
    import pyarrow as pa

    generator = np.random.default_rng(20250101)
    age = np.clip(np.rint(18 + 72 * generator.beta(1.4, 2.2, rows)), 18, 100)
    retired = generator.random(rows) < 1 / (1 + np.exp((65 - age) / 2))
    skill = generator.normal(size=rows)
    hours = np.where(retired, 0, np.clip(np.rint(38 + 4 * skill + 8 * generator.normal(size=rows)), 0, 90))
    # Pay rises with skill and, until about fifty, with age; a few earn very much.
    pay = np.exp(2.6 + 0.45 * skill + 0.9 * np.sin(np.pi * np.clip(age - 18, 0, 50) / 65))
    income = np.where(retired, 14_000, 0) + 52 * hours * pay * generator.lognormal(0, 0.35, rows)
    household = 1 + generator.poisson(0.4 + 1.9 * np.exp(-(((age - 40) / 14) ** 2)))
    return pa.table(
        {
            "age": age.astype(np.int64),
            "income": np.round(income, 2),
            "hours": hours.astype(np.int64),
            "household_size": np.minimum(household, 15).astype(np.int64),
        }
    )
