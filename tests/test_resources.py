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
from dpmicro_native.resources import check_memory, estimated_memory, estimated_records, read_size

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="peak memory is read as Linux tells it"
)


def people(n: int, d: int) -> pa.Table:
    rng = np.random.default_rng(0)
    return pa.table({f"c{j}": rng.random(n).round(6) for j in range(d)})


@pytest.mark.parametrize(
    ("name", "how", "n", "d"),
    [
        ("IR_DP", {"epsilon": 1}, 1_000_000, 4),
        ("OPT_DP_1", {"epsilon": 1}, 300_000, 2),
        ("LAPLACE", {"epsilon": 1}, 300_000, 8),
        ("MDAV_DP", {"epsilon": 1, "k": 100}, 100_000, 4),
    ],
)
def test_estimate_is_right_within_a_factor_of_two(
    tmp_path: Path, name: str, how: dict[str, Any], n: int, d: int
) -> None:
    pq.write_table(people(n, d), tmp_path / "people.parquet")
    program = f"""
        from pathlib import Path
        from dpmicro_native import Numeric, Schema, anonymize, method
        schema = Schema({{f"c{{j}}": Numeric(0, 1) for j in range({d})}})
        anonymize({str(tmp_path / "people.parquet")!r}, schema, method({name!r}, **{how!r})).save(
            {str(tmp_path / "out")!r}
        )
        # Not ru_maxrss, which starts at the size of the process that forked this one.
        peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line)
        print(int(peak.split()[1]) * 1024)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    peak = int(done.stdout.split()[-1])
    assert peak / 2 <= estimated_memory(n, d) <= 2 * peak, (peak, estimated_memory(n, d))


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".csv.zst", ".parquet"])
def test_records_are_estimated_from_the_file(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"people{suffix}"
    if suffix == ".parquet":
        pq.write_table(people(200_000, 3), path)
    else:
        compression = {".csv.gz": "gzip", ".csv.zst": "zstd"}.get(suffix)
        with pa.output_stream(path, compression=compression) as stream:
            pyarrow.csv.write_csv(people(200_000, 3), stream)
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
