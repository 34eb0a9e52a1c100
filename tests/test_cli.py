from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from dpmicro_native import InputError, Keep, Numeric, Schema, batch, method
from dpmicro_native.cli import explain, main
from dpmicro_native.files import FileFormat, FileOptions, open_file, write_file
from dpmicro_native.people import SCHEMA, made_up_people
from dpmicro_native.spec import Spec, propose, write_spec
from permissions import is_private
from subprocesses import COMMAND, environment

BOUNDS = ["--bounds", "age=0:120", "--bounds", "pay=0:9999.5"]
IR = ["--method", "IR", "--k", "3", *BOUNDS]


@pytest.fixture
def people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a table in it."""
    monkeypatch.chdir(tmp_path)
    return make_table(tmp_path / "people.csv")


def make_table(path: Path, rows: int = 60) -> Path:
    table = pa.table(
        {
            "age": np.arange(rows) % 50 + 20,
            "pay": np.arange(rows) * 7.25,
            "city": [f"secret city {i % 5}" for i in range(rows)],
        }
    )
    write_file(table, path, FileFormat.of(path), {})
    return path


@pytest.fixture
def dpmicro(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def run(*arguments: Any) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        return code, *capsys.readouterr()

    return run


Run = Callable[..., tuple[int, str, str]]


# Help and the catalogue


@pytest.mark.parametrize("command", ["", "demo", "init", "anonymize", "plan", "methods"])
def test_help_teaches(dpmicro: Run, command: str) -> None:
    code, out, err = dpmicro(*command.split(), "--help")
    assert (code, err) == (0, "")
    assert "Usage: dpmicro" in out


def test_no_arguments_is_help(dpmicro: Run) -> None:
    assert dpmicro()[0] == 0


def test_methods_lists_the_catalogue(dpmicro: Run) -> None:
    code, out, _ = dpmicro("methods")
    assert code == 0
    assert "OPT_DP_1" in out
    described = json.loads(dpmicro("methods", "--json")[1])
    assert all(entry.keys() == {"name", "guarantee", "needs", "summary"} for entry in described)


def test_the_shell_completes_commands_and_methods() -> None:
    def complete(words: str) -> str:
        env = environment() | {
            "_DPMICRO_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split(" ")) - 1),
        }
        script = "import sys; from dpmicro_native.cli import main; sys.exit(main())"
        return subprocess.run(
            [sys.executable, "-c", script], env=env, capture_output=True, text=True, check=False
        ).stdout

    assert "plain,anonymize" in complete("dpmicro an")
    assert "plain,OPT_DP_1" in complete("dpmicro anonymize --method OPT_D")


# The demo


def test_demo_makes_a_release_and_can_be_run_again(dpmicro: Run, people: Path) -> None:
    for rows in (500, 700):
        code, out, err = dpmicro("demo", "--rows", rows)
        assert (code, err) == (0, "")
        assert f"Released {rows} records x 4 columns" in out
    demo = Path("dpmicro-demo")
    certificate = json.loads((demo / "public" / "certificate.json").read_text())
    assert certificate["method"] == "OPT_DP_1"
    assert certificate["epsilon"] == 1
    assert open_file(demo / "public" / "data.csv").count() == 700
    for path in [demo / "curator", *(demo / "curator").iterdir()]:
        assert is_private(path)
    # What it says to do next works.
    advice = out.splitlines()[-1].split()
    assert advice[0] == "dpmicro"
    assert dpmicro(*advice[1:])[0] == 0


def test_demo_replaces_nothing_but_a_demo(dpmicro: Run, people: Path) -> None:
    assert dpmicro("anonymize", people, *IR, "--other-columns", "drop", "--out", "mine", "-q")[0] == 0
    code, _, err = dpmicro("demo", "--rows", 10, "--out", "mine")
    assert code == 2
    assert "exists already" in err


def test_made_up_people_are_skewed_correlated_and_inside_their_bounds() -> None:
    table = made_up_people(20_000)
    values = {name: table.column(name).to_numpy() for name in table.column_names}
    for name, column in values.items():
        assert SCHEMA.bounds(name).lower <= column.min()
        assert (column > SCHEMA.bounds(name).upper).mean() < 0.001  # a few earn more than the public bound
        assert len(np.unique(column)) > 5
    income = values["income"]
    assert ((income - income.mean()) ** 3).mean() / income.std() ** 3 > 1
    correlation = np.corrcoef(np.column_stack(list(values.values())), rowvar=False)
    assert correlation[1, 2] > 0.4  # income and hours
    assert correlation[0, 3] < -0.1  # age and household size


# anonymize


def test_anonymize_with_options(dpmicro: Run, people: Path) -> None:
    code, out, err = dpmicro("anonymize", people, *IR, "--other-columns", "keep", "--out", "out")
    assert (code, err) == (0, "")
    assert "k-anonymity" in out
    assert open_file(Path("out/public/data.csv")).names == ("age", "pay", "city")
    assert sorted(path.name for path in Path("out/curator").iterdir())[0] == "evaluation.json"


def test_quiet_says_nothing_and_json_says_it_all(dpmicro: Run, people: Path) -> None:
    assert dpmicro("anonymize", people, *IR, "--other-columns", "drop", "--out", "a", "--quiet") == (
        0,
        "",
        "",
    )
    code, out, err = dpmicro("anonymize", people, *IR, "--other-columns", "drop", "--out", "b", "--json")
    assert (code, err) == (0, "")
    (described,) = json.loads(out)["releases"]
    assert described["records"] == 60
    assert described["certificate"]["method"] == "IR"


def test_an_existing_release_is_replaced_only_by_force(dpmicro: Run, people: Path) -> None:
    command = ["anonymize", people, *IR, "--other-columns", "drop", "--out", "out", "-q"]
    assert dpmicro(*command)[0] == 0
    code, _, err = dpmicro(*command)
    assert code == 2
    assert "--force" in err
    assert dpmicro(*command, "--force")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["anonymize", "no.csv", *IR, "--out", "out"], "no.csv: no such file"),
        (["anonymize", "no.csv", "--spec", "no.toml", "--out", "out"], "cannot read no.toml"),
        (["anonymize", "people.csv", "--out", "out"], "say what to do"),
        (["anonymize", "people.csv", *IR], "Missing option '--out'"),
        (["anonymize"], "Missing argument"),
        (["anonimize"], "No such command 'anonimize'"),
        (["anonymize", "people.csv", "--frce"], "--force"),
        (["anonymize", "people.csv", *IR, "--out", "out"], "column 'city' of the table is not in the schema"),
        (["anonymize", "people.csv", "--method", "IR", "--out", "out"], "IR needs k|needs the public bounds"),
        (
            ["anonymize", "people.csv", "--method", "OPT_DB_1", *BOUNDS, "--out", "o"],
            "did you mean 'OPT_DP_1'",
        ),
        (["anonymize", "people.csv", "--method", "OPT_DP_1", *BOUNDS, "--out", "o"], "needs epsilon"),
        (
            ["anonymize", "people.csv", "--method", "OPT_DP_1", "--epsilon", "x", *BOUNDS, "--out", "o"],
            "number",
        ),
        (
            ["anonymize", "people.csv", "--method", "OPT_DP_1", "--epsilon", "0", *BOUNDS, "--out", "o"],
            "positive",
        ),
        (["anonymize", "people.csv", *IR, "--epsilon", "1", "--out", "o"], "IR has no parameter 'epsilon'"),
        (
            ["anonymize", "people.csv", "--method", "IR", "--k", "five", *BOUNDS, "--out", "o"],
            "Invalid value for",
        ),
        (
            ["anonymize", "people.csv", *IR, "--k", "61", "--other-columns", "drop", "--out", "o"],
            "k = 61 is larger",
        ),
        (["anonymize", "people.csv", *IR, "--bounds", "age", "--out", "o"], "COLUMN=LOWER:UPPER"),
        (["anonymize", "people.csv", *IR, "--bounds", "age=a:b", "--out", "o"], "must be numbers"),
        (["anonymize", "people.csv", *IR, "--bounds", "x=5:1", "--out", "o"], "inverted"),
        (["anonymize", "people.csv", *IR, "--bounds", "age=0:1", "--out", "o"], "names 'age' twice"),
        (["anonymize", "people.csv", "--spec", "s.toml", "--k", "3", "--out", "o"], "--k and --spec both"),
        (
            ["anonymize", "people.csv", *IR, "--bounds", "agee=0:1", "--out", "o"],
            "no column 'agee'; did you mean",
        ),
        (["anonymize", "people.csv", *IR, "--encoding", "klingon", "--out", "o"], "no encoding 'klingon'"),
        (["anonymize", "people.csv", *IR, "--no-header", "--out", "o"], "header = false"),
        (["anonymize", "people.csv", *IR, "--out", "people.csv"], "is a file"),
        (["anonymize", ".git", *IR, "--out", "o"], "no table file in this folder"),
        (["anonymize", "people.csv", *IR, "--encoding", "base64", "--out", "o"], "no encoding 'base64'"),
        (["anonymize", "people.csv", *IR, "--encoding", "utf-16", "--out", "o"], "not in the encoding"),
        (["anonymize", "people.csv", *IR, "--encoding", "idna", "--out", "o"], "not in the encoding"),
        (["anonymize", "people.csv", *IR, "--bounds", f"x=0:1{'0' * 400}", "--out", "o"], "finite number"),
        (
            ["anonymize", "headless.csv", *IR, "--other-columns", "keep", "--out", "o"],
            "none of the spec's columns",
        ),
        (["ledger"], "Missing command"),
        (["init", "no.csv"], "no.csv: no such file"),
        (["init", "people.toml"], "unknown kind of file"),
        (["plan", *IR], "either the TABLE"),
        (["plan", "people.csv", "--rows", "5", *IR], "either the TABLE"),
        (["plan", "--rows", "2", *IR], "k = 3 is larger"),
        (["demo", "--rows", "1"], "Invalid value for '--rows'"),
    ],
)
def test_bad_input_is_one_line_and_code_2(
    dpmicro: Run, people: Path, arguments: list[str], message: str
) -> None:
    Path(".git").mkdir()
    Path("headless.csv").write_text("secret Ann,31\nsecret Bob,42\n")
    before = sorted(Path().iterdir())
    code, _, err = dpmicro(*arguments)
    assert code == 2
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert any(part in err for part in message.split("|"))
    assert "secret" not in err
    assert sorted(Path().iterdir()) == before


def test_errors_never_quote_what_they_do_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    assert explain(RuntimeError("secret")) == (1, "unexpected RuntimeError; please report it")
    assert explain(MemoryError()) == (1, "not enough memory for this table")
    assert explain(InputError("reason; remedy")) == (2, "reason; remedy")
    try:
        {}["secret"]
    except KeyError as error:
        code, line = explain(error)
    assert code == 1
    assert "test_cli.py:" in line
    assert "secret" not in line


def test_a_bug_is_one_line_and_code_1(dpmicro: Run, people: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(batch, "anonymize", broken)
    code, _, err = dpmicro("anonymize", people, *IR, "--out", "out")
    assert code == 1
    assert err.count("\n") == 1
    assert "secret" not in err


def test_interrupted_is_130(dpmicro: Run, people: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(batch, "anonymize", interrupted)
    code, _, err = dpmicro("anonymize", people, *IR, "--out", "out")
    assert code == 130
    assert err.strip() == "error: interrupted; nothing half done was left behind"  # after the line of the ^C
    make_table(Path("more.csv"))
    assert dpmicro("anonymize", people, "more.csv", *IR, "--out", "out")[0] == 130


# Bounds that read the data


def test_bounds_from_data_warn_and_mark_the_certificate(dpmicro: Run, people: Path) -> None:
    command = [
        "anonymize",
        people,
        *IR,
        "--other-columns",
        "drop",
        "--bounds-from-data",
        "1.5max",
        "--out",
        "out",
    ]
    code, _, err = dpmicro(*command)
    assert code == 0
    assert "warning" in err
    assert "not private" in err
    certificate = json.loads(Path("out/public/certificate.json").read_text())
    assert certificate["private"] is False
    assert certificate["columns"]["age"]["upper"] == 1.5 * 69


def test_init_with_bounds_from_data(dpmicro: Run, people: Path) -> None:
    code, _, err = dpmicro("init", people, "--bounds-from-data", "1.5max")
    assert code == 0
    assert "experiments only" in err
    code, _, err = dpmicro("anonymize", people, "--spec", "people.toml", "--out", "out")
    assert code == 0
    assert "NOT private" in err
    assert json.loads(Path("out/public/certificate.json").read_text())["private"] is False


# The spec


def filled(spec: str) -> str:
    return spec.replace('lower = "", upper = ""', "lower = 0, upper = 9999")


def test_init_leaves_the_bounds_to_fill_in(dpmicro: Run, people: Path) -> None:
    code, _, err = dpmicro("init", people)
    assert (code, err) == (0, "")
    text = Path("people.toml").read_text()
    assert 'lower = "", upper = ""' in text
    assert "secret" not in text
    code, _, err = dpmicro("anonymize", people, "--spec", "people.toml", "--out", "out")
    assert code == 2
    assert "fill in lower and upper of age, pay" in err
    Path("people.toml").write_text(filled(text))
    assert dpmicro("anonymize", people, "--spec", "people.toml", "--out", "out")[0] == 0
    assert dpmicro("plan", people, "--spec", "people.toml")[0] == 0
    code, _, err = dpmicro("init", people)
    assert code == 2
    assert "--force" in err
    assert dpmicro("init", people, "--force", "--quiet") == (0, "", "")


def test_init_finds_out_how_a_csv_is_written(dpmicro: Run, people: Path) -> None:
    Path("p.csv").write_bytes('größe;"a = b\nc"\n1,5;2\n2,5;3\n'.encode("latin-1"))
    assert dpmicro("init", "p.csv", "--encoding", "latin-1", "--decimal", ",", "-q")[0] == 0
    Path("p.toml").write_text(filled(Path("p.toml").read_text(encoding="utf-8")), encoding="utf-8")
    spec = Spec.from_toml(Path("p.toml"))
    assert spec.schema.numeric == ("größe", "a = b\nc")
    assert spec.file_options == FileOptions(delimiter=";", decimal=",", encoding="latin-1")
    assert dpmicro("anonymize", "p.csv", "--spec", "p.toml", "--out", "out")[0] == 0
    assert Path("out/public/data.csv").read_bytes().startswith('größe;"a = b\nc"\n'.encode("latin-1"))


def test_init_does_not_take_values_for_names(dpmicro: Run, people: Path) -> None:
    Path("bare.csv").write_text("31,4000\n32,5000\n")
    code, _, err = dpmicro("init", "bare.csv")
    assert code == 2
    assert "--no-header" in err
    assert "4000" not in err
    assert dpmicro("init", "bare.csv", "--no-header", "-q")[0] == 0
    assert "header = false" in Path("bare.toml").read_text()


@pytest.mark.parametrize(
    ("name", "kind", "proposal"),
    [
        ("age", pa.int64(), "numeric"),
        ("pay", pa.float32(), "numeric"),
        ("debt", pa.decimal128(10, 2), "numeric"),
        ("idle_hours", pa.int64(), "numeric"),
        ("person_id", pa.int64(), "drop"),
        ("patientId", pa.int64(), "drop"),
        ("First Name", pa.string(), "drop"),
        ("zip", pa.int64(), "drop"),
        ("birthday", pa.date32(), "drop"),
        ("married", pa.bool_(), "drop"),
        ("city", pa.string(), "drop"),
        ("", pa.int64(), "drop"),
    ],
)
def test_proposals_read_names_and_types(name: str, kind: pa.DataType, proposal: str) -> None:
    assert propose(name, kind).type == proposal


def test_a_written_spec_is_valid_whatever_the_names(tmp_path: Path) -> None:
    names = ["plain", "with space", 'quo"te', "a.b", "größe", "new\nline", "tab\t", "", "\x7f", "#"]
    text = write_spec("t\n.csv", "t.toml", [propose(name, pa.int64()) for name in names], FileOptions(","))
    path = tmp_path / "t.toml"
    path.write_text(filled(text), encoding="utf-8")
    assert list(Spec.from_toml(path).schema.columns) == names


SPEC = """
[columns]
age = { type = "numeric", lower = 0, upper = 120 }
pay = { type = "numeric", lower = 0, upper = 9999 }
[method]
name = "IR"
k = 3
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[method]", "[methods]", "unknown key 'methods'; did you mean 'method'"),
        ("k = 3", "kk = 3", "IR has no parameter 'kk'; did you mean 'k'"),
        ("k = 3", 'k = "three"', "whole number"),
        ("k = 3", "", "IR needs k"),
        ('name = "IR"', "", "[method] needs a name"),
        ("upper = 120", "uper = 120", "unknown key 'uper'; did you mean 'upper'"),
        ("upper = 120", "upper = -1", "inverted"),
        ("numeric", "numric", "unknown type 'numric'; did you mean 'numeric'"),
        ("k = 3", "k = 3\n[output]\nordr = 1", "unknown key 'ordr'; did you mean 'order'"),
        ("k = 3", 'k = 3\n[output]\norder = "sorted"', "order = 'sorted' is unknown"),
        ("k = 3", 'k = 3\n[output]\nother_columns = "x"', "other_columns = 'x' is unknown"),
        ("k = 3", 'k = 3\n[input]\ndelimeter = ","', "unknown key 'delimeter'; did you mean 'delimiter'"),
        ("k = 3", "k = ", "not valid TOML"),
        ("[columns]", "columns = 3\n[x]", "unknown key 'x'"),
    ],
)
def test_a_wrong_spec_is_refused_with_the_nearest_right(
    dpmicro: Run, people: Path, old: str, new: str, message: str
) -> None:
    Path("s.toml").write_text(SPEC.replace(old, new, 1))
    code, _, err = dpmicro("anonymize", people, "--spec", "s.toml", "--out", "out")
    assert code == 2
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(("other", "names"), [("keep", ["age", "pay", "city"]), ("drop", ["age", "pay"])])
def test_other_columns(dpmicro: Run, people: Path, other: str, names: list[str]) -> None:
    Path("s.toml").write_text(SPEC + f'[output]\nother_columns = "{other}"\norder = "aligned"')
    assert dpmicro("anonymize", people, "--spec", "s.toml", "--out", "out", "-q")[0] == 0
    assert list(open_file(Path("out/public/data.csv")).names) == names


def test_differential_privacy_refuses_kept_columns(dpmicro: Run, people: Path) -> None:
    spec = SPEC.replace("k = 3", "epsilon = 1").replace('"IR"', '"OPT_DP_1"')
    Path("s.toml").write_text(spec + '[output]\nother_columns = "keep"')
    code, _, err = dpmicro("anonymize", people, "--spec", "s.toml", "--out", "out")
    assert code == 2
    assert "voids the claim" in err
    spec = Spec(Schema({"x": Numeric(0, 1)}), method("IR", k=2), other_columns="keep")
    assert spec.schema_for(["y", "x"]).columns["y"] == Keep()


# Batches


def test_a_batch_makes_one_release_each_and_a_bad_table_stops_nothing(dpmicro: Run, people: Path) -> None:
    make_table(Path("b.parquet"))
    make_table(Path("c.csv.gz"))
    Path("bad.csv").write_text("age,pay,city\n1,x,secret\n")
    Path("s.toml").write_text(SPEC + '[output]\nother_columns = "drop"')
    command = ["anonymize", people, "b.parquet", "bad.csv", "c.csv.gz", "--spec", "s.toml", "--out", "all"]
    code, out, err = dpmicro(*command)
    assert code == 2
    assert err.startswith("error: bad.csv: column 'pay' is Numeric")
    assert "secret" not in err
    assert "failed" in out
    assert sorted(path.name for path in Path("all").iterdir()) == ["b", "c", "people"]
    assert Path("all/c/public/data.csv.gz").exists()
    assert pa.parquet.read_table("all/b/public/data.parquet").num_rows == 60
    code, out, _ = dpmicro(*command, "--force", "--json")
    assert code == 2
    assert [described.get("code") for described in json.loads(out)["releases"]] == [None, None, 2, None]


def test_a_folder_is_a_batch(dpmicro: Run, people: Path) -> None:
    Path("in").mkdir()
    make_table(Path("in/one.csv"))
    make_table(Path("in/two.feather"))
    Path("in/readme.md").write_text("not a table")
    Path("in/.hidden.csv").write_text("not looked at")
    assert dpmicro("anonymize", "in", *IR, "--other-columns", "drop", "--out", "out", "-q")[0] == 0
    assert sorted(path.name for path in Path("out").iterdir()) == ["one", "two"]


def test_two_tables_of_one_name_are_refused(dpmicro: Run, people: Path) -> None:
    make_table(Path("people.parquet"))
    code, _, err = dpmicro("anonymize", people, "people.parquet", *IR, "--out", "out")
    assert code == 2
    assert "rename one" in err


# The plan


def test_plan_in_text_and_json(dpmicro: Run, people: Path) -> None:
    arguments = ["--method", "MDAV_DP", "--epsilon", "0.1", "--k", "10", *BOUNDS]
    code, out, err = dpmicro("plan", "--rows", 100, *arguments)
    assert (code, err) == (0, "")
    assert "1/20" in out
    described = json.loads(dpmicro("plan", people, *arguments, "--json")[1])
    assert described["records"] == 60
    assert described["attributes"][0]["epsilon"] == "1/20"


# Imports and the module


def test_the_package_imports_no_more_than_it_needs() -> None:
    script = (
        "import sys, dpmicro_native; "
        "print(*sorted({'pyarrow', 'click', 'rich', 'plotly', 'scipy', 'pandas'} & set(sys.modules)))"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], env=environment(), capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == ""


def test_without_click_there_is_one_line() -> None:
    script = "import sys; sys.modules['click'] = None; from dpmicro_native.cli import main; sys.exit(main(['demo']))"
    run = subprocess.run(
        [sys.executable, "-c", script], env=environment(), capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1].startswith("error: the command line needs click")


def test_the_module_runs_and_a_closed_pipe_is_no_drama(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    run = subprocess.run(
        [*COMMAND, "methods"],
        env=environment(),
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert "Traceback" not in run.stderr
    assert run.returncode == 1


def test_a_pipe_carries_every_name(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("имя,年齢\n1,2\n", encoding="utf-8")
    run = subprocess.run(
        [*COMMAND, "init", "people.csv"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    assert "имя" in run.stdout
    assert "年齢" in run.stdout
