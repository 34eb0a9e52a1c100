"""The estimate of memory is right within a factor of two, and the limit is kept."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from dpmicro_native import InputError, Numeric, Schema
from dpmicro_native.files import open_file
from dpmicro_native.resources import check_memory, estimated_records, read_size

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="peak memory is read as Linux tells it"
)


def people(n: int, d: int, text: int = 0) -> pa.Table:
    """Make d numbers a record, a town of few, and a text of a given length that no other record has."""
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {f"c{j}": rng.random(n).round(6) for j in range(d)}
    if text:
        columns["town"] = np.array(["Aalen", "Bonn", "Celle", "Dachau"])[rng.integers(0, 4, n)]
        columns["text"] = [f"{i:0{text}d}" for i in range(n)]
    return pa.table(columns)


def write(table: pa.Table, path: Path) -> None:
    if path.suffix == ".parquet":
        pq.write_table(table, path)
        return
    compression = {".gz": "gzip", ".zst": "zstd"}.get(path.suffix)
    with pa.output_stream(path, compression=compression) as stream:
        pyarrow.csv.write_csv(table, stream)


@pytest.mark.parametrize(
    ("name", "how", "n", "d", "text", "suffix"),
    [
        ("IR_DP", {"epsilon": 1}, 1_000_000, 4, 0, ".parquet"),
        ("IR_DP", {"epsilon": 1}, 300_000, 2, 300, ".csv"),
        ("OPT_DP_1", {"epsilon": 1}, 300_000, 2, 0, ".csv"),
        ("OPT_DP_1", {"epsilon": 1}, 300_000, 2, 300, ".parquet"),
        ("LAPLACE", {"epsilon": 1}, 300_000, 8, 0, ".parquet"),
        ("MDAV_DP", {"epsilon": 1, "k": 100}, 100_000, 4, 0, ".parquet"),
        ("CM-2", {"epsilon": 1, "k": 100}, 300_000, 4, 0, ".parquet"),
        ("PCL", {"k": 1000}, 300_000, 4, 0, ".parquet"),
        ("SAFEPUB", {"epsilon": 1, "delta": 1e-6}, 1_000_000, 2, 1, ".csv"),
    ],
)
def test_estimate_is_right_within_a_factor_of_two(
    tmp_path: Path, name: str, how: dict[str, Any], n: int, d: int, text: int, suffix: str
) -> None:
    path = tmp_path / f"people{suffix}"
    write(people(n, d, text), path)
    program = f"""
        import re
        from pathlib import Path
        from dpmicro_native import Categorical, Drop, Hierarchy, InputError, Keep, Numeric, Schema, anonymize, method
        from dpmicro_native.files import open_file
        from dpmicro_native.resources import check_memory
        intervals, towns = None, None
        if {name!r} == "SAFEPUB":
            intervals = Hierarchy.intervals(0, 1, widths=[0.125, 0.5])
            towns = Hierarchy.from_dict({{"A to B": ["Aalen", "Bonn"], "C to D": ["Celle", "Dachau"]}})
        columns = {{f"c{{j}}": Numeric(0, 1, hierarchy=intervals) for j in range({d})}}
        if {text}:
            columns |= {{"town": Categorical(towns) if towns else Keep(public=True)}}
            columns |= {{"text": Drop() if towns else Keep(public=True)}}
        schema, path = Schema(columns), {str(path)!r}
        try:
            check_memory(open_file(Path(path)), schema, 1)
        except InputError as error:
            print(re.search(r"needs about (\\d+) MB", str(error))[1])
        anonymize(path, schema, method({name!r}, **{how!r})).save({str(tmp_path / "out")!r})
        # Not ru_maxrss, which starts at the size of the process that forked this one.
        peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line)
        print(int(peak.split()[1]) >> 10)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    estimate, peak = map(int, done.stdout.split())
    assert peak / 2 <= estimate <= 2 * peak


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".csv.zst", ".parquet"])
def test_records_are_estimated_from_the_file(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"people{suffix}"
    write(people(200_000, 3), path)
    assert 150_000 < estimated_records(open_file(path)) < 260_000


def test_a_table_above_the_limit_is_refused(tmp_path: Path) -> None:
    pyarrow.csv.write_csv(people(5000, 2), tmp_path / "people.csv")
    schema = Schema({"c0": Numeric(0, 1), "c1": Numeric(0, 1)})
    file = open_file(tmp_path / "people.csv")
    check_memory(file, schema, read_size("1GB"))
    with pytest.raises(InputError, match=r"needs about 1\d\d MB of memory, and the limit is 100 MB"):
        check_memory(file, schema, read_size("100MB"))


@pytest.mark.parametrize(
    ("text", "size"),
    [("512", 512), ("4 KiB", 4096), ("1.5g", 3 << 29), ("2TB", 2 << 40), ("8GB", 8 << 30)],
)
def test_sizes(text: str, size: int) -> None:
    assert read_size(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "0", "1e9", "8XB", "eight"])
def test_bad_sizes(text: str) -> None:
    with pytest.raises(InputError, match="no amount of memory"):
        read_size(text)


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet", ".arrow"])
def test_text_is_weighed_by_the_first_records(tmp_path: Path, suffix: str) -> None:
    table = pa.table({"x": [1.0, 2.0] * 500, "text": ['of "ten"\nx', "of two…"] * 500})
    path = tmp_path / f"people{suffix}"
    if suffix == ".arrow":
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table)
    else:
        write(table, path)
    assert open_file(path).bytes_per_record(["text"]) == pytest.approx(4 + 9, abs=0.8)


def test_an_empty_table_weighs_nothing(tmp_path: Path) -> None:
    write(pa.table({"text": pa.array([], pa.string())}), tmp_path / "nobody.parquet")
    assert open_file(tmp_path / "nobody.parquet").bytes_per_record(["text"]) == 0
