"""Files that are almost right, or not at all: read or refused, never a crash; targets as in tests/fuzz/run.py."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.targets import SEEDS, TARGETS

# Of each kind of file; half of them seeds with changes, half any bytes.
EXAMPLES = int(os.environ.get("DPMICRO_EXAMPLES", "300"))

METHOD = (
    b"[columns]\nage = {type = 'numeric', lower = 0, upper = 1}\n[output]\nother_columns = 'drop'\n[method]\n"
)
IR = b"[output]\nother_columns = 'drop'\n[method]\nname = 'IR'\nk = 1"
SAFEPUB = b"[output]\nother_columns = 'drop'\n[method]\nname = 'SAFEPUB'\nepsilon = 1\ndelta = 0.1"

# Each of these once ended in something other than a DpmicroError, or did not end.
CRASHES = [
    ("spec", b"x = 1" + b"0" * 5000),
    ("spec", b"x = " + b"[" * 5000),
    ("spec", METHOD + b"name = 'LAPLACE'\nepsilon = '1e999999999'"),
    ("spec", METHOD + b"name = 'MDAV_DP'\nepsilon = 1\ngroups = 7"),
    ("spec", METHOD + b"name = 'MDAV_DP'\nepsilon = 1\ngroups = [7]"),
    ("spec", b"[columns]\na = {type = 'categorical', hierarchy = 'none.csv'}\n[method]\nname = 'SAFEPUB'"),
    ("spec", METHOD + b"name = 'CM-1'\nepsilon = 1\npartition = 'MDAV'"),
    ("spec", METHOD + b"name = 'PCL'\nk = 1\nmax_iter = 1" + b"0" * 30),
    ("spec", METHOD + b"name = 'SAFEPUB'\nepsilon = 1\ndelta = 0.1\nsteps = 'x'"),
    ("spec", METHOD + b"name = 'SAFEPUB'\nepsilon = 1\ndelta = 0.1\nsteps = 2.5"),
    ("spec", METHOD + b"name = 'VMDAV'\nk = 1\ngamma = 'x'"),
    ("spec", METHOD + b"name = 'MDAV_DP'\nepsilon = 1\nsplit = 7"),
    ("spec", b"individual = {column = []}\n" + METHOD + b"name = 'IR'\nk = 1"),
    ("spec", b"columns.age = {type = 'numeric', lower = 0, upper = 1" + b"0" * 400 + b"}\n" + IR),
    ("spec", b"columns.age = {type = 'categorical', hierarchy = 3}\n" + SAFEPUB),
    ("hierarchy", b"\xff\xfe"),
    ("hierarchy", b'"' + b"x" * 200_000),
]
# And these looked as if they might.
SUSPECTS = [
    ("spec", b"[columns]\na = {type = 'numeric', lower = 0, upper = 1" + b"0" * 400 + b"}"),
    ("spec", b"[columns]\na = {type = []}"),
    ("spec", b"[columns]\na = {type = 'drop'}\n[individual]\ncolumn = []"),
    ("spec", b"[columns]\na = {type = 'numeric', lower = 0, upper = 1, missing = []}"),
    ("spec", METHOD + b"name = []"),
    (
        "spec",
        b"[columns]\na = {type = 'categorical', hierarchy = 3}\n[method]\nname = 'LAPLACE'\nepsilon = 1",
    ),
    ("hierarchy", b"a\0b;c\n"),
    ("hierarchy", b""),
    ("table", b"\xff\xfe,\n"),
    ("table", b"a,a\n1,2\n"),
    ("table", b'"'),
    ("table", b"\n\n"),
]


@pytest.mark.parametrize(("target", "content"), CRASHES + SUSPECTS)
def test_what_crashed_or_might(target: str, content: bytes) -> None:
    TARGETS[target](content)


@pytest.mark.parametrize("target", TARGETS)
@settings(max_examples=EXAMPLES // 2, deadline=None, derandomize=False)
@given(data=st.data())
def test_seeds_with_changes(target: str, data: st.DataObject) -> None:
    content = bytearray(SEEDS[target])
    for _ in range(data.draw(st.integers(1, 6))):
        start = data.draw(st.integers(0, len(content)))
        length = data.draw(st.integers(0, 12))
        content[start : start + length] = data.draw(
            st.binary(max_size=6) | st.sampled_from([b'"', b"[", b"{", b"=", b"\n"])
        )
    TARGETS[target](bytes(content))


@pytest.mark.parametrize("target", TARGETS)
@settings(max_examples=EXAMPLES // 2, deadline=None, derandomize=False)
@given(content=st.binary(max_size=200))
def test_any_bytes(target: str, content: bytes) -> None:
    TARGETS[target](content)
