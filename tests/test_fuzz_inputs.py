"""Files that are almost right, or not at all: read or refused, never a crash; targets as in tests/fuzz/fuzz.py."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.targets import SEEDS, TARGETS

EXAMPLES = max(50, int(os.environ.get("DPMICRO_EXAMPLES", "300")) // 10)

METHOD = b"[columns]\na = {type = 'numeric', lower = 0, upper = 1}\n[method]\n"

# Each of these once ended in something other than a DpmicroError, or did not end.
CRASHES = [
    ("spec", b"x = 1" + b"0" * 5000),
    ("spec", b"x = " + b"[" * 5000),
    ("spec", METHOD + b"name = 'LAPLACE'\nepsilon = '1e999999999'"),
    ("spec", METHOD + b"name = 'MDAV_DP'\nepsilon = 1\ngroups = 7"),
    ("spec", METHOD + b"name = 'MDAV_DP'\nepsilon = 1\ngroups = [7]"),
    ("spec", b"[columns]\na = {type = 'categorical', hierarchy = 'none.csv'}\n[method]\nname = 'SAFEPUB'"),
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
@settings(max_examples=EXAMPLES, deadline=None)
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
@settings(max_examples=EXAMPLES, deadline=None)
@given(content=st.binary(max_size=200))
def test_any_bytes(target: str, content: bytes) -> None:
    TARGETS[target](content)
