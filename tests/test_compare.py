"""Methods side by side: the grid, the figures, and that a run can be stopped."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpmicro_native import InputError, Numeric, Schema, anonymize, method
from dpmicro_native import compare as module
from dpmicro_native.cli import main
from dpmicro_native.compare import FIGURES, Comparison, Setting, compare, settings
from dpmicro_native.partition import MDAV
from permissions import is_private

SCHEMA = Schema({"age": Numeric(0, 120), "income": Numeric(0, 1e5)})


def people(n: int = 200) -> np.ndarray:
    generator = np.random.default_rng(0)
    return np.column_stack([generator.integers(18, 90, n), generator.gamma(2, 9000, n).clip(0, 1e5)])


def test_the_grid_has_what_each_method_takes() -> None:
    found = [setting for setting, _ in settings(["MDAV", "OPT_DP_1", "MDAV_DP"], k=[5, 10], epsilon=[1, 2])]
    assert found == [
        Setting("MDAV", 5, None),
        Setting("MDAV", 10, None),
        Setting("OPT_DP_1", None, 1.0),
        Setting("OPT_DP_1", None, 2.0),
        *(Setting("MDAV_DP", k, epsilon) for k in (5, 10) for epsilon in (1.0, 2.0)),
    ]
    assert [made.name for _, made in settings(["MDAV_DP"], epsilon=[1])] == ["MDAV_DP"]  # its own k


def test_doubles_count_once() -> None:
    assert len(list(settings(["MDAV", "MDAV"], k=[5, 5]))) == 1


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"methods": []}, "at least one method"),
        ({"methods": ["MDAW"], "k": [5]}, "did you mean 'MDAV'"),
        ({"methods": ["MDAV"]}, "MDAV needs k"),
        ({"methods": ["OPT_DP_1"]}, "OPT_DP_1 needs epsilon"),
        ({"methods": ["OPT_DP_1"], "epsilon": [0]}, "epsilon must be positive"),
        ({"methods": ["OPT_DP_1"], "epsilon": [1], "repeats": 0}, "repeats"),
        ({"methods": ["MDAV"], "k": [1000]}, "larger than the number of records"),
    ],
)
def test_bad_requests_are_refused(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        compare(people(), SCHEMA, **arguments)


def test_one_setting_that_cannot_work_does_not_stop_the_others() -> None:
    found = compare(people(), SCHEMA, ["MDAV"], k=[5, 1000])
    assert [run.setting.k for run in found.runs] == [5]
    assert "larger than the number of records" in found.refused[Setting("MDAV", 1000, None)]
    assert "Not compared" in found.to_html()


def test_figures_are_those_of_a_release() -> None:
    X = people()
    found = compare(X, SCHEMA, ["MDAV"], k=[7])
    expected = anonymize(X, SCHEMA, method("MDAV", k=7)).evaluation
    assert found.runs[0].figures == {name: read(expected) for name, (_, read) in FIGURES.items()}


def test_noise_differs_between_repeats_and_means_are_means() -> None:
    found = compare(people(), SCHEMA, ["OPT_DP_1", "MDAV"], k=[5], epsilon=[1], repeats=4)
    noisy, exact = found.summary()
    losses = [run.figures["information_loss"] for run in found.runs if run.setting.method == "OPT_DP_1"]
    assert len(set(losses)) == 4
    assert noisy["information_loss"] == pytest.approx(np.mean(losses))
    assert noisy["information_loss_deviation"] == pytest.approx(np.std(losses, ddof=1))
    assert (exact["runs"], exact["information_loss_deviation"]) == (1, None)


def test_records_drawn_from_moments_differ_between_repeats() -> None:
    found = compare(people(), SCHEMA, ["B3"], k=[20], repeats=3)
    assert len({run.figures["sse"] for run in found.runs}) == len(found.runs) == 3


def test_a_partition_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    labels = MDAV.labels

    def counted(self: MDAV, U: np.ndarray, **how: Any) -> np.ndarray:
        calls.append(self.k)
        return labels(self, U, **how)

    monkeypatch.setattr(MDAV, "labels", counted)
    compare(people(), SCHEMA, ["MDAV_DP", "MDAV"], k=[5, 9], epsilon=[1, 2, 4], repeats=3, threads=4)
    assert sorted(calls) == [5, 9]


def test_optimal_clusters_follow_epsilon() -> None:
    # Their labels depend on the noise, so remembering them by the table alone would be wrong.
    X = people(1000)
    found = compare(X, SCHEMA, ["OPT_DP_1"], epsilon=[0.1, 10], repeats=1)
    strong, weak = (row["information_loss"] for row in found.summary())
    assert weak < 1 < 5 < strong


def test_the_table_is_tidy(tmp_path: Path) -> None:
    found = compare(people(), SCHEMA, ["MDAV_DP", "LAPLACE"], k=[5, 9], epsilon=[1], repeats=2)
    table = found.table()
    assert table.column_names == ["method", "k", "epsilon", "repeat", *FIGURES]
    assert table.num_rows == 2 * 2 + 2
    assert table.column("k").null_count == 2
    found.save(tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["compare.csv", "compare.html"]
    assert "For the curator only" in (tmp_path / "out" / "compare.html").read_text(encoding="utf-8")


def chart_data(found: Comparison, key: str) -> list[dict[str, Any]]:
    page = found.to_html()
    begin = page.index('id="figures">') + len('id="figures">')
    data: list[dict[str, Any]] = json.loads(page[begin : page.index("</script>", begin)])[key]["data"]
    return data


def test_plots_have_a_line_per_method_with_error_bars() -> None:
    found = compare(people(), SCHEMA, ["MDAV_DP", "OPT_DP_1", "MDAV"], k=[5, 9], epsilon=[1, 2], repeats=3)
    lines = {line["name"]: line for line in chart_data(found, "information_loss-epsilon")}
    assert set(lines) == {"MDAV_DP, k = 5", "MDAV_DP, k = 9", "OPT_DP_1", "MDAV, k = 5", "MDAV, k = 9"}
    assert lines["OPT_DP_1"]["x"] == [1.0, 2.0]
    assert all(lines["OPT_DP_1"]["error_y"]["array"])
    assert len(set(lines["MDAV, k = 5"]["y"])) == 1  # level: it takes no epsilon
    against_k = {line["name"]: line for line in chart_data(found, "information_loss-k")}
    assert against_k["MDAV_DP, ε = 1"]["x"] == [5, 9]


def test_an_interrupt_stops_it_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = threading.Event()

    def endless(self: MDAV, U: np.ndarray, *, progress: Any = None, **how: Any) -> np.ndarray:
        begun.set()
        for _ in range(1000):
            time.sleep(0.02)
            progress(0.5)
        raise AssertionError("nobody stopped it")

    monkeypatch.setattr(MDAV, "labels", endless)

    def interrupt(share: float) -> None:
        if begun.is_set():
            raise KeyboardInterrupt

    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        compare(people(), SCHEMA, ["MDAV_DP"], k=[5], epsilon=[1, 2], progress=interrupt)
    assert time.monotonic() - start < 10


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savetxt(tmp_path / "people.csv", people(), delimiter=",", header="age,income", comments="", fmt="%.2f")
    spec = tmp_path / "people.toml"
    spec.write_text(
        '[columns]\nage = {type = "numeric", lower = 0, upper = 120}\n'
        'income = {type = "numeric", lower = 0, upper = 1e5}\n[method]\nname = "OPT_DP_1"\nepsilon = 1\n'
    )
    arguments = ["compare", str(tmp_path / "people.csv"), "--spec", str(spec), "--methods", "OPT_DP_1,MDAV"]
    code = main(
        [*arguments, "--k", "3,500", "--epsilon", "1,2", "--repeats", "2", "--out", str(tmp_path / "out")]
    )
    printed = capsys.readouterr()
    assert code == 0
    assert "CURATOR ONLY" in printed.out
    assert printed.out.count("OPT_DP_1") == 2
    assert "warning: MDAV, k = 500" in printed.err
    assert is_private(tmp_path / "out" / "compare.html")
    assert main([*arguments, "--k", "3", "--epsilon", "1", "--json", "--repeats", "1"]) == 0
    read = json.loads(capsys.readouterr().out)
    assert [row["method"] for row in read["settings"]] == ["OPT_DP_1", "MDAV"]
    assert main([*arguments, "--k", "3,x", "--epsilon", "1"]) == 2
    assert "10,50,100" in capsys.readouterr().err


def test_every_colour_has_a_symbol() -> None:
    assert len(module._COLOURS) == len(set(module._COLOURS)) == len(set(module._SYMBOLS))
