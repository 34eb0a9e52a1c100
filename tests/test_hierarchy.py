from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpmicro_native.errors import InputError
from dpmicro_native.hierarchy import MAX_LEAVES, Hierarchy

EDUCATION = [("BSc", "higher", "*"), ("MSc", "higher", "*"), ("none", "no", "*")]


def test_csv_rows_and_dict_agree(tmp_path):
    path = tmp_path / "education.csv"
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(";".join(row) for row in EDUCATION).encode() + b"\r\n\r\n")
    from_rows = Hierarchy.from_rows(EDUCATION)
    assert Hierarchy.from_csv(path) == from_rows
    assert Hierarchy.from_dict({"higher": ["BSc", "MSc"], "no": ["none"]}) == from_rows
    assert Hierarchy.from_dict({"*": {"higher": ["BSc", "MSc"], "no": ["none"]}}) == from_rows
    assert hash(Hierarchy.from_csv(str(path))) == hash(from_rows)
    assert (from_rows.levels, from_rows.leaves, from_rows.numeric) == (3, 3, False)


def test_codes_and_labels():
    hierarchy = Hierarchy.from_rows(EDUCATION)
    codes = hierarchy.codes(np.array(["none", "BSc", "none"]))
    assert codes.dtype == np.int32
    assert codes.tolist() == [2, 0, 2]
    assert [hierarchy.generalise(codes, level).tolist() for level in range(3)] == [
        ["none", "BSc", "none"],
        ["no", "higher", "no"],
        ["*", "*", "*"],
    ]
    assert hierarchy.codes([]).tolist() == []
    numbers = Hierarchy.from_rows([(number, "*") for number in range(5)])
    assert numbers.codes(np.array([4, 0, 4])).tolist() == [4, 0, 4]


@pytest.mark.parametrize("values", [["secret"], ["BSc", None], np.array([17]), [float("nan")]])
def test_a_value_the_hierarchy_misses_names_the_column_and_not_the_value(values):
    with pytest.raises(InputError, match="'degree'") as error:
        Hierarchy.from_rows(EDUCATION).codes(values, column="degree")
    assert "secret" not in str(error.value)
    assert "17" not in str(error.value)


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([], "empty"),
        ([()], "empty"),
        ([("a", "*"), ("b", "c", "*")], "line 2 of the hierarchy has 3 levels"),
        ([("a", "x"), ("b", "y")], "several values"),
        ([("a", "*"), ("a", "*")], "two lines"),
        ([("a", "x", "p", "*"), ("b", "x", "q", "*")], "levels 1 and 2 of the hierarchy are not nested"),
    ],
)
def test_what_is_no_hierarchy_is_refused(rows, reason):
    with pytest.raises(InputError, match=reason):
        Hierarchy.from_rows(rows)


def test_too_many_leaves_are_refused():
    with pytest.raises(InputError, match="more than"):
        Hierarchy.from_rows((str(i), "*") for i in range(MAX_LEAVES + 1))
    with pytest.raises(InputError, match="more than"):
        Hierarchy.intervals(0, 1, widths=[1e-9])
    with pytest.raises(InputError, match="more than"):
        Hierarchy.mask("digits", length=6)
    with pytest.raises(InputError, match="innermost"):
        Hierarchy.from_dict({"a": "b"})


def test_intervals():
    hierarchy = Hierarchy.intervals(0, 100, widths=[5, 10, 20])
    assert (hierarchy.levels, hierarchy.leaves, hierarchy.numeric) == (4, 20, True)
    codes = hierarchy.codes([0, 4.999, 5, 37, 99.9, 100])
    assert codes.tolist() == [0, 0, 1, 7, 19, 19]
    assert hierarchy.generalise(codes, 2).tolist()[3:] == ["[20, 40)", "[80, 100]", "[80, 100]"]
    assert hierarchy.generalise(codes, 3).tolist() == ["*"] * 6
    # The last interval is cut at the bound; levels still nest.
    cut = Hierarchy.intervals(0, 1, widths=[0.3, 0.6])
    assert cut.rows[-1] == ("[0.9, 1]", "[0.6, 1]", "*")


@given(st.integers(-50, 50), st.integers(1, 80), st.integers(1, 7), st.integers(2, 4), st.data())
def test_intervals_hold_their_values(lo, length, width, factor, data):
    hierarchy = Hierarchy.intervals(lo / 10, (lo + length) / 10, widths=[width / 10, width * factor / 10])
    value = data.draw(st.floats(lo / 10, (lo + length) / 10))
    for level in (0, 1):
        label = str(hierarchy.generalise(hierarchy.codes([value]), level)[0])
        low, high = (float(end) for end in label.strip("[)]").split(", "))
        assert low <= value
        assert value < high or (value == high and label.endswith("]"))


@pytest.mark.parametrize("value", [-0.1, 100.1, float("nan"), float("inf")])
def test_values_outside_the_intervals_are_refused(value):
    with pytest.raises(InputError, match="'age'"):
        Hierarchy.intervals(0, 100, widths=[5]).codes([1.0, value], column="age")


@pytest.mark.parametrize(
    "arguments",
    [
        (0, 0, [1]),
        (1, 0, [1]),
        (0, 1, []),
        (0, 1, [0]),
        (0, 9, [2, 3]),
        (0, 9, [3, 3]),
        (0, float("nan"), [1]),
    ],
)
def test_intervals_that_cannot_be_are_refused(arguments):
    with pytest.raises(InputError):
        Hierarchy.intervals(*arguments)
    with pytest.raises(InputError, match="must hold numbers"):
        Hierarchy.intervals(0, 1, [1]).codes(["x"])


def test_masks():
    zip_codes = Hierarchy.mask("digits")
    assert (zip_codes.levels, zip_codes.leaves) == (6, 100_000)
    codes = zip_codes.codes(["81675", "00123"])
    assert codes.tolist() == [81675, 123]
    assert zip_codes.generalise(codes, 2).tolist() == ["816**", "001**"]
    assert Hierarchy.mask("ab", length=2).rows == (
        ("aa", "a*", "**"),
        ("ab", "a*", "**"),
        ("ba", "b*", "**"),
        ("bb", "b*", "**"),
    )
    for alphabet, length in (("aa", 1), ("", 1), ("a*", 1), ("ab", 0)):
        with pytest.raises(InputError, match="mask"):
            Hierarchy.mask(alphabet, length=length)


def test_levels_outside_are_refused():
    with pytest.raises(InputError, match="levels 0 to 2"):
        Hierarchy.from_rows(EDUCATION).generalise([0], 3)
