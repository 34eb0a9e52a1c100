"""The budget ledger: it adds up exactly, refuses what exceeds the total, and survives races and kills."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import textwrap
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpmicro_native import Numeric, Schema, anonymize, method
from dpmicro_native.errors import BudgetError, InputError
from dpmicro_native.ledger import Ledger

TABLE = np.random.default_rng(1).random((30, 2))
SCHEMA = Schema({"a": Numeric(0, 1), "b": Numeric(0, 1)})


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "budget.sqlite", "people", epsilon=1, delta="1e-6")


def test_tenths_add_up_to_one(ledger: Ledger) -> None:
    for _ in range(10):
        ledger.reserve(0.1)
    assert ledger.status().epsilon_left == 0
    with pytest.raises(BudgetError, match="left of 1"):
        ledger.reserve(Fraction(1, 10**30))


def test_delta_is_counted(ledger: Ledger) -> None:
    ledger.reserve("1/2", delta="6e-7")
    with pytest.raises(BudgetError, match="delta"):
        ledger.reserve("1/4", delta="6e-7")
    assert ledger.status().delta_left == Fraction(4, 10**7)


def test_refused_reservation_costs_nothing_and_is_not_listed(ledger: Ledger) -> None:
    with pytest.raises(BudgetError):
        ledger.reserve(2)
    assert ledger.history() == ()


def test_states(ledger: Ledger) -> None:
    first, second, third = (ledger.reserve("1/4", description=str(i)) for i in range(3))
    ledger.commit(first)
    ledger.commit(first)  # a release may be saved twice
    ledger.refuse(second)
    assert [entry.state for entry in ledger.history()] == ["committed", "refused", "reserved"]
    assert ledger.status().epsilon_spent == Fraction(1, 2)
    for settle, number in ((ledger.refuse, first), (ledger.commit, second), (ledger.commit, third + 1)):
        with pytest.raises(InputError, match="settled"):
            settle(number)


@pytest.mark.parametrize("epsilon", [0, -1, float("nan"), float("inf"), "many", None, True])
def test_bad_epsilon_is_refused(ledger: Ledger, epsilon: Any) -> None:
    with pytest.raises(InputError):
        ledger.reserve(epsilon)
    with pytest.raises(InputError):
        Ledger.create(ledger.path, "others", epsilon)
    assert ledger.history() == ()


@pytest.mark.parametrize("delta", [1, -0.1, "x"])
def test_bad_delta_is_refused(ledger: Ledger, delta: Any) -> None:
    with pytest.raises(InputError):
        ledger.reserve("1/10", delta)


def test_several_data_sets_in_one_file(ledger: Ledger) -> None:
    other = Ledger.create(ledger.path, "firms", epsilon=5)
    other.reserve(4)
    assert ledger.status().epsilon_spent == 0
    with pytest.raises(InputError, match="name one"):
        Ledger(ledger.path)
    assert Ledger(ledger.path, "firms").status().epsilon_left == 1
    with pytest.raises(InputError, match="no data set"):
        Ledger(ledger.path, "dogs")
    with pytest.raises(InputError, match="already"):
        Ledger.create(ledger.path, "firms", epsilon=9)
    with pytest.raises(InputError, match="settled"):
        ledger.commit(other.history()[0].number)


def test_files_that_are_no_ledger(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such ledger"):
        Ledger(tmp_path / "none.sqlite")
    assert not (tmp_path / "none.sqlite").exists()
    text = tmp_path / "text.sqlite"
    text.write_text("not a database " * 100)
    with pytest.raises(InputError, match="cannot be used"):
        Ledger(text)
    foreign = tmp_path / "foreign.sqlite"
    connection = sqlite3.connect(foreign)
    connection.execute("CREATE TABLE songs (title TEXT)")
    connection.close()
    with pytest.raises(InputError, match="not a ledger"):
        Ledger(foreign)
    with pytest.raises(InputError, match="another program"):
        Ledger.create(foreign, "people", 1)
    with pytest.raises(InputError, match="cannot be used"):
        Ledger.create(tmp_path / "no" / "folder.sqlite", "people", 1)


def test_add_remove_release_in_a_replace_ledger_pays_for_two_steps(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "l.sqlite", "people", epsilon=4, delta="1e-3")
    ledger.reserve(1, "1e-6", neighbours="add-remove-one")
    entry = ledger.history()[0]
    assert entry.epsilon == 2
    true = (1 + np.exp(1)) * 1e-6
    assert true <= float(entry.delta) <= true * (1 + 1e-9)
    own = Ledger.create(tmp_path / "l.sqlite", "own", epsilon=4, delta="1e-3", neighbours="add-remove-one")
    own.reserve(1, "1e-6", neighbours="add-remove-one")
    assert own.history()[0].epsilon == 1
    with pytest.raises(BudgetError, match="adding or removing"):
        own.reserve(1)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.fractions(min_value="1/1000", max_value="1/2", max_denominator=1000), max_size=8))
def test_spent_is_the_exact_sum_of_what_was_granted(
    tmp_path_factory: pytest.TempPathFactory, wanted: list[Fraction]
) -> None:
    ledger = Ledger.create(tmp_path_factory.mktemp("ledger") / "l.sqlite", "people", epsilon=1)
    granted = Fraction(0)
    for epsilon in wanted:
        if granted + epsilon <= 1:
            ledger.reserve(epsilon)
            granted += epsilon
        else:
            with pytest.raises(BudgetError):
                ledger.reserve(epsilon)
    assert ledger.status().epsilon_spent == granted == sum(entry.epsilon for entry in ledger.history())


def start(text: str) -> subprocess.Popen[str]:
    program = "from dpmicro_native.ledger import Ledger\n" + textwrap.dedent(text)
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", program], **pipes)


def wait_for(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    # An editable install may print that it rebuilds first.
    assert any(line == f"{word}\n" for line in process.stdout), f"ended before it was {word}"


def test_eight_processes_race_for_ten_tenths(ledger: Ledger) -> None:
    racers = [
        start(f"""
            from dpmicro_native.errors import BudgetError
            ledger = Ledger({str(ledger.path)!r})
            print("ready", flush=True)
            input()
            won = 0
            for _ in range(5):
                try:
                    ledger.commit(ledger.reserve("1/10"))
                    won += 1
                except BudgetError:
                    pass
            print(won)
        """)
        for _ in range(8)
    ]
    for racer in racers:
        wait_for(racer, "ready")
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    won = [int(racer.communicate(timeout=120)[0]) for racer in racers]
    assert [racer.returncode for racer in racers] == [0] * 8
    assert sum(won) == 10
    assert ledger.status().epsilon_left == 0
    assert [entry.state for entry in ledger.history()] == ["committed"] * 10


def test_processes_may_create_at_the_same_time(tmp_path: Path) -> None:
    path = tmp_path / "new.sqlite"
    makers = [start(f"Ledger.create({str(path)!r}, 'set {i}', 1)") for i in range(4)]
    for maker in makers:
        maker.communicate(timeout=120)
    assert [maker.returncode for maker in makers] == [0] * 4
    assert len(Ledger.names(path)) == 4


def test_a_kill_between_reserve_and_commit_stays_spent(ledger: Ledger) -> None:
    killed = start(f"""
        Ledger({str(ledger.path)!r}).reserve("7/10")
        print("reserved", flush=True)
        input()
    """)
    wait_for(killed, "reserved")
    killed.kill()
    killed.communicate()
    assert ledger.history()[0].state == "reserved"
    assert ledger.status().epsilon_left == Fraction(3, 10)


def test_a_kill_inside_the_transaction_spends_nothing(ledger: Ledger) -> None:
    killed = start(f"""
        ledger = Ledger({str(ledger.path)!r})
        def wait(database):
            print("inside", flush=True)
            input()
        ledger._status = wait
        ledger.reserve("7/10")
    """)
    wait_for(killed, "inside")
    killed.kill()
    killed.communicate()
    assert ledger.status().epsilon_left == 1
    ledger.reserve(1)  # nobody holds the lock any more


def test_anonymize_reserves_and_save_commits(ledger: Ledger, tmp_path: Path) -> None:
    release = anonymize(TABLE, SCHEMA, method("OPT_DP_1", epsilon="3/5"), ledger=ledger)
    (entry,) = ledger.history()
    assert (entry.state, entry.epsilon, entry.description) == ("reserved", Fraction(3, 5), "OPT_DP_1")
    release.save(tmp_path / "out")
    assert ledger.history()[0].state == "committed"
    with pytest.raises(BudgetError, match=r"0\.4 left of 1"):
        anonymize(TABLE, SCHEMA, method("OPT_DP_1", epsilon="3/5"), ledger=ledger)
    assert len(ledger.history()) == 1


def test_the_budget_is_looked_at_before_the_data(ledger: Ledger) -> None:
    ledger.reserve(1)
    with pytest.raises(BudgetError):
        anonymize("no such file.csv", SCHEMA, method("LAPLACE", epsilon=1), ledger=ledger)


def test_a_refused_table_gives_the_reservation_back(ledger: Ledger) -> None:
    with pytest.raises(InputError, match="no such file"):
        anonymize("no such file.csv", SCHEMA, method("LAPLACE", epsilon=1), ledger=ledger)
    assert ledger.history()[0].state == "refused"
    assert ledger.status().epsilon_left == 1


def test_any_other_failure_stays_spent(ledger: Ledger) -> None:
    def interrupt(station: str, share: float) -> None:
        if station == "release":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        anonymize(TABLE, SCHEMA, method("LAPLACE", epsilon=1), ledger=ledger, progress=interrupt)
    assert ledger.status().epsilon_left == 0


def test_a_failed_save_stays_reserved(ledger: Ledger, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    release = anonymize(TABLE, SCHEMA, method("LAPLACE", epsilon=1), ledger=ledger)
    with pytest.raises(InputError, match="exists"):
        release.save(tmp_path / "out")
    assert ledger.history()[0].state == "reserved"


def test_k_anonymity_costs_nothing_and_says_so(ledger: Ledger) -> None:
    anonymize(TABLE, SCHEMA, method("MDAV", k=3), ledger=ledger)
    (entry,) = ledger.history()
    assert (entry.epsilon, entry.guarantee, entry.description) == (0, "k-anonymity", "MDAV (costs nothing)")


def test_a_ledger_must_be_a_ledger() -> None:
    with pytest.raises(InputError, match="Ledger"):
        anonymize(TABLE, SCHEMA, method("MDAV", k=3), ledger="budget.sqlite")  # type: ignore[arg-type]
