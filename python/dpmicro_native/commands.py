"""The commands of `dpmicro`; cli.py runs them, console.py shows what they say."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from ._core import __version__
from .batch import Job, Outcome, find_jobs, run_all
from .cli import FAILED, explain
from .console import progress_of, show_table, warn
from .errors import InputError
from .files import FileOptions, open_file
from .ledger import Ledger
from .methods import catalogue, spec_parameters
from .methods import method as make_method
from .people import SCHEMA as PEOPLE_SCHEMA
from .people import made_up_people
from .plan import Plan
from .plan import plan as make_plan
from .release import anonymize as make_release
from .resources import read_size
from .schema import Column, Numeric, Schema
from .spec import Spec, bounds_from_data, propose, write_spec

Command = TypeVar("Command", bound=Callable[..., Any])
PATH = click.Path(path_type=Path)


def _complete_method(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    known = catalogue().items()
    return [
        CompletionItem(name, help=entry.summary)
        for name, entry in known
        if name.startswith(incomplete.upper())
    ]


def _bounds(text: str) -> tuple[str, Numeric]:
    """Read COLUMN=LOWER:UPPER."""
    column, equals, bounds = text.rpartition("=")
    lower, colon, upper = bounds.partition(":")
    if not column or not equals or not colon:
        raise InputError(f"--bounds {text}: write it as COLUMN=LOWER:UPPER, such as age=0:120")
    try:
        return column, Numeric(_number(lower), _number(upper))
    except ValueError as error:
        reason = (
            str(error) if isinstance(error, InputError) else "the bounds must be numbers, such as age=0:120"
        )
        raise InputError(f"--bounds {text}: {reason}") from None


def _number(text: str) -> float:
    return int(text) if text.strip().lstrip("+-").isdigit() else float(text)


def _file_options(command: Command) -> Command:
    """Options that say how a CSV file is written."""
    for option in (
        click.option(
            "--no-header", is_flag=True, help="The first row holds values; columns are called f0, f1, ..."
        ),
        click.option("--quote", metavar="CHAR", help='Character around texts (default ").'),
        click.option("--encoding", metavar="NAME", help="Encoding of the text (default utf-8)."),
        click.option("--decimal", metavar="CHAR", help="Decimal mark (default .)."),
        click.option(
            "--delimiter", metavar="CHAR", help="Between the fields of a CSV file (default: found out)."
        ),
    ):
        command = option(command)
    return command


def _what_to_do(command: Command) -> Command:
    """Options that say what to do: a spec, or the few things that matter most."""
    for option in (
        click.option(
            "--other-columns",
            type=click.Choice(["refuse", "drop", "keep"]),
            help="What to do with columns that have no --bounds (default: refuse the table).",
        ),
        click.option(
            "--bounds",
            multiple=True,
            metavar="COL=LO:HI",
            help="A numeric column and its public bounds, such as age=0:120; repeat for each.",
        ),
        click.option(
            "--k", type=int, help="Smallest number of records in a cluster, where the method takes one."
        ),
        click.option(
            "--epsilon",
            metavar="E",
            help="Privacy budget, where the method takes one; smaller is more private.",
        ),
        click.option(
            "--method",
            metavar="NAME",
            shell_complete=_complete_method,
            help="One of `dpmicro methods`, such as OPT_DP_1.",
        ),
        click.option(
            "--spec", type=PATH, metavar="SPEC.toml", help="What to do, as written by `dpmicro init`."
        ),
    ):
        command = option(command)
    return command


_from_data = click.option(
    "--bounds-from-data",
    type=click.Choice(["1.5max"]),
    help="For experiments only: bounds 0 and 1.5 times the largest value. The release is then NOT private.",
)
_ledger = click.option(
    "--ledger", type=PATH, metavar="FILE", help="Spend from this ledger; see `dpmicro ledger`."
)
_data_set = click.option(
    "--data-set", metavar="NAME", help="Which data set of the ledger, if it has several."
)
_force = click.option("--force", is_flag=True, help="Replace what is there.")
_quiet = click.option("--quiet", "-q", is_flag=True, help="Print errors only.")
_json = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


def _options(
    delimiter: str | None, decimal: str | None, encoding: str | None, quote: str | None, no_header: bool
) -> FileOptions | None:
    given = {"delimiter": delimiter, "decimal": decimal, "encoding": encoding, "quote": quote}
    given = {name: "\t" if value == "\\t" else value for name, value in given.items() if value is not None}
    if not given and not no_header:
        return None
    return FileOptions(**given, header=not no_header)  # type: ignore[arg-type]


def _the_spec(
    spec: Path | None,
    method: str | None,
    epsilon: str | None,
    k: int | None,
    bounds: tuple[str, ...],
    other_columns: str | None,
    options: FileOptions | None,
) -> Spec:
    if spec is not None:
        given = {"--method": method, "--epsilon": epsilon, "--k": k, "--other-columns": other_columns}
        twice = [name for name, value in given.items() if value is not None] + ["--bounds"] * bool(bounds)
        if twice:
            raise InputError(
                f"{twice[0]} and --spec both say what to do; write it into {spec}, or leave --spec out"
            )
        read = Spec.from_toml(spec)
        return read if options is None else replace(read, file_options=options)
    if method is None:
        raise InputError("say what to do: --spec SPEC.toml (see `dpmicro init`), or --method with --bounds")
    columns: dict[str, Column] = {}
    for name, numeric in map(_bounds, bounds):
        if name in columns:
            raise InputError(f"--bounds names {name!r} twice; give it once")
        columns[name] = numeric
    if not columns:
        raise InputError(
            "--method needs the public bounds of the numeric columns, such as --bounds age=0:120"
        )
    parameters = {name: value for name, value in (("epsilon", epsilon), ("k", k)) if value is not None}
    return Spec(
        Schema(columns),
        make_method(method, **parameters),
        other_columns=other_columns or "refuse",  # type: ignore[arg-type]
        file_options=options or FileOptions(),
    )


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog='Completion: put  eval "$(_DPMICRO_COMPLETE=bash_source dpmicro)"  into ~/.bashrc (zsh_source in ~/.zshrc; '
    "for fish: _DPMICRO_COMPLETE=fish_source dpmicro | source).",
)
@click.version_option(__version__, prog_name="dpmicro", message="%(prog)s %(version)s")
def dpmicro() -> None:
    """Publish tables about individuals, and say what the release guarantees.

    \b
    Try it without any data:    dpmicro demo
    Then with a table:          dpmicro init people.csv
                                (fill in the bounds in people.toml)
                                dpmicro anonymize people.csv --spec people.toml --out release

    release/public may be published. release/curator is for your eyes only.
    """


@dpmicro.command(short_help="Make a release of made-up people; needs no input.")
@click.option(
    "--rows", type=click.IntRange(min=2), default=100_000, show_default=True, help="Number of people."
)
@click.option("--out", type=PATH, default=Path("dpmicro-demo"), show_default=True, help="Directory to write.")
@_quiet
@_json
def demo(rows: int, out: Path, quiet: bool, as_json: bool) -> None:
    """Make up a table of people and release it by OPT_DP_1 with epsilon = 1.

    Writes the release to DIR/public, and to DIR/curator the table itself, a spec for it and the evaluation.
    An earlier demo in DIR is replaced; nothing else is.
    """
    from .files import FileFormat, write_file
    from .writing import atomic_directory, check_target

    spec = "# The spec of the made-up people, filled in. See `dpmicro init` for one with explanations.\n[columns]\n"
    for name, column in PEOPLE_SCHEMA.columns.items():
        assert isinstance(column, Numeric)
        spec += f'{name} = {{ type = "numeric", lower = {column.lower}, upper = {column.upper} }}\n'
    spec += '\n[method]\nname = "OPT_DP_1"\nepsilon = 1\n'

    begun = time.monotonic()
    earlier = (out / "curator" / "people.toml").exists()
    check_target(out, force=earlier)
    with progress_of(["people"], quiet=quiet or as_json) as bars:
        progress = bars("people")
        progress("make up", 0.0)
        people = made_up_people(rows)
        release = make_release(people, PEOPLE_SCHEMA, make_method("OPT_DP_1", epsilon=1), progress=progress)
        with atomic_directory(out, force=earlier) as folder:
            release._write(folder, progress)
            curator = folder / "curator"
            write_file(people, curator / "people.csv", FileFormat(), {})
            (curator / "people.toml").write_text(spec, encoding="utf-8")
            for path in curator.iterdir():
                path.chmod(0o600)
    outcome = Outcome(
        Job(out / "curator" / "people.csv", out),
        time.monotonic() - begun,
        rows,
        people.num_columns,
        release.certificate,
    )
    if as_json:
        _print_json([outcome])
    elif not quiet:
        _print_release(outcome)
        print(
            f"The made-up people themselves are in {out / 'curator' / 'people.csv'}. Release them yourself with"
        )
        print(
            f"  dpmicro anonymize {out}/curator/people.csv --spec {out}/curator/people.toml --out my-release"
        )


@dpmicro.command(short_help="Write a spec for a table, with the columns found.")
@click.argument("table", type=PATH)
@click.option("--out", type=PATH, help="The spec to write (default: TABLE's name with .toml, here).")
@_from_data
@_file_options
@_force
@_quiet
def init(
    table: Path, out: Path | None, bounds_from_data: str | None, force: bool, quiet: bool, **how: Any
) -> None:
    """Write a spec for TABLE: its columns, a proposal what to do with each, and comments that explain.

    Types and roles are proposed from the columns' names and types. Bounds are left for you to fill in: read from the
    table they would give away its extremes, and no guarantee would hold.
    """
    file = open_file(table, _options(**how))
    if (
        file.format.kind == "csv"
        and file.format.options.header
        and all(map(_looks_like_a_number, file.names))
    ):
        raise InputError(
            f"the first row of {table} holds numbers, not names of columns; add a header, or use --no-header"
        )
    if len(set(file.names)) < len(file.names):
        raise InputError(f"{table} has two columns with the same name; rename one")
    out = out or Path(table.name.split(".")[0] + ".toml")
    if out.exists() and not force:
        raise InputError(f"{out} exists already; choose another name with --out, or --force to replace it")
    read = file.read()
    proposals = [propose(name, read.schema.field(name).type) for name in file.names]
    if bounds_from_data:
        proposals = [
            replace(proposal, bounds=_read_bounds(read, proposal.name))
            if proposal.type == "numeric"
            else proposal
            for proposal in proposals
        ]
        warn(
            "the bounds were read from the table, so no release with this spec is private; for experiments only"
        )
    options = file.format.options if file.format.kind == "csv" else None
    text = write_spec(str(table), str(out), proposals, options)
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {out}: {error.strerror}; choose another name with --out") from None
    if quiet:
        return
    show_table(["column", "proposal", "because"], [[p.name, p.type, p.reason] for p in proposals])
    print(f"Wrote {out}. " + ("" if bounds_from_data else "Fill in the bounds, check the proposals, and run"))
    print(f"  dpmicro anonymize {table} --spec {out} --out release")


def _read_bounds(table: Any, name: str) -> Numeric:
    return bounds_from_data(table.column(name), name)


def _looks_like_a_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@dpmicro.command(short_help="Release tables.")
@click.argument("tables", type=PATH, nargs=-1, required=True, metavar="TABLE...")
@_what_to_do
@_from_data
@_file_options
@click.option("--out", type=PATH, required=True, metavar="DIR", help="Directory to write.")
@_ledger
@_data_set
@click.option(
    "--memory-limit",
    metavar="SIZE",
    help="Refuse a table that would need more memory, such as 8GB.",
)
@_force
@_quiet
@_json
def anonymize(
    tables: tuple[Path, ...],
    spec: Path | None,
    method: str | None,
    epsilon: str | None,
    k: int | None,
    bounds: tuple[str, ...],
    other_columns: str | None,
    bounds_from_data: str | None,
    out: Path,
    ledger: Path | None,
    data_set: str | None,
    memory_limit: str | None,
    force: bool,
    quiet: bool,
    as_json: bool,
    **how: Any,
) -> int:
    """Release TABLE (CSV, Parquet or Arrow) to DIR.

    \b
    DIR/public   the released table in the same format, and certificate.json: may be published
    DIR/curator  what was lost, measured on the original, as report.html and evaluation.json: for your eyes only

    What to do comes from a spec (see `dpmicro init`), or for simple cases from options:

    \b
      dpmicro anonymize people.csv --spec people.toml --out release
      dpmicro anonymize people.csv --method OPT_DP_1 --epsilon 1 \\
          --bounds age=0:120 --bounds pay=0:9999 --out release

    Several tables, or a folder of them, get a release each in DIR/NAME; one that cannot be released does not stop the
    others. DIR appears whole or not at all. Exit code: 0 done, 2 bad input, 1 anything else.
    """
    chosen = _the_spec(spec, method, epsilon, k, bounds, other_columns, _options(**how))
    if bounds_from_data:
        warn("bounds are read from the data, so the release is not private; for experiments only")
    jobs = find_jobs(tables, out)
    account = _open_ledger(ledger, data_set)
    limit = None if memory_limit is None else read_size(memory_limit)
    with progress_of([str(job.table) for job in jobs], quiet=quiet or as_json) as bars:
        outcomes = list(
            run_all(
                jobs,
                chosen,
                bars,
                force=force,
                experiment=bool(bounds_from_data),
                ledger=account,
                memory_limit=limit,
            )
        )
    outcomes.sort(key=lambda outcome: jobs.index(outcome.job))
    if as_json:
        _print_json(outcomes)
    if len(jobs) == 1 and outcomes[0].error is not None:
        raise outcomes[0].error
    if not quiet and not as_json:
        _print_release(outcomes[0]) if len(jobs) == 1 else _print_releases(outcomes)
    codes = []
    for outcome in outcomes:
        if outcome.error is not None:
            code, message = explain(outcome.error)
            codes.append(code)
            print(f"error: {outcome.job.table}: {message}", file=sys.stderr)
        elif outcome.certificate is not None and not outcome.certificate.private and not bounds_from_data:
            warn(f"{outcome.job.target}: NOT private; its certificate says why")
    return FAILED if FAILED in codes else max(codes, default=0)


def _guarantee(outcome: Outcome) -> str:
    certificate = outcome.certificate
    assert certificate is not None
    parts = [certificate.guarantee, certificate.scope.replace("-", " the ", 1)]
    if certificate.epsilon is not None:
        parts.append(f"epsilon = {float(certificate.epsilon):g}")
    if certificate.delta:
        parts.append(f"delta = {certificate.delta:g}")
    return ", ".join(parts) + ("" if certificate.private else " (NOT PRIVATE)")


def _print_release(outcome: Outcome) -> None:
    assert outcome.certificate is not None
    target = outcome.job.target
    files = {
        part: ", ".join(sorted(path.name for path in (target / part).iterdir()))
        for part in ("public", "curator")
    }
    print(f"Released {outcome.rows:,} records x {outcome.columns} columns in {outcome.seconds:.1f} s.")
    print(f"  {outcome.certificate.method}: {_guarantee(outcome)}")
    print(f"  {target / 'public'}: {files['public']}; may be published")
    print(f"  {target / 'curator'}: {files['curator']}; for your eyes only")


def _print_releases(outcomes: list[Outcome]) -> None:
    rows = [
        [str(outcome.job.table), "failed", "", "", ""]
        if outcome.error is not None
        else [
            str(outcome.job.table),
            str(outcome.job.target),
            f"{outcome.rows:,}",
            f"{outcome.seconds:.1f} s",
            _guarantee(outcome),
        ]
        for outcome in outcomes
    ]
    show_table(["table", "release", "records", "time", "guarantee"], rows, right=(2, 3))


def _print_json(outcomes: list[Outcome]) -> None:
    described = [
        {
            "table": str(outcome.job.table),
            "seconds": round(outcome.seconds, 3),
            **(
                {"error": explain(outcome.error)[1], "code": explain(outcome.error)[0]}
                if outcome.error is not None
                else {
                    "release": str(outcome.job.target),
                    "records": outcome.rows,
                    "columns": outcome.columns,
                    "certificate": outcome.certificate.to_dict() if outcome.certificate else None,
                }
            ),
        }
        for outcome in outcomes
    ]
    print(json.dumps({"releases": described}, indent=2, ensure_ascii=False))


def _list_of(kind: Callable[[str], Any], example: str) -> Callable[..., tuple[Any, ...]]:
    """Read A,B,C."""

    def read(ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[Any, ...]:
        try:
            return tuple(kind(part.strip()) for part in (text or "").split(",") if part.strip())
        except ValueError:
            raise InputError(f"--{param.name} {text}: write it as {example}") from None

    return read


@dpmicro.command(short_help="Try methods on a table, side by side; for the curator only.")
@click.argument("table", type=PATH)
@click.option("--spec", type=PATH, required=True, metavar="SPEC.toml", help="The columns and their bounds.")
@click.option(
    "--methods",
    required=True,
    callback=_list_of(str, "A,B,C"),
    metavar="A,B,C",
    help="Some of `dpmicro methods`, such as MDAV_DP,OPT_DP_1.",
)
@click.option("--k", callback=_list_of(int, "10,50,100"), metavar="K,K,K", help="For methods that take k.")
@click.option(
    "--epsilon", callback=_list_of(float, "0.5,1,2"), metavar="E,E,E", help="For methods that take epsilon."
)
@click.option(
    "--repeats", type=click.IntRange(min=1), default=5, show_default=True, help="Releases per setting."
)
@click.option("--out", type=PATH, metavar="DIR", help="Write compare.html (with plots) and compare.csv.")
@_file_options
@_force
@_quiet
@_json
def compare(
    table: Path,
    spec: Path,
    methods: tuple[str, ...],
    k: tuple[int, ...],
    epsilon: tuple[float, ...],
    repeats: int,
    out: Path | None,
    force: bool,
    quiet: bool,
    as_json: bool,
    **how: Any,
) -> None:
    """Release TABLE by several methods, with every k and epsilon they take, and show what each would lose.

    \b
      dpmicro compare people.csv --spec people.toml --methods MDAV_DP,OPT_DP_1,LAPLACE \\
          --k 10,50,100 --epsilon 0.5,1,2 --out comparison

    Nothing is released. The figures are computed from the original records: they are for the curator's eyes only,
    and so is a choice made by them. The spec's own [method] is not used.
    """
    from .compare import FIGURES
    from .compare import compare as compare_methods
    from .writing import check_target

    if out is not None:
        check_target(out, force=force)
    chosen = Spec.from_toml(spec)
    options = _options(**how) or chosen.file_options
    schema = chosen.schema_for(open_file(table, options).names)
    with progress_of([str(table)], quiet=quiet or as_json) as bars:
        progress = bars(str(table))
        found = compare_methods(
            table,
            schema,
            methods,
            k=k,
            epsilon=epsilon,
            repeats=repeats,
            progress=lambda share: progress("compare", share),
            file_options=options,
        )
    if out is not None:
        found.save(out, force=force)
    if as_json:
        print(json.dumps({"for": "curator only", "settings": found.summary()}, indent=2, ensure_ascii=False))
        return
    if not quiet:
        header = ["method", "k", "epsilon", "runs", *(name.replace("_", " ") for name in FIGURES)]
        rows = []
        for row in found.summary():
            shown = [
                row["method"],
                *("-" if row[key] is None else f"{row[key]:g}" for key in ("k", "epsilon")),
            ]
            for name in FIGURES:
                deviation = row[f"{name}_deviation"]
                error = "" if deviation is None else f" ± {deviation:.1g}"
                shown.append("-" if row[name] is None else f"{row[name]:.3g}{error}")
            rows.append([*shown[:3], str(row["runs"]), *shown[3:]])
        title = f"CURATOR ONLY: computed from the {found.records:,} original records; never publish it"
        show_table(header, rows, title=title, right=range(1, len(header)))
        print(
            "Mean ± standard deviation over the runs. Information loss in %, range error and linked as shares."
        )
    for setting, reason in found.refused.items():
        warn(f"{setting.words}: {reason}")
    if out is not None and not quiet:
        print(f"Wrote {out / 'compare.html'} and {out / 'compare.csv'}; for your eyes only.")


@dpmicro.command(short_help="Tell the noise of a release before making it.")
@click.argument("table", type=PATH, required=False)
@click.option(
    "--rows", type=click.IntRange(min=1), help="Number of records, instead of counting those of TABLE."
)
@_what_to_do
@_file_options
@_json
def plan(
    table: Path | None,
    rows: int | None,
    spec: Path | None,
    method: str | None,
    epsilon: str | None,
    k: int | None,
    bounds: tuple[str, ...],
    other_columns: str | None,
    as_json: bool,
    **how: Any,
) -> None:
    """Tell how much noise a method will add, from public facts only: bounds, budget and the number of records.

    \b
      dpmicro plan --rows 100000 --method IR_DP --epsilon 1 --bounds age=0:120
      dpmicro plan people.csv --spec people.toml

    Of TABLE only the number of records is used.
    """
    chosen = _the_spec(spec, method, epsilon, k, bounds, other_columns, _options(**how))
    if (table is None) == (rows is None):
        raise InputError("give either the TABLE, to count its records, or --rows N")
    if rows is None:
        assert table is not None
        rows = open_file(table, chosen.file_options).count()
    made = make_plan(chosen.schema, chosen.method, rows)
    if as_json:
        print(json.dumps(made.to_dict(), indent=2, ensure_ascii=False))
    else:
        _print_plan(made)


def _print_plan(made: Plan) -> None:
    public = any(attribute.clusters is not None for attribute in made.attributes)
    header = ["column", "share of epsilon", "noise scale of a sum"]
    header += ["cluster size", "noise scale of a mean", "expected noise SSE"] if public else []
    header += ["worst-case SSE", "worst-case RMS error"]
    rows = []
    for attribute in made.attributes:
        row = [attribute.name, str(attribute.epsilon or "-"), f"{attribute.noise_scale:.4g}"]
        if public:
            size = attribute.cluster_size
            row += [
                "by data" if size is None else f"{size:,}",
                "-" if size is None else f"{attribute.noise_scale_of_mean(size):.4g}",
                "-" if attribute.noise_sse is None else f"{attribute.noise_sse:.4g}",
            ]
        worst = attribute.worst_case_sse
        row += ["unknown"] * 2 if worst is None else [f"{worst:.4g}", f"{(worst / made.records) ** 0.5:.4g}"]
        rows.append(row)
    show_table(header, rows, title=f"{made.method}, {made.records:,} records", right=range(1, len(header)))
    print(
        "Noise is Laplace, in the column's units; the mean of c records gets the scale of a sum divided by c."
    )
    if public:
        print("Expected noise SSE is exact: the sizes of the clusters are public.")
    else:
        print(
            "The sizes of the clusters follow the data, so only a bound on the error can be told in advance."
        )
    print(
        "Worst-case errors bound the expected error of clustering and noise together, whatever the data are."
    )


@dpmicro.command(short_help="Redo the papers' tables and figures.")
@click.argument("figures", nargs=-1, required=True, metavar="FIGURE...")
@click.option(
    "--data",
    type=PATH,
    required=True,
    envvar="DPMICRO_DATA",
    metavar="DIR",
    help="Folder of the papers' tables (or the environment variable DPMICRO_DATA).",
)
@click.option("--out", type=PATH, required=True, metavar="DIR", help="Directory to write into.")
@click.option("--quick", is_flag=True, help="Coarse grids and few repetitions: all figures in two minutes.")
@_quiet
def reproduce(figures: tuple[str, ...], data: Path, out: Path, quick: bool, quiet: bool) -> None:
    """Redo figures of the papers: NAME.html, NAME.csv and what the paper states beside what came out.

    \b
      dpmicro reproduce cm-fig8 --data tables --out redone
      dpmicro reproduce all --data tables --out redone --quick

    FIGURE is cm-table1, cm-fig7 to cm-fig14, opt-fig3 to opt-fig5, ir-fig1, pcl-fig4, pcl-fig6 to pcl-fig8,
    sp-fig9 to sp-fig11, sp-fig14, sp-fig16, or all. These are experiments with known seeds: nothing in them is private.
    Files of an earlier run are replaced.
    """
    from .reproduce import FIGURES, find_figure
    from .reproduce import reproduce as redo

    names = list(FIGURES) if "all" in figures else [find_figure(name) for name in figures]
    if not data.is_dir():
        raise InputError(f"{data} is no folder; --data must name the folder of the papers' tables")
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; choose another directory")
    agreed = stated = 0
    with progress_of(names, quiet=quiet) as bars:
        for name in dict.fromkeys(names):
            begun = time.monotonic()
            figure = redo(name, data, quick=quick, progress=partial(bars(name), "compute"))
            figure.save(out)
            agreed += sum(item.agrees for item in figure.stated)
            stated += len(figure.stated)
            if not quiet:
                rows = [
                    [item.what, item.paper, item.ours, "" if item.agrees else "differs"]
                    for item in figure.stated
                ]
                title = f"{figure.title} ({time.monotonic() - begun:.0f} s)"
                show_table(["the text says", "paper", "here", ""], rows, title=title)
    if not quiet:
        print(f"{agreed} of {stated} stated values agree. Wrote {out}.")


@dpmicro.command(short_help="List the methods, what they guarantee and what they need.")
@_json
def methods(as_json: bool) -> None:
    """List the methods, what they guarantee and what they need; parameters in brackets are optional."""
    entries = catalogue()
    if as_json:
        described = [
            {"name": name, "guarantee": entry.guarantee, "needs": entry.needs, "summary": entry.summary}
            for name, entry in entries.items()
        ]
        print(json.dumps(described, indent=2, ensure_ascii=False))
        return
    rows = [[name, entry.guarantee, entry.needs, entry.summary] for name, entry in entries.items()]
    show_table(["method", "guarantee", "needs", "what it does"], rows)


def _open_ledger(path: Path | None, data_set: str | None) -> Ledger | None:
    if path is None:
        if data_set is not None:
            raise InputError("--data-set names a data set of a ledger; give the ledger with --ledger FILE")
        return None
    return Ledger(path, data_set)


@dpmicro.command(short_help="Try to contradict a method's claim; for the curator only.")
@click.argument("method", metavar="METHOD", shell_complete=_complete_method)
@click.option("--spec", type=PATH, required=True, metavar="SPEC.toml", help="The columns and their bounds.")
@click.option("--table", type=PATH, required=True, help="The table to start from.")
@click.option("--epsilon", metavar="E", help="Instead of the spec's.")
@click.option("--k", type=int, help="Instead of the spec's.")
@click.option(
    "--runs",
    type=click.IntRange(min=1000),
    default=200_000,
    show_default=True,
    help="Runs on each neighbour.",
)
@click.option(
    "--confidence", type=float, default=0.95, show_default=True, help="Of the lower bounds (Clopper-Pearson)."
)
@_quiet
@_json
def audit(
    method: str,
    spec: Path,
    table: Path,
    epsilon: str | None,
    k: int | None,
    runs: int,
    confidence: float,
    quiet: bool,
    as_json: bool,
) -> int:
    """Run METHOD many times on two neighbours of TABLE and bound epsilon from below.

    The bound is given twice: with the partition (SafePub: the generalisation) held fixed, and computed anew for each
    neighbour. A bound above the certificate's epsilon contradicts its claim, and the exit code is 1. A bound below it
    proves nothing. All methods with a claim of differential privacy can be audited.
    """
    from .audit import audit as run_audit

    read = Spec.from_toml(spec)
    given = {name: value for name, value in (("epsilon", epsilon), ("k", k)) if value is not None}
    if read.method.name == method and not given:
        chosen = read.method
    else:
        chosen = make_method(method, **(spec_parameters(read.method, method) | given))
    schema = read.schema_for(open_file(table, read.file_options).names)
    with progress_of([str(table)], quiet=quiet or as_json) as bars:
        bar = bars(str(table))
        result = run_audit(
            table,
            schema,
            chosen,
            runs=runs,
            confidence=confidence,
            file_options=read.file_options,
            progress=lambda share: bar("audit", share),
        )
    if as_json:
        print(result.to_json())
    elif not quiet:
        rows = [
            [bound.held, f"{bound.epsilon:.3f}", "none" if bound.claim is None else f"{bound.claim:g}"]
            for bound in (result.given_partition, result.recomputed)
        ]
        show_table(["neighbours", "epsilon is at least", "claim"], rows, right=(1, 2))
        print(result.verdict)
        print("For the curator's eyes only: these figures depend on the table.")
    return FAILED if result.contradicted else 0


@dpmicro.group(no_args_is_help=False, short_help="Keep account of the privacy budget of a data set.")
def ledger() -> None:
    """Keep account of what releases of a data set have spent, over processes and years.

    \b
      dpmicro ledger create budget.sqlite census-2026 --epsilon 2
      dpmicro anonymize census.csv --spec census.toml --out release --ledger budget.sqlite
      dpmicro ledger status budget.sqlite

    Costs add up. What is reserved stays spent, even if the process is killed; k-anonymity costs nothing.
    """


@ledger.command(short_help="Open an account for a data set.")
@click.argument("file", type=PATH)
@click.argument("data_set")
@click.option("--epsilon", required=True, metavar="E", help="In total, for all releases together.")
@click.option("--delta", default="0", metavar="D", show_default=True, help="In total.")
@click.option(
    "--neighbours",
    type=click.Choice(["replace-one", "add-remove-one"]),
    default="replace-one",
    show_default=True,
    help="What the total is about; SafePub costs twice as much in the first.",
)
def create(file: Path, data_set: str, epsilon: str, delta: str, neighbours: Any) -> None:
    """Open an account for DATA_SET in FILE, which may hold others already."""
    Ledger.create(file, data_set, epsilon, delta, neighbours=neighbours)
    print(f"{file}: {data_set} has epsilon = {epsilon}" + (f", delta = {delta}" if delta != "0" else ""))


@ledger.command(short_help="Total, spent and left.")
@click.argument("file", type=PATH)
@_json
def status(file: Path, as_json: bool) -> None:
    """Show total, spent and left of every data set in FILE."""
    states = [Ledger(file, name).status() for name in Ledger.names(file)]
    if as_json:
        described = [
            {
                "data_set": state.data_set,
                "neighbours": state.neighbours,
                **{
                    name: str(getattr(state, name))
                    for name in (
                        "epsilon",
                        "epsilon_spent",
                        "epsilon_left",
                        "delta",
                        "delta_spent",
                        "delta_left",
                    )
                },
            }
            for state in states
        ]
        print(json.dumps({"data_sets": described}, indent=2))
        return
    rows = [
        [
            state.data_set,
            *(f"{float(value):g}" for value in (state.epsilon, state.epsilon_spent, state.epsilon_left)),
            *(f"{float(value):g}" for value in (state.delta, state.delta_spent, state.delta_left)),
        ]
        for state in states
    ]
    names = ["data set", "epsilon", "spent", "left", "delta", "spent", "left"]
    show_table(names, rows, right=(1, 2, 3, 4, 5, 6))


@ledger.command(short_help="Every entry of a data set.")
@click.argument("file", type=PATH)
@_data_set
@_json
def history(file: Path, data_set: str | None, as_json: bool) -> None:
    """Show every entry of a data set in FILE, the oldest first."""
    entries = Ledger(file, data_set).history()
    if as_json:
        described = [vars(e) | {"epsilon": str(e.epsilon), "delta": str(e.delta)} for e in entries]
        print(json.dumps({"entries": described}, indent=2, ensure_ascii=False))
        return
    rows = [
        [
            str(e.number),
            e.time,
            f"{float(e.epsilon):g}",
            f"{float(e.delta):g}",
            e.guarantee,
            e.description,
            e.state,
        ]
        for e in entries
    ]
    names = ["entry", "time", "epsilon", "delta", "guarantee", "what", "state"]
    show_table(names, rows, right=(0, 2, 3))
