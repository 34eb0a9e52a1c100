from __future__ import annotations

import datetime
import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpmicro_native import Drop, InputError, Keep, Numeric, Schema, anonymize, method
from dpmicro_native.files import FileFormat, FileOptions, open_file, write_file

CASES = ["data.csv", "data.tsv", "data.csv.gz", "data.csv.zst", "data.parquet", "data.arrow", "data.feather"]
CATEGORIES = 100_000


def awkward_table(rows: int = 100_001) -> pa.Table:
    """Numbers beside text with delimiters, quotes, line ends and nulls, dates, and 10^5 categories."""
    texts = [
        "plain",
        'say "hi"',
        "a,b;c|d\te",
        "two\nlines",
        "Windows\r\nlines",
        "NA",
        "007",
        "",
        "zażółć 🦉",
        " x ",
    ]
    day = datetime.date(2020, 2, 29)
    return pa.table(
        {
            "größe": pa.array(np.arange(rows) % 97, pa.int64()),
            "pay": pa.array(np.arange(rows) / 7),
            "text": pa.array([texts[i % len(texts)] for i in range(rows)]),
            "day": pa.array(
                [day + datetime.timedelta(days=i % 1000) if i % 13 else None for i in range(rows)]
            ),
            "flag": pa.array([None if i % 11 == 0 else i % 2 == 0 for i in range(rows)]),
            "category": pa.array([f"category {i % CATEGORIES}" for i in range(rows)]),
            "maybe": pa.array([None if i % 3 == 0 else texts[i % 7] for i in range(rows)]),
        }
    )


def as_text(table: pa.Table) -> dict[str, list[str]]:
    """Every cell as CSV can hold it: missing is empty."""
    return {
        name: [text or "" for text in column.cast(pa.string()).to_pylist()]
        for name, column in zip(table.column_names, table.columns, strict=True)
    }


@pytest.mark.parametrize("name", CASES)
def test_what_is_written_is_read_again(tmp_path: Path, name: str) -> None:
    table, path = awkward_table(), tmp_path / name
    options = FileOptions(delimiter="\t") if name == "data.tsv" else FileOptions()
    wanted = FileFormat.of(path)
    if wanted.kind == "csv":
        wanted = FileFormat(wanted.kind, wanted.suffix, wanted.compression, options)
    write_file(table, path, wanted, {"note": "public"})
    file = open_file(path)
    assert file.names == tuple(table.column_names)
    assert file.count() == table.num_rows
    text = [name for name in table.column_names if name not in ("größe", "pay")]
    again = file.read(as_text=text)
    if wanted.kind == "csv":
        assert file.format.options == FileOptions(delimiter=options.delimiter or ",")
        assert as_text(again.select(text)) == as_text(table.select(text))
        assert again.select(["größe", "pay"]).equals(table.select(["größe", "pay"]))
    else:
        assert again.equals(table)
        assert again.schema.metadata == {b"note": b"public"}
    # Once more with what was found out of the file: the same bytes.
    write_file(again, tmp_path / f"again-{name}", file.format, {"note": "public"})
    assert (tmp_path / f"again-{name}").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("name", CASES)
def test_a_release_keeps_the_format_the_order_of_columns_and_the_kept_columns(
    tmp_path: Path, name: str
) -> None:
    table, path = awkward_table(2000), tmp_path / name
    write_file(table, path, FileFormat.of(path), {"secret": "of the input"})
    kept = ["text", "day", "category", "maybe"]
    schema = Schema(
        {"pay": Numeric(0, 300), "größe": Numeric(0, 100), "flag": Drop()} | {name: Keep() for name in kept}
    )
    release = anonymize(path, schema, method("IR", k=7), order="aligned")
    release.save(tmp_path / "out")
    data = tmp_path / "out" / "public" / name
    released = open_file(data)
    assert released.names == ("größe", "pay", *kept)
    again = released.read(as_text=kept)
    assert again.schema.field("größe").type == pa.int64()
    original = open_file(path).read(as_text=kept)
    assert again.select(kept).equals(original.select(kept))
    if released.format.kind != "csv":
        assert again.schema.metadata == {
            b"dpmicro_native.certificate": release.certificate.to_json().encode()
        }
    assert open_file(data).format == open_file(path).format


def test_kept_cells_of_a_csv_come_out_letter_by_letter(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    rows = ["age,zip,when,b,x", *(f"{20 + i},{i:05d},2020-01-01 0{i}:00,TRUE,{i}.50" for i in range(6))]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    schema = Schema({"age": Numeric(0, 120)} | {name: Keep() for name in ("zip", "when", "b", "x")})
    anonymize(path, schema, method("IR", k=1), order="aligned").save(tmp_path / "out")
    assert (tmp_path / "out" / "public" / "data.csv").read_text(encoding="utf-8") == path.read_text(
        encoding="utf-8"
    )


def test_windows_files(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_bytes("\ufeffALTER;Einkommen;Straße\r\n30;1,5;Königsallee\r\n40;2,5;\r\n".encode())
    file = open_file(path, FileOptions(decimal=","))
    assert file.names == ("ALTER", "Einkommen", "Straße")
    table = file.read(as_text=["Straße"])
    assert table.to_pydict() == {"ALTER": [30, 40], "Einkommen": [1.5, 2.5], "Straße": ["Königsallee", ""]}
    write_file(table, tmp_path / "out.csv", file.format, {})
    assert (tmp_path / "out.csv").read_bytes() == path.read_bytes().removeprefix(b"\xef\xbb\xbf")


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "cp1252"])
def test_encodings(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "people.csv"
    path.write_bytes("größe|stadt\n1|Köln\n2|Århus\n".encode(encoding))
    file = open_file(path, FileOptions(encoding=encoding))
    assert file.format.options.delimiter == "|"
    table = file.read()
    assert table.to_pydict() == {"größe": [1, 2], "stadt": ["Köln", "Århus"]}
    write_file(table, tmp_path / "out.csv", file.format, {})
    assert (tmp_path / "out.csv").read_bytes() == path.read_bytes()


def test_a_file_without_header_and_another_quote(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("1,'a,b'\n2,'it''s'\n", encoding="utf-8")
    file = open_file(path, FileOptions(header=False, quote="'"))
    table = file.read()
    assert table.to_pydict() == {"f0": [1, 2], "f1": ["a,b", "it's"]}
    write_file(table, tmp_path / "out.csv", file.format, {})
    assert (tmp_path / "out.csv").read_text(encoding="utf-8") == path.read_text(encoding="utf-8")


def test_the_stream_format_of_arrow(tmp_path: Path) -> None:
    table, path = pa.table({"x": [1, 2, 3], "y": ["a", None, "c"]}), tmp_path / "t.arrow"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    file = open_file(path)
    assert file.read(skip=["x"]).to_pydict() == {"y": ["a", None, "c"]}
    write_file(table, tmp_path / "again.arrow", file.format, {})
    assert open_file(tmp_path / "again.arrow").format.stream


def test_parquet_keeps_its_codec(tmp_path: Path) -> None:
    for codec in ("none", "snappy", "zstd", "gzip"):
        path = tmp_path / f"{codec}.parquet"
        pa.parquet.write_table(pa.table({"x": [1, 2]}), path, compression=codec)
        file = open_file(path)
        write_file(file.read(), tmp_path / "out.parquet", file.format, {})
        assert open_file(tmp_path / "out.parquet").format.compression == (None if codec == "none" else codec)


def test_categories_whose_records_are_gone_are_not_written(tmp_path: Path) -> None:
    column = pa.array(["a", "secret", "b"]).dictionary_encode().take(pa.array([0, 2]))
    for name in ("t.parquet", "t.arrow"):
        write_file(pa.table({"c": column}), tmp_path / name, FileFormat.of(tmp_path / name), {})
        assert open_file(tmp_path / name).read().column("c").cast(pa.string()).to_pylist() == ["a", "b"]
        assert b"secret" not in (tmp_path / name).read_bytes()


def test_only_wanted_columns_are_read(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"x,note\n1,caf\xe9\n2,ol\xe9\n")
    assert open_file(path).read(skip=["note"]).to_pydict() == {"x": [1, 2]}
    with pytest.raises(InputError, match="not in the encoding expected"):
        open_file(path).read(as_text=["note"])


def test_progress_of_reading_and_writing(tmp_path: Path) -> None:
    seen: list[float] = []
    path = tmp_path / "t.csv"
    table = pa.table({"x": np.arange(1_000_000)})
    write_file(table, path, FileFormat(), {}, seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    assert len(seen) > 2
    seen.clear()
    open_file(path).read(progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.csv", None, "no such file"),
        ("empty.csv", b"", "is an empty file"),
        ("ragged.csv", b"a,b\n1,2\nsecret\n", "row 3 has 1 fields where 2 are expected"),
        ("t.parquet", b"secret not parquet", "damaged or not what its name says"),
        ("t.arrow", b"secret not arrow", "damaged or not what its name says"),
        ("t.csv.gz", b"secret not gzip", "damaged or not what its name says"),
        ("cut.csv.gz", gzip.compress(b"a,b\n" + b"1,2\n" * 9999)[:-20], "damaged or not what its name says"),
        ("t.xlsx", b"secret", "unknown kind of file"),
        ("t.parquet.gz", b"secret", "unknown kind of file"),
        ("noname", b"secret", "unknown kind of file"),
        ("folder.csv", "folder", "is a folder"),
    ],
)
def test_bad_files_are_refused_without_a_value(tmp_path: Path, name: str, content: Any, message: str) -> None:
    path = tmp_path / name
    if content == "folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=message) as refused:
        open_file(path).read()
    assert "secret" not in str(refused.value)


def test_a_file_without_header_gives_no_value_away(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("Alice,31.4159\nBob,27.1828\n", encoding="utf-8")
    with pytest.raises(InputError, match="header = false") as refused:
        anonymize(path, Schema({"name": Drop(), "age": Numeric(0, 120)}), method("IR", k=1))
    assert "Alice" not in str(refused.value)
    assert "31.4159" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delimiter": ",,"}, "delimiter must be a single ASCII character"),
        ({"quote": ""}, "quote must be a single"),
        ({"decimal": ";", "delimiter": ";"}, "must be different"),
        ({"encoding": "klingon"}, "no encoding 'klingon'"),
        ({"header": "yes"}, "true or false"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        FileOptions(**options)


def test_what_csv_cannot_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="column 'x' holds list"):
        write_file(pa.table({"x": [[1], [2]]}), tmp_path / "t.csv", FileFormat(), {})


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(
        st.tuples(
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6),
            st.one_of(st.none(), st.text(alphabet=',;"\r\n\tx', max_size=4)),
        ),
        min_size=1,
        max_size=8,
    ),
    delimiter=st.sampled_from(",;\t|"),
    newline=st.sampled_from(["\n", "\r\n"]),
)
def test_any_text_survives_csv(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str | None]], delimiter: str, newline: str
) -> None:
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    table = pa.table(
        {"a": [row[0] for row in rows], 'b "quoted"': pa.array([row[1] for row in rows], pa.string())}
    )
    options = FileOptions(delimiter=delimiter)
    write_file(table, path, FileFormat(options=options, newline=newline), {})
    again = open_file(path, options).read(as_text=table.column_names)
    assert as_text(again) == as_text(table)
