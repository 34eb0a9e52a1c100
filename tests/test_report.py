"""The curator's page: what it says, and that a browser draws all of it without a network."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from dpmicro_native import Keep, Numeric, Schema, anonymize, method, testing
from dpmicro_native.certificate import Certificate
from dpmicro_native.evaluate import Evaluation
from dpmicro_native.release import Release
from dpmicro_native.report import _percent, checklist, report_html, rounded, write_report
from permissions import is_private

SCHEMA = Schema({"age": Numeric(0, 120), "income": Numeric(0, 1e5), "hours": Numeric(0, 100)})


def people(n: int = 400) -> np.ndarray:
    generator = np.random.default_rng(0)
    age = generator.integers(18, 90, n).astype(float)
    return np.column_stack([age, generator.gamma(2, 9000, n).clip(0, 1e5), 60 - 0.3 * age])


def release(name: str = "OPT_DP_1", n: int = 400, schema: Schema = SCHEMA, **parameters: object) -> Release:
    return anonymize(people(n), schema, method(name, **(parameters or {"epsilon": 1})))


def page_of(made: Release) -> str:
    return report_html(made.certificate, made.evaluation)


class Structure(HTMLParser):
    """Collects the ids and the text of a page, and checks that elements are nested."""

    VOID = frozenset({"meta", "br", "img", "link", "input", "hr"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.charts: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag not in self.VOID:
            self.open.append(tag)
        if given.get("id"):
            self.ids.append(str(given["id"]))
        if given.get("class") == "chart":
            self.charts.append(str(given["id"]))
            assert given["role"] == "img"
            assert given["aria-label"]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self.open):
            self.text += data


def structure(page: str) -> Structure:
    parsed = Structure()
    parsed.feed(page)
    assert parsed.open == []
    assert len(parsed.ids) == len(set(parsed.ids))
    return parsed


# What it says


def test_the_page_says_what_the_certificate_says() -> None:
    made = release()
    text = structure(page_of(made)).text
    assert made.certificate.meaning in text
    for sentence in made.certificate.assumptions:
        assert sentence in text
    assert "For the curator only." in text
    assert "ε = 1" in text
    assert "2.718" in text


def test_every_attribute_has_its_charts_and_figures() -> None:
    made = release()
    parsed = structure(page_of(made))
    expected = {f"{kind}-{j}" for j in range(3) for kind in ("distribution", "quantiles")}
    assert expected | {"correlation-original", "correlation-released", "noise-scales"} <= set(parsed.charts)
    for attribute in made.evaluation.attributes.values():
        assert rounded(attribute.wasserstein) in parsed.text
        assert rounded(attribute.released.mean) in parsed.text
    assert made.evaluation.linkage is not None
    assert _percent(made.evaluation.linkage.share) in parsed.text


def test_every_kind_of_release_has_a_page() -> None:
    for made in (
        release("LAPLACE"),
        release("MDAV", k=5),
        release("IR", k=3),
        release("MDAV_DP", epsilon=2, k=20),
        release("INS_DP", epsilon=1, k=10),
        release("MDAV", n=1, k=1, schema=SCHEMA),
    ):
        assert made.certificate.meaning in structure(page_of(made)).text
    one = anonymize(people()[:, :1], Schema({"age": Numeric(0, 120)}), method("IR_DP", epsilon=1, k=5))
    assert "correlation" not in " ".join(structure(page_of(one)).charts)


def test_a_page_for_a_release_with_hardly_any_figures() -> None:
    certificate = Certificate(
        "dp", "unconditional", "add-remove-one", "SAFEPUB", {"k": 74}, Fraction(1), 1e-6, {"search": Fraction(1, 10),
        "release": Fraction(9, 10)}, ("Rows are shuffled.",), {"sex": {"type": "categorical"}},
    )  # fmt: skip
    evaluation = Evaluation(records=100, records_released=42, generality={"sex": 0.375})
    parsed = structure(report_html(certificate, evaluation))
    assert "search" in parsed.text
    assert "δ" in parsed.text
    assert "42 came out" in parsed.text
    assert "37.5\u202f%" in parsed.text
    assert parsed.charts == ["generality"]
    assert "Attributes before and after" not in parsed.text


@pytest.mark.parametrize(
    "name", ["</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", '"&{css}']
)
def test_names_of_columns_cannot_leave_their_place(name: str) -> None:
    schema = Schema({name: Numeric(0, 120), "income": Numeric(0, 1e5), "hours": Numeric(0, 100)})
    page = page_of(release(schema=schema))
    assert name in structure(page).text
    assert "<script>alert" not in page
    assert "<img src=x" not in page


def test_the_page_fetches_nothing() -> None:
    page = page_of(release())
    assert "default-src 'none'" in page
    ours = re.sub(r"<script>.*?</script>", "", page, flags=re.S)
    assert not re.search(r"https?://|(src|href)=[\"'](?!#)", ours)
    assert page.count("plotly.js v") == 1


def test_without_plotly_the_page_has_its_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    made = release()
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    page = page_of(made)
    assert "dpmicro_native[cli]" in page
    assert "<script" not in page
    assert len(page) < 100_000
    assert rounded(made.evaluation.attributes["age"].wasserstein) in structure(page).text


def test_the_release_writes_it_for_the_curator_alone(tmp_path: Path) -> None:
    release().save(tmp_path / "out")
    written = tmp_path / "out" / "curator" / "report.html"
    assert is_private(written)
    assert "Release report" in written.read_text(encoding="utf-8")
    assert [path.name for path in (tmp_path / "out" / "public").iterdir() if "report" in path.name] == []


# What to check


def statuses(made: Release, words: str) -> list[str]:
    return [status for status, text in checklist(made.certificate, made.evaluation) if words in text]


def test_the_checklist_follows_the_certificate_and_the_figures() -> None:
    made = release()
    assert statuses(made, "given the partition") == ["look"]
    assert statuses(made, "voids the guarantee") == ["good"]
    assert statuses(made, "epsilons add up") == ["todo"]
    assert statuses(release("LAPLACE"), "out of the bounds") == ["look"]
    assert statuses(release("LAPLACE"), "given the partition") == []
    assert statuses(release("MDAV", k=5), "k = 5 was asked") == ["good"]
    assert statuses(release("IR", k=3), "are unique") == ["look"]
    aligned = anonymize(people(), SCHEMA, method("MDAV", k=5), order="aligned")
    assert statuses(aligned, "order of the input") == ["look"]


def test_the_checklist_notices_a_broken_promise() -> None:
    made = release("MDAV", k=5)
    broken = replace(made.evaluation, smallest_class=4)
    assert [s for s, text in checklist(made.certificate, broken) if "k = 5" in text] == ["stop"]


def test_kept_columns_are_pointed_out() -> None:
    import pyarrow as pa

    table = pa.table({"age": people()[:, 0], "town": ["x"] * 400})
    made = anonymize(table, Schema({"age": Numeric(0, 120), "town": Keep()}), method("MDAV", k=5))
    assert statuses(made, "<code>town</code>") == ["look"]


def test_a_release_that_is_not_private_says_so_first() -> None:
    with testing.seeded(1):
        made = release()
    text = structure(page_of(made)).text
    assert "Do not publish this release." in text
    assert statuses(made, "not private") == ["stop"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1234567.0, "1\u202f234\u202f567"),
        (-0.25, "−0.25"),
        (1e9, "1.00·10⁹"),
        (-2e-7, "−2.00·10⁻⁷"),
        (3, "3"),
    ],
)
def test_numbers(value: float, text: str) -> None:
    assert rounded(value) == text


# In a browser


@pytest.fixture(scope="session")
def browser() -> str:
    if "DPMICRO_SANITIZED" in os.environ:
        pytest.skip("the sanitizer's library would be loaded into the browser")
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    pytest.skip("Chromium is not installed (apt-get install chromium)")


def open_page(browser: str, page: Path, *options: str) -> tuple[str, str]:
    """The page after its scripts have run, and what the console said."""
    arguments = [
        browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
        "--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr", "--virtual-time-budget=10000",
        f"--user-data-dir={page.parent / 'profile'}", *options, "--dump-dom", page.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=180, check=True)
    return done.stdout, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


@pytest.mark.parametrize(
    "options",
    [(), ("--blink-settings=preferredColorScheme=0", "--window-size=400,800")],
    ids=["light", "dark"],
)
def test_a_browser_draws_every_chart(browser: str, tmp_path: Path, options: tuple[str, ...]) -> None:
    made = release(
        schema=Schema({"<b>age": Numeric(0, 120), "in & out": Numeric(0, 1e5), "h": Numeric(0, 100)})
    )
    write_report(tmp_path / "report.html", made.certificate, made.evaluation)
    charts = structure((tmp_path / "report.html").read_text(encoding="utf-8")).charts
    drawn, console = open_page(browser, tmp_path / "report.html", *options)
    assert console == ""
    assert "data-failed" not in drawn
    assert f'data-drawn="{len(charts)}"' in drawn
    assert len(re.findall(r'<div class="chart js-plotly-plot"', drawn)) == len(charts)
    # Each chart holds an axis with ticks, so it has a size and data.
    assert drawn.count('<g class="xaxislayer-above">') >= len(charts)
    colour = "#5cb0f5" if options else "#0067b8"
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    assert f"rgb({red}, {green}, {blue})" in drawn


def test_the_browser_test_can_fail(browser: str, tmp_path: Path) -> None:
    page = page_of(release()).replace("draw();\n})", "draw(); missing();\n})")
    (tmp_path / "broken.html").write_text(page, encoding="utf-8")
    drawn, console = open_page(browser, tmp_path / "broken.html")
    assert "missing is not defined" in console
    assert "data-failed" in drawn
