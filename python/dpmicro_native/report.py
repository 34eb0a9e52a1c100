"""The curator's report: one page that opens offline, with what was released and what it cost."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from .certificate import Certificate
from .evaluate import PERCENT, Attribute, Evaluation, Sizes

Figure = dict[str, Any]
Status = Literal["good", "look", "stop", "todo"]

_THIN = "\u202f"  # a thin space that does not break
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_STATUS = {"good": "✓ fine", "look": "! look", "stop": "✗ stop", "todo": "☐ you"}

# Beyond these a curator should look twice. Conventions, not theorems.
LINKED = 0.05
DISTANT = 0.1
TRUNCATED = 0.1


def write_report(path: str | Path, certificate: Certificate, evaluation: Evaluation) -> None:
    """Write the report to a file. Never publish it: it is computed from the original records."""
    Path(path).write_text(report_html(certificate, evaluation), encoding="utf-8")


def report_html(certificate: Certificate, evaluation: Evaluation) -> str:
    """The report as one HTML page; its charts need plotly (the extra ``cli``), the rest does not.

    >>> from dpmicro_native.certificate import Certificate
    >>> page = report_html(Certificate("k-anonymity", "unconditional", "replace-one", "MDAV", {"k": 5}),
    ...                    Evaluation(records=100))
    >>> "This is no differential-privacy guarantee." in page
    True
    """
    figures: dict[str, Figure] = {}
    checks = checklist(certificate, evaluation)
    sections = [
        ("guarantee", "What it guarantees", _guarantee(certificate)),
        ("released", "What was released", _released(certificate, evaluation)),
        ("noise", "Clusters and noise", _noise(certificate, evaluation, figures)),
        ("exactness", "How exact the values are", _exactness(evaluation, figures)),
        ("attributes", "Attributes before and after", _attributes(evaluation, figures)),
        ("relations", "Relations between attributes", _relations(evaluation, figures)),
        ("risk", "Risk", _risk(evaluation)),
        ("publish", "Before you publish", _checks(checks)),
        ("reading", "How to read the figures", _glossary(evaluation)),
    ]
    present = [section for section in sections if section[2]]
    body = [
        curator_only("Publish the folder <code>public</code>, nothing else."),
        "<h1>Release report</h1>",
        f'<p class="lead">{escape(certificate.method)}{_summary_of(certificate.method)}</p>',
        "<nav aria-label='Sections'>"
        + "".join(f'<a href="#{key}">{escape(title)}</a>' for key, title, _ in present)
        + "</nav>",
        _verdict(checks),
        _tiles(certificate, evaluation),
        *(
            f'<section aria-labelledby="{key}"><h2 id="{key}">{escape(title)}</h2>{content}</section>'
            for key, title, content in present
        ),
    ]
    return page(f"Release report: {certificate.method}", "\n".join(body), figures, certificate.version)


def page(title: str, body: str, figures: Mapping[str, Figure], version: str) -> str:
    """A self-contained page around ``body``; ``figures`` are drawn into the elements of their names."""
    read = resources.files(__package__).joinpath
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        plain, scripts = ' class="plain"', ""
        body = body.replace(
            "</h1>",
            '</h1><p class="note">Charts are left out: they need plotly, <code>pip install '
            '"dpmicro_native[cli]"</code>. Every figure is in the tables.</p>',
            1,
        )
    else:
        # "</script>" or "<!--" inside a name would end the element early.
        data = json.dumps(figures, allow_nan=False).replace("<", "\\u003c")
        plain = ""
        scripts = (
            f'<script type="application/json" id="figures">{data}</script>\n'
            f"<script>{get_plotlyjs()}</script>\n"
            f"<script>{read('report.js').read_text(encoding='utf-8')}</script>"
        )
    # The policy forbids the page to fetch or send anything, whatever a column may be called.
    return f"""<!DOCTYPE html>
<html lang="en"{plain}>
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline'; \
style-src 'unsafe-inline'; img-src data: blob:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>{escape(title)}</title>
<style>
{read("report.css").read_text(encoding="utf-8")}</style>
</head>
<body>
<main>
{body}
<footer>dpmicro_native {escape(version)}. This page needs no network and sends nothing.</footer>
</main>
{scripts}
</body>
</html>
"""


def curator_only(advice: str) -> str:
    """The warning at the top of every page that reads the data."""
    return (
        '<p class="curator"><strong>For the curator only.</strong> This page is computed from the original '
        f"records and voids the guarantee if it is shared. {advice}</p>"
    )


# What to check


def checklist(certificate: Certificate, evaluation: Evaluation) -> list[tuple[Status, str]]:
    """What to look at before publishing: what the figures show, and what only the curator can know."""
    found: list[tuple[Status, str]] = []
    dp = certificate.guarantee != "k-anonymity"
    if certificate.private:
        found.append(
            ("good", "Nothing in the certificate voids the guarantee: no seed, no bounds read from the data.")
        )
    else:
        found.append(
            (
                "stop",
                "The certificate says <strong>not private</strong>; see the assumptions. Do not publish.",
            )
        )
    if certificate.scope == "given-partition" and dp:
        found.append(
            (
                "look",
                "The guarantee is given the partition. Decide whether that is enough for your case; LAPLACE, "
                "INS_DP and SAFEPUB make no such condition.",
            )
        )
    if certificate.parameters.get("order") == "aligned":
        found.append(
            ("look", "Rows are in the order of the input, which shows who shares a cluster with whom.")
        )
    found += _class_check(certificate, evaluation)
    if evaluation.linkage is not None:
        share = evaluation.linkage.share
        found.append(
            (
                "look" if share > LINKED else "good",
                f"Somebody who knows a record's original values entirely picks the right released record in "
                f"{_percent(share)} of cases (blind guess: {_percent(1 / evaluation.records)}).",
            )
        )
    found += _attribute_checks(evaluation)
    kept = [name for name, column in certificate.columns.items() if column.get("type") == "keep"]
    if kept:
        found.append(
            ("look", f"Released untouched: {_names(kept)}. Such columns may identify people by themselves.")
        )
    if evaluation.records_dropped:
        found.append(
            (
                "look",
                f"{_count(evaluation.records_dropped)} records were left out, since their individuals have "
                "more "
                "than the allowed number.",
            )
        )
    if dp:
        bounded = any("lower" in column for column in certificate.columns.values())
        public = "bounds" if bounded else "hierarchies"
        found.append(
            ("todo", f"The {public} come from knowledge of the subject, not from a look at this table.")
        )
        found.append(
            ("todo", "No other release was made from the same people; if there was one, the epsilons add up.")
        )
    else:
        found.append(
            (
                "todo",
                "The released attributes alone do not give away something sensitive when all records of a "
                "cluster are alike: k-anonymity does not protect against that.",
            )
        )
    found.append(
        (
            "todo",
            "Only the folder <code>public</code> is handed out; <code>curator</code> is locked away or "
            "deleted.",
        )
    )
    return found


def _class_check(certificate: Certificate, evaluation: Evaluation) -> list[tuple[Status, str]]:
    k = certificate.parameters.get("k", certificate.parameters.get("min_size"))
    smallest = evaluation.smallest_class
    if certificate.guarantee != "k-anonymity" or smallest is None or not isinstance(k, int):
        return []
    if certificate.scope == "unconditional":
        status: Status = "good" if smallest >= k else "stop"
        return [
            (
                status,
                f"Every released combination of values occurs at least {smallest} times; k = {k} was asked.",
            )
        ]
    if smallest < k:
        return [
            (
                "look",
                "Attributes were clustered separately: some combinations of values occur "
                f"{_times(smallest)}, and "
                f"{_percent(evaluation.unique or 0.0)} of the released records are unique.",
            )
        ]
    return []


def _attribute_checks(evaluation: Evaluation) -> list[tuple[Status, str]]:
    found: list[tuple[Status, str]] = []
    attributes = evaluation.attributes
    distant = [name for name, a in attributes.items() if a.kolmogorov_smirnov > DISTANT]
    if distant:
        found.append(
            (
                "look",
                f"The distribution of {_names(distant)} moved by more than {_percent(DISTANT)} "
                "(Kolmogorov–Smirnov); look at the charts.",
            )
        )
    elif attributes:
        found.append(
            ("good", f"No distribution moved by more than {_percent(DISTANT)} (Kolmogorov–Smirnov).")
        )
    pushed = [name for name, a in attributes.items() if (a.truncated or 0.0) > TRUNCATED]
    if pushed:
        found.append(
            (
                "look",
                f"Noise drove more than {_percent(TRUNCATED)} of the values of {_names(pushed)} out of the "
                "bounds; "
                "they were moved back and pile up there. Larger clusters or a larger epsilon help, or "
                "narrower public "
                "bounds.",
            )
        )
    turned = [
        f"{a} and {b}"
        for (i, a), (j, b) in _pairs(list(attributes))
        if evaluation.correlation_original
        and evaluation.correlation_released
        and evaluation.correlation_original[i][j] * evaluation.correlation_released[i][j] < 0
        and abs(evaluation.correlation_original[i][j]) > 0.1
    ]
    if turned:
        found.append(("look", f"The correlation changed its sign between {_names(turned)}."))
    return found


def _pairs(names: Sequence[str]) -> Iterable[tuple[tuple[int, str], tuple[int, str]]]:
    for i, a in enumerate(names):
        for j in range(i + 1, len(names)):
            yield (i, a), (j, names[j])


def _verdict(checks: Sequence[tuple[Status, str]]) -> str:
    looks = sum(status == "look" for status, _ in checks)
    todo = sum(status == "todo" for status, _ in checks)
    stops = [text for status, text in checks if status == "stop"]
    if stops:
        return f'<div class="verdict stop"><strong>Do not publish this release.</strong>{stops[0]}</div>'
    rest = f'and {todo} that only you can know. <a href="#publish">See the list.</a>'
    if looks:
        return (
            f'<div class="verdict look"><strong>{looks} {"point" if looks == 1 else "points"} to look at '
            "before "
            f"you publish,</strong>{rest}</div>"
        )
    return (
        '<div class="verdict good"><strong>The figures show nothing that speaks against publishing;</strong>'
        f"there remain the usual checks, {rest}</div>"
    )


def _checks(checks: Sequence[tuple[Status, str]]) -> str:
    order = ("stop", "look", "todo", "good")
    items = "".join(
        f'<li><span class="status {status}">{_STATUS[status]}</span><span>{text}</span></li>'
        for status, text in sorted(checks, key=lambda check: order.index(check[0]))
    )
    return f'<ul class="checks">{items}</ul>'


# Sections


def _tiles(certificate: Certificate, evaluation: Evaluation) -> str:
    tiles = []
    if certificate.epsilon is not None:
        delta = f", δ = {rounded(certificate.delta)}" if certificate.delta else ""
        tiles.append(
            (f"ε = {rounded(float(certificate.epsilon))}", "privacy budget", f"smaller is stronger{delta}")
        )
    elif isinstance(certificate.parameters.get("k"), int):
        tiles.append(
            (f"k = {certificate.parameters['k']}", "records behind each value", "larger is stronger")
        )
    if evaluation.information_loss is not None:
        tiles.append(
            (
                _percent(evaluation.information_loss / 100),
                "information loss",
                "squared error over total variance",
            )
        )
    if evaluation.correlation_error is not None:
        tiles.append(
            (rounded(evaluation.correlation_error, 3), "correlation error", "mean difference over pairs")
        )
    if evaluation.ranges_1d is not None:
        tiles.append(
            (_percent(evaluation.ranges_1d.error), "range-count error", "of the records, one attribute")
        )
    if evaluation.linkage is not None:
        tiles.append((_percent(evaluation.linkage.share), "records linked", "by an all-knowing intruder"))
    return (
        '<div class="tiles">'
        + "".join(
            f'<div class="tile"><b>{value}</b><span>{name}</span><small>{note}</small></div>'
            for value, name, note in tiles
        )
        + "</div>"
    )


def _guarantee(certificate: Certificate) -> str:
    parts = []
    if not certificate.private:
        parts.append(
            '<div class="verdict stop"><strong>Not private.</strong>What follows does not hold for this '
            "release; the "
            "assumptions say why.</div>"
        )
    badges = [
        {"dp": "differential privacy", "idp": "individual differential privacy"}.get(
            certificate.guarantee, certificate.guarantee
        ),
    ]
    if certificate.guarantee != "k-anonymity":
        badges += [
            {"unconditional": "unconditional", "given-partition": "given the partition"}[certificate.scope],
            {
                "replace-one": "neighbours: one individual replaced",
                "add-remove-one": "neighbours: one added or removed",
            }[certificate.neighbours],
        ]
    parts.append("<p>" + "".join(f'<span class="badge">{escape(badge)}</span>' for badge in badges) + "</p>")
    parts.append(f"<p>{escape(certificate.meaning)}</p>")
    if certificate.epsilon is not None:
        epsilon = float(certificate.epsilon)
        factor = rounded(math.exp(epsilon)) if epsilon < 700 else "10³⁰⁴ and more"  # beyond a double
        delta = (
            f", up to an additional probability of δ = {rounded(certificate.delta)}"
            if certificate.delta
            else ""
        )
        parts.append(
            f"<p>Here ε = {rounded(epsilon)}, so e<sup>ε</sup> = {factor}: no "
            "outcome is "
            f"more than {factor} times as likely with one table as with a neighbouring "
            f"one{delta}.</p>"
        )
    if certificate.assumptions:
        items = "".join(f"<li>{escape(sentence)}</li>" for sentence in certificate.assumptions)
        parts.append(f"<h3>What this rests on</h3><ul>{items}</ul>")
    return "".join(parts)


def _released(certificate: Certificate, evaluation: Evaluation) -> str:
    rows = []
    for name, column in certificate.columns.items():
        share = certificate.budget.get(name)
        bounds = f"{rounded(column['lower'])} to {rounded(column['upper'])}" if "lower" in column else "–"
        rows.append([name, column.get("type", ""), bounds, "–" if share is None else rounded(float(share))])
    head = ["column", "kind", "public bounds", "share of ε"]
    shown = [j for j in range(4) if j < 2 or any(row[j] != "–" for row in rows)]
    head, rows = [head[j] for j in shown], [[row[j] for j in shown] for row in rows]
    loose = [name for name in certificate.budget if name not in certificate.columns]
    shares = [[name, rounded(float(certificate.budget[name]))] for name in loose]
    parameters = [[name, _plain_words(value)] for name, value in certificate.parameters.items()]
    dropped = (
        f" {_count(evaluation.records_dropped)} more were left out, beyond the records allowed per "
        "individual."
        if evaluation.records_dropped
        else ""
    )
    came_out = (
        f", {_count(evaluation.records_released)} came out; that number is not in the certificate"
        if evaluation.records_released is not None
        else ""
    )
    return (
        f"<p>{_count(evaluation.records)} records went in{came_out}.{dropped}</p>"
        + html_table(
            head,
            rows,
            numbers=(3,) if certificate.budget else (),
            caption="Columns, as the certificate states them",
        )
        + html_table(["budget", "share of ε"], shares, numbers=(1,))
        + html_table(["parameter", "value"], parameters, caption="Parameters of the method")
    )


def _noise(certificate: Certificate, evaluation: Evaluation, figures: dict[str, Figure]) -> str:
    parts = []
    grouped = {group: sizes for group, sizes in evaluation.sizes.items() if sizes.largest > 1}
    if evaluation.sizes and not grouped:
        parts.append("<p>Every record is masked by itself; there are no clusters.</p>")
    if grouped:
        rows = [
            [group, _count(s.clusters), _count(s.smallest), rounded(s.median), _count(s.largest)]
            for group, s in grouped.items()
        ]
        parts.append(
            "<p>A cluster's records are released as one mean. Larger clusters need less noise but average "
            "over more "
            "people.</p>"
            + html_table(
                ["clustered by", "clusters", "smallest", "median", "largest"],
                rows,
                numbers=(1, 2, 3, 4),
                caption="Cluster sizes, in records",
            )
        )
        charts = []
        for number, (group, sizes) in enumerate(grouped.items()):
            if sizes.smallest < sizes.largest:
                charts.append(
                    chart(figures, f"sizes-{number}", _sizes_figure(sizes), f"Cluster sizes: {group}", 15)
                )
        parts.append(f'<div class="pair">{"".join(charts)}</div>' if charts else "")
    noisy = {name: a for name, a in evaluation.attributes.items() if a.noise is not None}
    if noisy:
        rows = []
        for name, attribute in noisy.items():
            noise = attribute.noise
            assert noise is not None
            rows.append(
                [
                    name,
                    rounded(noise.least),
                    rounded(noise.median),
                    rounded(noise.greatest),
                    rounded(noise.deviation),
                    rounded(math.sqrt(attribute.original.variance)),
                ]
            )
        parts.append(
            "<p>Each cluster's mean gets one draw of discrete Laplace noise per attribute. Its scale is "
            "the sensitivity "
            "over the attribute's share of ε and the size of the cluster.</p>"
            + html_table(
                [
                    "attribute",
                    "least scale",
                    "median scale",
                    "greatest scale",
                    "noise on a value (s.d.)",
                    "spread of the original (s.d.)",
                ],
                rows,
                numbers=(1, 2, 3, 4, 5),
                caption="Noise scales over the clusters, in the attribute's own units",
            )
            + chart(
                figures,
                "noise-scales",
                _noise_figure(noisy),
                "Standard deviation of the noise on a released value over that of the original values; "
                "beyond 1 the "
                "noise outweighs the differences between people.",
                4.5 + 2 * len(noisy),
            )
        )
    elif certificate.guarantee == "k-anonymity":
        parts.append("<p>No noise was added.</p>")
    return "".join(parts)


def _exactness(evaluation: Evaluation, figures: dict[str, Figure]) -> str:
    if not evaluation.generality:
        return ""
    rows = [[name, _percent(share)] for name, share in evaluation.generality.items()]
    return (
        "<p>Released values are true but general: “30 to 40” instead of 34. A value that stands for a single original "
        "one counts 0\u202f%, one that stands for all of them 100\u202f%.</p>"
        + html_table(
            ["attribute", "generality"], rows, numbers=(1,), caption="Mean over the released records"
        )
        + chart(
            figures,
            "generality",
            _bars_figure(
                {name: 100 * share for name, share in evaluation.generality.items()}, "generality, %"
            ),
            "Share of an attribute's other values that a released value also stands for, on average.",
            4.5 + 2 * len(rows),
        )
    )


def _attributes(evaluation: Evaluation, figures: dict[str, Figure]) -> str:
    if not evaluation.attributes:
        return ""
    rows = [
        [
            name,
            rounded(a.mean_error),
            _percent_of(a.variance_error),
            rounded(a.quantile_error),
            rounded(a.kolmogorov_smirnov),
            rounded(a.wasserstein),
            "–" if a.information_loss is None else _percent(a.information_loss / 100),
        ]
        for name, a in evaluation.attributes.items()
    ]
    parts = [
        html_table(
            [
                "attribute",
                "mean error",
                "variance error",
                "quantile error",
                "Kolmogorov–Smirnov",
                "Wasserstein",
                "information loss",
            ],
            rows,
            numbers=(1, 2, 3, 4, 5, 6),
            caption="Released minus original; lengths in the attribute's own units",
        )
    ]
    for number, (name, attribute) in enumerate(evaluation.attributes.items()):
        beyond = [
            1 - sum(counts) / records
            for counts, records in (
                (attribute.histogram.original, evaluation.records),
                (attribute.histogram.released, evaluation.records),
            )
        ]
        outside = (
            f" Beyond the axis: {_percent(beyond[0])} of the original, {_percent(beyond[1])} of the "
            "released records."
            if max(beyond) > 0
            else ""
        )
        parts.append(
            f'<div class="attribute"><h3>{escape(name)}</h3><div class="pair">'
            + chart(
                figures,
                f"distribution-{number}",
                _distribution_figure(name, attribute),
                f"Distribution of {name} before and after.{outside}",
            )
            + chart(
                figures,
                f"quantiles-{number}",
                _quantile_figure(attribute),
                f"Quantiles of {name} against each other, every percent; on the line they agree.",
            )
            + "</div>"
            + _summaries(attribute)
            + "</div>"
        )
    return "".join(parts)


def _summaries(attribute: Attribute) -> str:
    levels = (0, 5, 25, 50, 75, 95, 100)
    rows = [
        [
            kind,
            rounded(s.mean),
            rounded(math.sqrt(s.variance)),
            *(rounded(s.quantiles[level]) for level in levels),
        ]
        for kind, s in (("original", attribute.original), ("released", attribute.released))
    ]
    head = [
        "",
        "mean",
        "s.d.",
        "minimum",
        "5\u202f%",
        "25\u202f%",
        "median",
        "75\u202f%",
        "95\u202f%",
        "maximum",
    ]
    return html_table(head, rows, numbers=tuple(range(1, 10)))


def _relations(evaluation: Evaluation, figures: dict[str, Figure]) -> str:
    if evaluation.correlation_original is None or evaluation.correlation_released is None:
        return ""
    names = list(evaluation.attributes)
    pair = "".join(
        chart(
            figures,
            f"correlation-{kind}",
            _correlation_figure(names, matrix, kind),
            f"Correlations, {kind}",
            23,
        )
        for kind, matrix in (
            ("original", evaluation.correlation_original),
            ("released", evaluation.correlation_released),
        )
    )
    differences = sorted(
        (
            (abs(evaluation.correlation_released[i][j] - evaluation.correlation_original[i][j]), i, j)
            for (i, _), (j, _) in _pairs(names)
        ),
        reverse=True,
    )[:10]
    rows = [
        [
            f"{names[i]} – {names[j]}",
            rounded(evaluation.correlation_original[i][j]),
            rounded(evaluation.correlation_released[i][j]),
            rounded(difference),
        ]
        for difference, i, j in differences
    ]
    parts = [
        f"<p>Correlations differ by {rounded(evaluation.correlation_error or 0.0)} on average"
        + (
            f"; the covariance matrix by {_percent(evaluation.covariance_error)} of its size."
            if evaluation.covariance_error is not None
            else "."
        )
        + "</p>",
        f'<div class="pair">{pair}</div>',
        html_table(
            ["pair", "original", "released", "difference"],
            rows,
            numbers=(1, 2, 3),
            caption="The correlations that changed most",
        ),
    ]
    ranges = [
        [kind, _count(r.queries), _percent(r.error), _percent(r.relative_error)]
        for kind, r in (("one attribute", evaluation.ranges_1d), ("two attributes", evaluation.ranges_2d))
        if r is not None
    ]
    parts.append(
        html_table(
            ["range counts on", "queries", "mean error, of all records", "mean relative error"],
            ranges,
            numbers=(1, 2, 3),
            caption="“How many records lie between a and b?”, asked of both tables",
        )
    )
    return "".join(parts)


def _risk(evaluation: Evaluation) -> str:
    rows = []
    if evaluation.linkage is not None:
        linkage = evaluation.linkage
        error = f" ± {_percent(linkage.standard_error)}" if linkage.standard_error else ""
        sample = (
            "all original records"
            if linkage.known == linkage.among
            else (f"a random sample of {_count(linkage.known)} original records")
        )
        rows.append(
            [
                "Records linked",
                f"{_percent(linkage.share)}{error}",
                f"Share of records whose nearest released record is their own; {sample}, each against all "
                f"{_count(linkage.among)} released ones. A blind guess links {_percent(1 / linkage.among)}.",
            ]
        )
    if evaluation.unique is not None:
        rows.append(
            [
                "Unique releases",
                _percent(evaluation.unique),
                "Share of released records that no other equals in every attribute. Under differential "
                "privacy this does no harm by itself.",
            ]
        )
    if evaluation.smallest_class is not None:
        rows.append(
            [
                "Smallest class",
                _count(evaluation.smallest_class),
                "Fewest released records that share all their values.",
            ]
        )
    if not rows:
        return ""
    return (
        "<p>These figures describe one attack on this one table. They are no guarantee: a low share does "
        "not prove "
        "safety, and the guarantee above holds whatever they are.</p>"
        + html_table(["figure", "value", "what it says"], rows, numbers=(1,))
    )


def _glossary(evaluation: Evaluation) -> str:
    entries = {
        "Information loss": "100 · SSE/SST with every attribute scaled to its public bounds: the squared "
        "distance "
        "between records and what stands for them, over the total variation. 0 % changes nothing; 100 % is "
        "as far off as "
        "releasing the mean everywhere; noise can exceed it.",
        "Kolmogorov–Smirnov": "The greatest difference between the two distribution functions, 0 to 1.",
        "Wasserstein": "The area between the two distribution functions: how far values moved at the "
        "least, on average.",
        "Quantile error": "The greatest difference of the 5, 25, 50, 75 and 95 % quantiles.",
        "Range-count error": "Random ranges between two original values; the counts in the original and in "
        "the release are "
        "compared. The relative error divides by the true count, or by 1 % of the records where that is "
        "more.",
        "Records linked": "An intruder knows all original values of a person, scales attributes by their "
        "standard "
        "deviation, and picks the nearest released record; among equally near ones at random.",
    }
    if not evaluation.attributes:
        return ""
    return "<dl>" + "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in entries.items()) + "</dl>"


# Charts: plain values; {"css": name} is a colour of the style sheet, resolved where they are drawn


def css(name: str) -> dict[str, str]:
    """A colour of the style sheet."""
    return {"css": f"--{name}"}


def chart(figures: dict[str, Figure], key: str, figure: Figure, caption: str, height: float = 19) -> str:
    """The element that a figure is drawn into, its height in rem."""
    figures[key] = figure
    return (
        f'<figure><div class="chart" style="height:{height:g}rem" id="{key}" role="img" '
        f'aria-label="{escape(caption)}"></div>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _distribution_figure(name: str, attribute: Attribute) -> Figure:
    edges = attribute.histogram.edges

    def steps(counts: Sequence[int]) -> dict[str, Any]:
        inside = max(1, sum(counts))
        share = [100 * count / inside for count in counts]
        return {"x": [edges[0], *edges], "y": [0, *share, 0], "type": "scatter", "mode": "lines"}

    return {
        "data": [
            steps(attribute.histogram.original)
            | {
                "name": "original",
                "fill": "tozeroy",
                "fillcolor": css("original-fill"),
                "line": {"shape": "hv", "width": 1, "color": css("original"), "dash": "dot"},
            },
            steps(attribute.histogram.released)
            | {"name": "released", "line": {"shape": "hv", "width": 2, "color": css("released")}},
        ],
        "layout": {
            "xaxis": {"title": {"text": plain_text(name)}},
            "yaxis": {"title": {"text": "records"}, "ticksuffix": " %", "rangemode": "tozero"},
            "hovermode": "x unified",
        },
    }


def _quantile_figure(attribute: Attribute) -> Figure:
    before, after = list(attribute.original.quantiles), list(attribute.released.quantiles)
    ends = [min(before[0], after[0]), max(before[-1], after[-1])]
    return {
        "data": [
            {
                "x": ends,
                "y": ends,
                "type": "scatter",
                "mode": "lines",
                "hoverinfo": "skip",
                "name": "equal",
                "line": {"color": css("original"), "width": 1, "dash": "dot"},
            },
            {
                "x": before,
                "y": after,
                "type": "scatter",
                "mode": "markers",
                "name": "every percent",
                "text": [f"{level} %" for level in PERCENT],
                "hovertemplate": "%{text}<br>original %{x:.4g}<br>released %{y:.4g}<extra></extra>",
                "marker": {"color": css("released"), "size": 5},
            },
        ],
        "layout": {"xaxis": {"title": {"text": "original"}}, "yaxis": {"title": {"text": "released"}}},
    }


def _sizes_figure(sizes: Sizes) -> Figure:
    middles = [(a + b) / 2 for a, b in zip(sizes.edges, sizes.edges[1:], strict=False)]
    step = sizes.edges[1] - sizes.edges[0]
    return {
        "data": [
            {
                "x": middles,
                "y": list(sizes.counts),
                "type": "bar",
                "width": 0.9 * step,
                "marker": {"color": css("released")},
                "hovertemplate": "about %{x:.0f} records: %{y} clusters<extra></extra>",
            }
        ],
        "layout": {
            "xaxis": {"title": {"text": "records in a cluster"}},
            "yaxis": {"title": {"text": "clusters"}},
            "margin": {"l": 48, "r": 12, "t": 8, "b": 44},
        },
    }


def _noise_figure(noisy: Mapping[str, Attribute]) -> Figure:
    ratios = {
        name: attribute.noise.deviation / math.sqrt(attribute.original.variance)
        if attribute.noise and attribute.original.variance > 0
        else 0.0
        for name, attribute in noisy.items()
    }
    return _bars_figure(ratios, "noise / original spread")


def _bars_figure(values: Mapping[str, float], words: str) -> Figure:
    return {
        "data": [
            {
                "y": [plain_text(name) for name in values],
                "x": list(values.values()),
                "type": "bar",
                "orientation": "h",
                "marker": {"color": css("released")},
                "hovertemplate": "%{y}: %{x:.3g}<extra></extra>",
            }
        ],
        "layout": {
            "xaxis": {"title": {"text": words}, "rangemode": "tozero"},
            "yaxis": {"autorange": "reversed", "type": "category"},
            "margin": {"l": 48, "r": 12, "t": 8, "b": 44},
        },
    }


def _correlation_figure(names: Sequence[str], matrix: Sequence[Sequence[float]], kind: str) -> Figure:
    shown = [plain_text(name) for name in names]
    small = len(names) <= 8
    return {
        "data": [
            {
                "type": "heatmap",
                "z": [list(row) for row in matrix],
                "x": shown,
                "y": shown,
                "zmin": -1,
                "zmax": 1,
                "xgap": 1,
                "ygap": 1,
                "colorscale": [[0, css("low")], [0.5, css("middle")], [1, css("high")]],
                "showscale": kind == "released",
                "colorbar": {"thickness": 10, "outlinewidth": 0, "tickvals": [-1, 0, 1]},
                "hovertemplate": "%{y} – %{x}: %{z:.3f}<extra></extra>",
            }
            | ({"texttemplate": "%{z:.2f}"} if small else {})
        ],
        "layout": {
            "xaxis": {"type": "category", "side": "bottom", "showgrid": False},
            "yaxis": {"type": "category", "autorange": "reversed", "showgrid": False},
            "margin": {"l": 48, "r": 12, "t": 8, "b": 44},
        },
    }


def plain_text(name: str) -> str:
    """A name as plotly shall show it: it reads some HTML in labels."""
    shown = name if len(name) <= 24 else name[:23] + "…"
    return escape(shown, quote=False)


# Words and numbers


def html_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int] = (), caption: str = ""
) -> str:
    """An HTML table of plain text; nothing for no rows."""
    if not rows:
        return ""

    def style(column: int) -> str:
        return ' class="number"' if column in numbers else ' class="wrap"'

    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    top = "".join(f'<th scope="col"{style(j)}>{escape(cell)}</th>' for j, cell in enumerate(head))
    body = "".join(
        "<tr>" + "".join(f"<td{style(j)}>{escape(cell)}</td>" for j, cell in enumerate(row)) + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll" tabindex="0"><table>{title}<thead><tr>{top}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def rounded(value: float, digits: int = 4) -> str:
    """A few significant digits, thousands apart, a real minus sign."""
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 1e7 or size < 1e-4:
        mantissa, exponent = f"{value:.{digits - 2}e}".split("e")
        text = f"{mantissa}·10{str(int(exponent)).translate(_SUPERSCRIPT)}"
    elif size >= 10**digits:
        text = f"{value:,.0f}"
    else:
        text = f"{value:,.{digits}g}"
    return text.replace(",", _THIN).replace("-", "−")


def _count(value: int) -> str:
    return f"{value:,}".replace(",", _THIN)


def _percent(share: float) -> str:
    if 0 < share < 1e-5:
        return f"<{_THIN}0.001{_THIN}%"
    return f"{rounded(100 * share, 3)}{_THIN}%"


def _percent_of(share: float | None) -> str:
    return "–" if share is None else _percent(share) if share >= 0 else f"−{_percent(-share)}"


def _times(count: int) -> str:
    return {1: "only once", 2: "only twice"}.get(count, f"only {count} times")


def _names(names: Sequence[str]) -> str:
    shown = [f"<code>{escape(name)}</code>" for name in names[:8]]
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(shown) + more


def _plain_words(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "; ".join(
            ", ".join(map(str, item)) if isinstance(item, (list, tuple)) else _plain_words(item)
            for item in value
        )
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_plain_words(item)}" for name, item in value.items())
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    return rounded(float(value)) if isinstance(value, float) else str(value)


def _summary_of(name: str) -> str:
    from .methods import catalogue

    entry = catalogue().get(name)
    return f": {escape(entry.summary)}" if entry else ""
