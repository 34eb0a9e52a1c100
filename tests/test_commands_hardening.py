"""`dpmicro audit`, `dpmicro ledger` and the limits of `dpmicro anonymize`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dpmicro_native.cli import main
from dpmicro_native.ledger import Ledger

SPEC = """
[columns]
age = {type = "numeric", lower = 0, upper = 100}
pay = {type = "numeric", lower = 0, upper = 10}

[method]
name = "IR_DP"
epsilon = "1/2"
k = 5
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rng = np.random.default_rng(5)
    rows = [f"{rng.integers(0, 99)},{rng.random() * 10:.3f}" for _ in range(60)]
    (tmp_path / "people.csv").write_text("\n".join(["age,pay", *rows]) + "\n")
    (tmp_path / "people.toml").write_text(SPEC)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def release(out: str, *more: str) -> int:
    return main(["anonymize", "people.csv", "--spec", "people.toml", "--out", out, "--quiet", *more])


def test_a_ledger_from_beginning_to_end(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ledger", "create", "budget.sqlite", "people", "--epsilon", "1.2"]) == 0
    assert release("one", "--ledger", "budget.sqlite") == 0
    assert release("two", "--ledger", "budget.sqlite", "--data-set", "people") == 0
    capsys.readouterr()
    assert release("three", "--ledger", "budget.sqlite") == 2
    assert "has epsilon = 0.2 left of 1.2, and this needs 0.5" in capsys.readouterr().err
    assert not (folder / "three").exists()
    assert [entry.state for entry in Ledger("budget.sqlite").history()] == ["committed"] * 2

    assert main(["ledger", "status", "budget.sqlite", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["data_sets"][0]["epsilon_left"] == "1/5"
    assert main(["ledger", "status", "budget.sqlite"]) == 0
    assert "0.2" in capsys.readouterr().out
    assert main(["ledger", "history", "budget.sqlite"]) == 0
    assert capsys.readouterr().out.count("committed") == 2
    assert main(["ledger", "history", "budget.sqlite", "--json"]) == 0
    assert [entry["epsilon"] for entry in json.loads(capsys.readouterr().out)["entries"]] == ["1/2", "1/2"]


def test_ledger_mistakes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ledger", "status", "none.sqlite"]) == 2
    assert main(["ledger", "create", "budget.sqlite", "people", "--epsilon", "much"]) == 2
    assert not (folder / "budget.sqlite").exists()
    assert release("one", "--data-set", "people") == 2
    assert release("one", "--ledger", "none.sqlite") == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 4
    assert all(line.startswith("error: ") for line in errors)


def test_memory_limit(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert release("one", "--memory-limit", "10MB") == 2
    assert "the limit is 10 MB" in capsys.readouterr().err
    assert not (folder / "one").exists()
    assert release("one", "--memory-limit", "8GB") == 0
    assert release("two", "--memory-limit", "lots") == 2


def test_audit(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    audit = ["audit", "IR_DP", "--spec", "people.toml", "--table", "people.csv", "--runs", "20000"]
    assert main([*audit, "--json", "--confidence", "0.9999"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["epsilon"] == 0.5
    assert 0.2 < result["given_partition"]["epsilon"] <= 0.5
    assert main(["audit", "MDAV_DP", *audit[2:], "--epsilon", "2", "--k", "6", "--confidence", "0.9999"]) == 0
    assert "not contradicted" in capsys.readouterr().out
    assert main(["audit", "MDAV", *audit[2:], "--k", "6"]) == 2
    capsys.readouterr()
    assert main(["audit", "CM-16", *audit[2:], "--epsilon", "2", "--k", "6", "--confidence", "0.9999"]) == 0
    assert "given the partition and the scales" in capsys.readouterr().out


def test_audit_of_a_broken_mechanism_fails(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dpmicro_native import release as module

    right = module.noisy_sums
    monkeypatch.setattr(
        module, "noisy_sums", lambda sums, reach, shares: right(sums, reach, [3 * share for share in shares])
    )
    assert main(["audit", "IR_DP", "--spec", "people.toml", "--table", "people.csv", "--runs", "20000"]) == 1


def test_another_method_is_audited_with_what_the_spec_says(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", "MDAV_DP", "--spec", "people.toml", "--table", "people.csv", "--runs", "2000"]) == 0
    shown = capsys.readouterr().out
    assert "claim of epsilon = 0.5" in shown
    assert "curator's eyes only" in shown


def test_a_spec_that_drops_columns_can_be_compared(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = (folder / "people.csv").read_text().splitlines()
    (folder / "named.csv").write_text("\n".join(["name," + table[0], *("Ann," + row for row in table[1:])]))
    (folder / "named.toml").write_text(SPEC.replace("[columns]", '[columns]\nname = {type = "drop"}'))
    how = [
        "--spec",
        "named.toml",
        "--methods",
        "MDAV_DP,IR_DP",
        "--epsilon",
        "1",
        "--out",
        "comparison",
        "--quiet",
    ]
    assert main(["compare", "named.csv", *how]) == 0, capsys.readouterr().err


def test_k_of_one_is_not_called_private(folder: Path) -> None:
    (folder / "people.toml").write_text(
        SPEC.replace("IR_DP", "MDAV").replace('epsilon = "1/2"\nk = 5', "k = 1")
    )
    assert release("out") == 0
    certificate = json.loads((folder / "out" / "public" / "certificate.json").read_text())
    assert certificate["private"] is False
    assert any(line.startswith("NOT PRIVATE: k = 1") for line in certificate["assumptions"])
