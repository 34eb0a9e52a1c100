"""A budget that outlives the process: what releases of a data set have spent, and what is left."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from .certificate import Guarantee, Neighbours
from .errors import BudgetError, InputError
from .mask import exact

if TYPE_CHECKING:
    from .methods import Method
    from .schema import Schema

#: ``reserved``: spent, and nobody said that the release was written (in memory, under way, or killed);
#: ``committed``: spent, and written; ``refused``: the table was refused, nothing was made or spent.
State = Literal["reserved", "committed", "refused"]

_TABLES = """
CREATE TABLE data_sets (
    name TEXT PRIMARY KEY, epsilon TEXT NOT NULL, delta TEXT NOT NULL, neighbours TEXT NOT NULL
);
CREATE TABLE entries (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    data_set TEXT NOT NULL REFERENCES data_sets (name),
    time TEXT NOT NULL,
    epsilon TEXT NOT NULL,
    delta TEXT NOT NULL,
    guarantee TEXT NOT NULL,
    description TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('reserved', 'committed', 'refused'))
);
"""
_FORMAT = 1  # kept in the file's user_version
_PATIENCE = 60.0  # seconds to wait for other processes; a transaction takes milliseconds


@dataclass(frozen=True)
class Entry:
    """One line of a ledger; ``epsilon`` and ``delta`` are what it costs in the ledger's own terms."""

    number: int
    time: str
    epsilon: Fraction
    delta: Fraction
    guarantee: Guarantee
    description: str
    state: State


@dataclass(frozen=True)
class Status:
    """Total, spent and left of one data set."""

    data_set: str
    neighbours: Neighbours
    epsilon: Fraction
    epsilon_spent: Fraction
    delta: Fraction
    delta_spent: Fraction

    @property
    def epsilon_left(self) -> Fraction:
        """What is left of epsilon."""
        return self.epsilon - self.epsilon_spent

    @property
    def delta_left(self) -> Fraction:
        """What is left of delta."""
        return self.delta - self.delta_spent


class Ledger:
    """The account of a data set in an SQLite file that many processes may share.

    Costs add up (sequential composition). Every reservation is one transaction and on the disk before
    ``reserve`` returns; it stays spent whatever happens to the process. k-anonymity costs nothing, because
    it promises nothing that could add up; it is listed all the same. The file belongs with the curator,
    on a local disk (SQLite's WAL does not work over network file systems).

    A file may hold several data sets; name the one you mean where there is more than one.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "budget.sqlite"
    >>> ledger = Ledger.create(path, "census", epsilon=2)
    >>> reservation = ledger.reserve(1.5, description="OPT_DP_1 for the web site")
    >>> ledger.commit(reservation)
    >>> ledger.status().epsilon_left
    Fraction(1, 2)
    >>> Ledger(path).reserve(1)
    Traceback (most recent call last):
    ...
    dpmicro_native.errors.BudgetError: 'census' has epsilon = 0.5 left of 2, and this needs 1; ...
    """

    def __init__(self, path: str | Path, data_set: str | None = None) -> None:
        self.path = Path(path)
        names = self.names(self.path)
        if data_set is None:
            if len(names) != 1:
                raise InputError(f"the ledger holds several data sets ({', '.join(names)}); name one")
            data_set = names[0]
        elif data_set not in names:
            raise InputError(f"the ledger has no data set {data_set!r}; it has {', '.join(names)}")
        self.data_set = data_set

    @classmethod
    def create(
        cls,
        path: str | Path,
        data_set: str,
        epsilon: Any,
        delta: Any = 0,
        *,
        neighbours: Neighbours = "replace-one",
    ) -> Ledger:
        """Open an account, in a new file or in one that holds other data sets.

        ``neighbours`` says what the total is about. Of the two, only replace-one takes every method: a
        replacement is a removal and an addition, so a release that is (epsilon, delta)-private for adding or
        removing a record (SafePub) costs 2 epsilon and (1 + e^epsilon) delta.
        """
        if not isinstance(data_set, str) or not data_set.strip():
            raise InputError("a data set needs a name, such as 'census-2026'")
        if neighbours not in get_args(Neighbours):
            raise InputError(f"neighbours = {neighbours!r} is unknown; use 'replace-one' or 'add-remove-one'")
        total = _amount(epsilon, "epsilon")
        if total == 0:
            raise BudgetError("the total epsilon must be positive, such as 1")
        values = (data_set, str(total), str(_delta(delta)), neighbours)
        with _connection(Path(path), "rwc") as database:
            # Switching needs the file for itself, and it stays switched.
            if database.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                database.execute("PRAGMA journal_mode = WAL")
            with _transaction(database):
                if not _is_ledger(database):
                    if database.execute("SELECT 1 FROM sqlite_master").fetchone():
                        raise InputError(f"{path} is another program's database; choose another file")
                    for statement in _TABLES.split(";")[:-1]:
                        database.execute(statement)
                    database.execute(f"PRAGMA user_version = {_FORMAT}")
                if database.execute("SELECT 1 FROM data_sets WHERE name = ?", values[:1]).fetchone():
                    raise InputError(
                        f"the ledger has a data set {data_set!r} already; its total is not changed"
                    )
                database.execute("INSERT INTO data_sets VALUES (?, ?, ?, ?)", values)
        return cls(path, data_set)

    @staticmethod
    def names(path: str | Path) -> tuple[str, ...]:
        """Names of all the data sets in a ledger file."""
        path = Path(path)
        if not path.is_file():
            raise InputError(f"{path}: no such ledger; make one with `dpmicro ledger create`")
        with _ledger(path) as database:
            rows = database.execute("SELECT name FROM data_sets ORDER BY rowid").fetchall()
        return tuple(name for (name,) in rows)

    def reserve(
        self,
        epsilon: Any,
        delta: Any = 0,
        description: str = "",
        *,
        guarantee: Guarantee = "dp",
        neighbours: Neighbours = "replace-one",
    ) -> int:
        """Spend part of the budget, or raise BudgetError; returns the entry's number.

        Once this returns the part is spent for good: nobody can tell whether a process that died had
        already shown its release to someone.
        """
        cost, slack = _amount(epsilon, "epsilon"), _delta(delta)
        if guarantee not in get_args(Guarantee):
            raise InputError(f"guarantee = {guarantee!r} is unknown; use 'dp', 'idp' or 'k-anonymity'")
        if (guarantee == "k-anonymity") != (cost == 0):
            raise BudgetError("epsilon must be positive, except for k-anonymity, which costs nothing")
        with _ledger(self.path) as database, _transaction(database):
            status = self._status(database)
            if cost:
                cost, slack = _in_terms_of(status.neighbours, neighbours, cost, slack)
            for name, needed, left, total in (
                ("epsilon", cost, status.epsilon_left, status.epsilon),
                ("delta", slack, status.delta_left, status.delta),
            ):
                if needed > left:
                    raise BudgetError(
                        f"{self.data_set!r} has {name} = {float(left):g} left of {float(total):g}, and this "
                        f"needs {float(needed):g}; nothing was read or spent"
                    )
            time = datetime.now(timezone.utc).isoformat(timespec="seconds")
            values = (self.data_set, time, str(cost), str(slack), guarantee, str(description))
            cursor = database.execute(
                "INSERT INTO entries (data_set, time, epsilon, delta, guarantee, description, state) "
                "VALUES (?, ?, ?, ?, ?, ?, 'reserved')",
                values,
            )
            number = cursor.lastrowid
        assert number is not None
        return number

    def commit(self, number: int) -> None:
        """Note that the release of an entry was written. It was spent before."""
        self._settle(number, "committed", ("reserved", "committed"))

    def refuse(self, number: int) -> None:
        """Give a reservation back because its table was refused: no noise was drawn, nothing was made."""
        self._settle(number, "refused", ("reserved",))

    def _settle(self, number: int, state: State, before: tuple[State, ...]) -> None:
        with _ledger(self.path) as database, _transaction(database):
            changed = database.execute(
                "UPDATE entries SET state = ? WHERE number = ? AND data_set = ? "
                f"AND state IN ({', '.join('?' * len(before))})",
                (state, number, self.data_set, *before),
            ).rowcount
        if changed != 1:
            raise InputError(f"entry {number} of {self.data_set!r} does not exist or is settled already")

    def status(self) -> Status:
        """Total, spent and left."""
        with _ledger(self.path) as database:
            return self._status(database)

    def history(self) -> tuple[Entry, ...]:
        """Every entry, the oldest first."""
        with _ledger(self.path) as database:
            rows = database.execute(
                "SELECT number, time, epsilon, delta, guarantee, description, state FROM entries "
                "WHERE data_set = ? ORDER BY number",
                (self.data_set,),
            ).fetchall()
        return tuple(
            Entry(number, time, Fraction(epsilon), Fraction(delta), *rest)
            for number, time, epsilon, delta, *rest in rows
        )

    def _status(self, database: sqlite3.Connection) -> Status:
        epsilon, delta, neighbours = database.execute(
            "SELECT epsilon, delta, neighbours FROM data_sets WHERE name = ?", (self.data_set,)
        ).fetchone()
        rows = database.execute(
            "SELECT epsilon, delta FROM entries WHERE data_set = ? AND state != 'refused'", (self.data_set,)
        ).fetchall()
        return Status(
            self.data_set,
            neighbours,
            Fraction(epsilon),
            sum((Fraction(row[0]) for row in rows), Fraction(0)),
            Fraction(delta),
            sum((Fraction(row[1]) for row in rows), Fraction(0)),
        )

    def __repr__(self) -> str:
        return f"<Ledger {str(self.path)!r}, {self.data_set!r}>"


def reserve_for(ledger: Ledger, method: Method, schema: Schema) -> int:
    """Reserve what a method is going to spend."""
    budget = method.budget(schema)
    if budget is None:
        return ledger.reserve(0, description=f"{method.name} (costs nothing)", guarantee="k-anonymity")
    return ledger.reserve(
        budget.epsilon, method.delta, method.name, guarantee=method.guarantee, neighbours=method.neighbours
    )


def _in_terms_of(
    ledger: Neighbours, release: Neighbours, epsilon: Fraction, delta: Fraction
) -> tuple[Fraction, Fraction]:
    """What a release costs in the ledger's kind of neighbours; never too little."""
    if ledger == release:
        return epsilon, delta
    if ledger == "add-remove-one":
        raise BudgetError(
            "the ledger counts the adding or removing of a record, which this method does not protect: it takes "
            "the number of records as public; use a ledger for 'replace-one'"
        )
    if delta == 0:
        return 2 * epsilon, delta
    # Group privacy for two steps. exp is correct to an ulp or so; the factor covers that generously.
    growth = Fraction(math.exp(min(float(epsilon), 700.0))) * (1 + Fraction(1, 1 << 40))
    return 2 * epsilon, min(Fraction(1), (1 + growth) * delta)


def _amount(value: Any, name: str) -> Fraction:
    amount = exact(value)
    if amount < 0:
        raise BudgetError(f"{name} cannot be negative")
    return amount


def _delta(value: Any) -> Fraction:
    delta = _amount(value, "delta")
    if delta >= 1:
        raise BudgetError("delta must be below 1, such as 1e-6")
    return delta


def _is_ledger(database: sqlite3.Connection) -> bool:
    return bool(database.execute("PRAGMA user_version").fetchone()[0] == _FORMAT)


@contextmanager
def _connection(path: Path, mode: Literal["rw", "rwc"]) -> Iterator[sqlite3.Connection]:
    # A connection for each operation: none is carried over a fork, and none keeps the file busy.
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=_PATIENCE, isolation_level=None)) as database:
            database.execute("PRAGMA synchronous = FULL")  # a reservation must outlive a power failure
            database.execute("PRAGMA foreign_keys = ON")
            yield database
    except sqlite3.Error as error:
        raise InputError(f"the ledger {path} cannot be used: {error}") from None


@contextmanager
def _ledger(path: Path) -> Iterator[sqlite3.Connection]:
    with _connection(path, "rw") as database:
        if not _is_ledger(database):
            raise InputError(f"{path} is not a ledger of this version; make one with `dpmicro ledger create`")
        yield database


@contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[None]:
    database.execute("BEGIN IMMEDIATE")  # the lock comes before the reading: no two see the same rest
    try:
        yield
    except BaseException:
        database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")
