"""The papers redone: the parts that a figure is made of, and the figures that take seconds."""

from __future__ import annotations

import csv
import math
import re
from fractions import Fraction

import numpy as np
import pytest

from dpmicro_native.cli import BAD_INPUT, main
from dpmicro_native.errors import InputError
from dpmicro_native.evaluate import rank_matched_sse
from dpmicro_native.hierarchy import Hierarchy
from dpmicro_native.partition import mdav
from dpmicro_native.reproduce import FIGURES, Experiment, reproduce
from dpmicro_native.reproduce.cm import RankMatched, Task, losses, overtakes
from dpmicro_native.reproduce.figure import Figure, Line, Panel, Stated
from dpmicro_native.reproduce.masking import loss
from dpmicro_native.reproduce.pcl import gaussian
from dpmicro_native.reproduce.sp import information
from dpmicro_native.reproduce.tables import Coded, Projection, census, us_census
from dpmicro_native.reproduce.trees import accuracy, grow

ASKED = {
    "cm": ("table1", "fig7", "fig8", "fig9", "fig10", "fig11", "fig12", "fig13", "fig14"),
    "opt": ("fig3", "fig4", "fig5"),
    "ir": ("fig1",),
    "pcl": ("fig4", "fig6", "fig7", "fig8"),
    "sp": ("fig9", "fig10", "fig11", "fig14", "fig16"),
}


@pytest.fixture(scope="module")
def random_table():
    X = np.random.default_rng(0).random((200, 3)) * [1, 10, 100]
    return Projection("random", ("a", "b", "c"), X)


def ours(figure, words):
    """The comparison whose description holds the words."""
    found = [item for item in figure.stated if words in item.what]
    assert len(found) == 1, words
    return found[0]


# What figures are made of


def test_every_figure_asked_for_is_there():
    assert set(FIGURES) == {f"{paper}-{name}" for paper, names in ASKED.items() for name in names}


def test_ranks_are_matched_as_in_the_evaluation(random_table):
    U, width = random_table.U, random_table.width
    sampled = np.random.default_rng(1).random(U.shape)
    sampled[:5] = 0.0
    sampled[5:9] = 1.0
    for labels in (
        np.repeat(mdav(U, 30)[:, None], 3, axis=1),
        np.stack([mdav(U[:, [j]], 30) for j in range(3)], axis=1),
    ):
        expected = rank_matched_sse(U * width, sampled * width, labels)
        assert RankMatched(U, labels, width)(sampled) == pytest.approx(expected, rel=1e-9)


def test_a_loss_repeats_and_falls_with_epsilon(random_table):
    task = Task(random_table, 40, ("CM-1", "CM-3", "CM-21", "B1"), (Fraction(1), Fraction(8)), 5)
    first, again = losses(task), losses(task)
    assert first == again
    for name in ("CM-1", "CM-3", "CM-21"):
        assert first[name, Fraction(8)] < first[name, Fraction(1)]
    assert first["B1", Fraction(1)] == first["B1", Fraction(8)]


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ([5, 4, 2, 1], 25),
        ([5, 5, 5, 5], math.inf),
        ([1, 1, 1, 1], 10),
        ([5, 2.9, 5, 1], 35),  # one touch before the curves part does not count
        ([5, 1, 3.1, 1], 15),  # nor one after
    ],
)
def test_where_a_curve_overtakes(other, expected):
    assert overtakes([10, 20, 30, 40], [3, 3, 3, 3], other) == pytest.approx(expected, abs=1.1)


def test_the_loss_in_closed_form_is_the_mean_of_draws(random_table):
    found = loss(random_table, "MDAV_DP", seed=1, draws=200, epsilon=6, k=20)
    assert found.noise > 0.1 * found.clustering  # or nothing is tested
    assert found.drawn == pytest.approx(found.expected, rel=0.03)


def test_correlated_points():
    X = gaussian(20_000, 3, 0.5)
    np.testing.assert_allclose(np.cov(X.T), np.full((3, 3), 0.5) + 0.5 * np.eye(3), atol=0.03)


# Decision trees


def every_combination(*sizes):
    return (
        np.stack(np.meshgrid(*map(np.arange, sizes), indexing="ij"), axis=-1)
        .reshape(-1, len(sizes))
        .astype(np.int32)
    )


def counts_of(classes, times=10):
    counts = np.zeros((len(classes), max(classes) + 1))
    counts[np.arange(len(classes)), classes] = times
    return counts


def test_a_tree_learns_a_rule():
    codes = every_combination(3, 2, 4)
    classes = np.where(codes[:, 0] == 1, codes[:, 1], 2 * (codes[:, 2] > 1))
    tree = grow(codes, counts_of(classes))
    np.testing.assert_array_equal(tree.predict(codes), classes)


def test_a_tree_prunes_noise():
    generator = np.random.default_rng(0)
    codes = every_combination(5, 5, 5)
    tree = grow(codes, generator.multinomial(4, [0.7, 0.3], len(codes)).astype(float))
    assert not tree.branches
    assert tree.prediction == 0


def test_a_tree_asks_for_what_tells_most_per_branch():
    """A key that separates everything has a gain ratio below that of the attribute the class follows."""
    codes = np.stack([np.arange(40), np.arange(40) % 2], axis=1).astype(np.int32)
    tree = grow(codes, counts_of(codes[:, 1], times=3))
    assert tree.attribute == 1


def test_a_tree_meets_a_value_it_has_not_seen():
    codes = every_combination(2, 2)
    tree = grow(codes, counts_of(codes[:, 0]) + np.array([[0, 0], [0, 0], [0, 5], [0, 0]]))
    assert tree.predict(np.array([[7, 0]], dtype=np.int32))[0] == 1  # the more frequent class


def test_cross_validation_does_not_learn_from_the_fold_it_asks():
    generator = np.random.default_rng(0)
    n = 2000
    key = np.arange(n, dtype=np.int32)[:, None] // 2  # every key twice, with a class of its own
    target = np.repeat(generator.integers(0, 2, n // 2), 2).astype(np.int32)
    apart, together = np.arange(n) // 2 % 10, np.arange(n) % 2
    everybody = np.arange(n)
    assert accuracy(key, target, everybody, apart) == pytest.approx(0.5, abs=0.06)
    rule = (key % 2).astype(np.int32)
    assert accuracy(rule, rule[:, 0], everybody, together) == 1.0


# Information loss


@pytest.fixture(scope="module")
def coded():
    tree = Hierarchy.from_dict({"x": ["a", "b"], "y": ["c", "d"]})
    codes = np.random.default_rng(0).integers(0, 4, (300, 2)).astype(np.int32)
    return Coded(("p", "q"), codes, (tree, tree))


def test_information_loss_ends_at_nothing_and_everything(coded):
    everybody, nobody = np.arange(300), np.arange(0)
    for rows, levels, expected in ((everybody, (0, 0), 0.0), (nobody, (0, 0), 1.0), (everybody, (2, 2), 1.0)):
        lost = information(coded, rows, levels)
        assert list(vars(lost).values()) == pytest.approx([expected] * 4, abs=1e-12), (rows.shape, levels)


def test_information_loss_of_half_the_records(coded):
    lost = information(coded, np.arange(150), (0, 0))
    assert lost.granularity == 0.5
    assert lost.entropy == pytest.approx(0.5, abs=0.02)
    assert 0.4 < lost.discernibility < 0.6
    assert lost.granularity < information(coded, np.arange(150), (1, 0)).granularity


# Figures


def test_plain_laplace_noise(data_folder):
    """CM, Table 1: all 36 values."""
    figure = reproduce("cm-table1", data_folder, quick=True)
    assert all(item.agrees for item in figure.stated)
    for panel in figure.panels:
        paper, closed, drawn = panel.lines
        np.testing.assert_allclose(closed.y, paper.y, atol=0.05)
        np.testing.assert_allclose(drawn.y, closed.y, atol=0.2)


def test_optimal_microaggregation_of_census(data_folder):
    """Expected SSE in closed form, as computed by an independent program; and the paper's order of the methods."""
    table = census(data_folder)
    for name, epsilon, expected in (
        ("OPT_DP_1", 1, 4.983e10),
        ("OPT_DP_2", 1, 3.560e10),
        ("OPT_DP_1", 2, 2.983e10),
        ("OPT_DP_2", 2, 2.041e10),
    ):
        assert loss(table, name, seed=1, epsilon=epsilon).expected == pytest.approx(expected, rel=1e-3)
    assert loss(table, "MDAV_IR_DP_1", seed=1, epsilon=1, k=50).clustering == pytest.approx(
        1.884e10, rel=1e-3
    )
    figure = reproduce("opt-fig3", data_folder, quick=True)
    assert ours(figure, "standalone MDAV from k").agrees
    assert ours(figure, "OPT_DP is better").agrees


def test_data_set_size(data_folder):
    figure = reproduce("opt-fig4", data_folder, quick=True)
    assert ours(figure, "the error decreases").agrees
    assert ours(figure, "the noise's part").ours == "256"


def test_safepub_parameters(data_folder):
    figure = reproduce("sp-fig9", data_folder, quick=True)
    assert ours(figure, "δ = 10⁻⁶: k").ours == "74"  # the paper's 75 is one too high
    assert ours(figure, "Inequation (6)").agrees
    assert all(item.agrees for item in reproduce("sp-fig10", data_folder, quick=True).stated)


def test_records_kept(data_folder):
    figure = reproduce("sp-fig11", data_folder, quick=True)
    assert all(item.agrees for item in figure.stated)
    (panel,) = figure.panels
    sampled = panel.lines[-1].y
    for line in panel.lines[:-1]:
        assert all(kept <= share + 1 for kept, share in zip(line.y, sampled, strict=True))


def test_us_census_is_complete(data_folder):
    table = us_census(data_folder)
    assert table.codes.shape == (30162, 9)


# Files and command


@pytest.fixture
def figure():
    panel = Panel(
        "a <b>", "k", "SSE", (Line("one", (1, 2), (3.0, 4.5)), Line("two", (1,), (2.0,), dotted=True))
    )
    stated = (Stated("this & that", "5.5", "1", "2", False, "because"),)
    return Figure("x-fig1", "A figure", [panel], stated, ("A note.",))


def test_a_figure_is_written(figure, tmp_path):
    written = figure.save(tmp_path / "out")
    assert [path.name for path in written] == ["x-fig1.csv", "x-fig1.stated.csv", "x-fig1.html"]
    with written[0].open(newline="") as file:
        assert list(csv.reader(file)) == [
            ["panel", "line", "x", "y"],
            ["a <b>", "one", "1", "3.0"],
            ["a <b>", "one", "2", "4.5"],
            ["a <b>", "two", "1", "2.0"],
        ]
    with written[1].open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["paper"] == "1"
    assert row["ours"] == "2"
    assert row["agrees"] == "no"
    page = written[2].read_text(encoding="utf-8")
    assert "this &amp; that" in page
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", page)  # opens offline
    figure.save(tmp_path / "out")  # again: replaced
    assert len(list((tmp_path / "out").iterdir())) == 3


def test_tasks_come_back_in_order_and_errors_come_through(tmp_path):
    experiment = Experiment(tmp_path)
    assert experiment.run(lambda x: x * x, range(20)) == [x * x for x in range(20)]

    def fail(x):
        if x == 3:
            raise InputError("three")
        return x

    with pytest.raises(InputError, match="three"):
        experiment.run(fail, range(20))


def test_the_command_redoes_a_figure(data_folder, tmp_path, capsys):
    out = tmp_path / "redone"
    assert main(["reproduce", "sp-fig10", "--data", str(data_folder), "--out", str(out), "--quick"]) == 0
    assert {path.name for path in out.iterdir()} == {"sp-fig10.csv", "sp-fig10.stated.csv", "sp-fig10.html"}
    assert "stated values agree" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("figure_name", "folder", "says"),
    [
        ("cm-fig77", ".", "did you mean cm-fig7?"),
        ("nothing", ".", "cm-table1"),
        ("cm-table1", "missing", "--data"),
        ("cm-table1", ".", "census.csv cannot be read"),
        ("sp-fig11", ".", "data.csv cannot be read"),
    ],
)
def test_the_command_refuses(figure_name, folder, says, tmp_path, capsys):
    out = tmp_path / "out"
    code = main(["reproduce", figure_name, "--data", str(tmp_path / folder), "--out", str(out)])
    assert code == BAD_INPUT
    assert says in capsys.readouterr().err
    assert not out.exists()
