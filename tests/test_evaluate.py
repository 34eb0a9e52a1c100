"""Every figure of an evaluation against its definition."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dpmicro_native import InputError, Numeric, Schema, _core
from dpmicro_native import evaluate as module
from dpmicro_native.evaluate import Evaluation, evaluate_masked
from reference import evaluation as reference


@dataclass
class Masked:
    """What evaluate_masked reads of release.Masked."""

    names: tuple[str, ...]
    original: np.ndarray
    released: np.ndarray
    labels: dict = field(default_factory=dict)
    noise_variance: dict = field(default_factory=dict)
    means_only: bool = True


NAMES = ("a", "b", "c")
CUBE = Schema({name: Numeric(0, 1) for name in NAMES})


def masked(U: np.ndarray, V: np.ndarray, k: int = 5) -> Masked:
    names = NAMES[: U.shape[1]]
    labels = (np.arange(len(U)) // k).astype(np.int32)
    return Masked(names, np.asfortranarray(U), np.asfortranarray(V), {names: labels})


# Few distinct values, so that rows, distances and ends of ranges tie.
coarse = st.integers(0, 4).map(lambda i: i / 4)


def tables(d: int = 3) -> st.SearchStrategy[np.ndarray]:
    return st.integers(1, 90).flatmap(lambda n: arrays(float, (n, d), elements=coarse))


# The core against the definitions


@settings(max_examples=60, deadline=None)
@given(tables(), st.integers(0, 2**32 - 1), st.booleans(), st.sampled_from([1, 2]))
def test_linkage_is_that_of_all_pairs(V: np.ndarray, seed: int, noisy: bool, threads: int) -> None:
    generator = np.random.default_rng(seed)
    U = np.clip(V + generator.normal(0, 0.1, V.shape), 0, 1) if noisy else generator.permutation(V)
    own = generator.permutation(len(V))[: 1 + len(V) // 2]
    scale = generator.random(3) + 0.1
    for order in ("C", "F"):
        found = _core.linkage(U[own], own, np.array(V, order=order), scale, threads=threads)
        assert found.tolist() == reference.linked(U[own], own, V, scale).tolist()


def test_linkage_over_many_blocks_and_with_duplicates() -> None:
    generator = np.random.default_rng(3)
    U = generator.random((700, 4))
    V = U + generator.laplace(0, 0.03, U.shape)
    V[100:400] = V[0]  # one class spread over several blocks
    own = np.arange(700)
    expected = reference.linked(U, own, V, np.ones(4))
    assert _core.linkage(U, own, V, np.ones(4)).tolist() == expected.tolist()
    assert 0 < expected.mean() < 1


def test_linkage_of_an_untouched_table_is_certain_and_of_clusters_at_most_one_in_k() -> None:
    U = np.random.default_rng(0).random((300, 2))
    assert _core.linkage(U, np.arange(300), U, np.ones(2)).mean() == 1
    means = np.repeat(U.reshape(60, 5, 2).mean(axis=1), 5, axis=0)
    assert 0 < _core.linkage(U, np.arange(300), means, np.ones(2)).max() <= 1 / 5


@settings(max_examples=80, deadline=None)
@given(tables())
def test_row_classes(X: np.ndarray) -> None:
    assert _core.row_classes(X) == reference.classes(X)


def test_row_classes_take_both_zeros_as_one() -> None:
    assert _core.row_classes([[0.0, 1.0], [-0.0, 1.0], [2.0, 3.0]]) == (2, 1, 1)


@settings(max_examples=80, deadline=None)
@given(tables(), st.integers(0, 2**32 - 1), st.sampled_from([1, 2]))
def test_range_counts(X: np.ndarray, seed: int, threads: int) -> None:
    generator = np.random.default_rng(seed)
    q = int(generator.integers(1, 30))
    columns = generator.integers(0, 3, (q, 2))
    # Ends on values and between them; some ranges are empty or upside down.
    lower, upper = generator.choice([-1, 0, 0.1, 0.25, 0.5, 0.75, 1, 2], (2, q, 2))
    found = _core.range_counts(np.asfortranarray(X), columns, lower, upper, threads=threads)
    assert found.tolist() == reference.inside(X, columns, lower, upper)


def test_range_counts_refuse_unknown_columns() -> None:
    with pytest.raises(InputError, match="column that the table does not have"):
        _core.range_counts(np.zeros((2, 2)), [[0, 2]], [[0, 0]], [[1, 1]])
    with pytest.raises(InputError, match="two lower and two upper"):
        _core.range_counts(np.zeros((2, 2)), [[0, 1]], [[0, 0]], [[1, 1], [1, 1]])


samples = st.lists(st.integers(0, 12).map(lambda i: i / 8), min_size=1, max_size=30).map(sorted)


@settings(max_examples=150, deadline=None)
@given(samples, samples)
def test_distribution_distances(a: list[float], b: list[float]) -> None:
    ks, wasserstein = _core.compare_sorted(a, b)
    assert ks == pytest.approx(reference.kolmogorov_smirnov(a, b))
    assert wasserstein == pytest.approx(reference.wasserstein(a, b))


def test_distribution_distances_agree_with_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    generator = np.random.default_rng(1)
    a, b = np.sort(generator.normal(0, 1, 5000)), np.sort(generator.normal(0.2, 1.3, 3000))
    ks, wasserstein = _core.compare_sorted(a, b)
    assert ks == pytest.approx(stats.ks_2samp(a, b).statistic)
    assert wasserstein == pytest.approx(stats.wasserstein_distance(a, b))


def test_rounding_errors_are_not_another_value() -> None:
    a = np.repeat(np.arange(10) / 9, 50)
    b = a + np.random.default_rng(0).uniform(-(2.0**-31), 2.0**-31, a.shape)
    assert _core.compare_sorted(a, np.sort(b))[0] > 0.01
    assert _core.compare_sorted(a, np.sort(b), tolerance=module.TOLERANCE)[0] == 0


# The evaluation


def test_a_release_that_changes_nothing() -> None:
    U = np.random.default_rng(0).random((200, 3))
    found = evaluate_masked(masked(U, U.copy()), CUBE)
    assert (found.sse, found.mse, found.information_loss, found.covariance_error) == (0, 0, 0, 0)
    assert found.correlation_error == 0
    assert found.ranges_1d is not None
    assert found.ranges_1d.error == 0
    assert found.ranges_2d is not None
    assert found.ranges_2d.error == 0
    assert found.linkage is not None
    assert found.linkage.share == 1
    assert (found.unique, found.smallest_class) == (1, 1)
    for attribute in found.attributes.values():
        assert attribute.original == attribute.released
        assert (attribute.kolmogorov_smirnov, attribute.wasserstein, attribute.truncated) == (0, 0, 0)
        assert attribute.noise is None


def test_figures_by_their_definitions() -> None:
    generator = np.random.default_rng(5)
    U = generator.random((400, 3)) ** 2
    V = U @ np.array([[1, 0, 0], [0.5, 0.5, 0], [0, 0, 1]]) + generator.laplace(0, 0.2, U.shape)
    schema = Schema({"a": Numeric(0, 1), "b": Numeric(-5, 5), "c": Numeric(100, 400)})
    lower, width = np.array([0, -5, 100]), np.array([1, 10, 300])
    found = evaluate_masked(masked(U, V), schema)
    P = np.clip(V, 0, 1)
    raw, published = U * width + lower, P * width + lower
    assert found.sse == pytest.approx(((published - raw) ** 2).sum())
    assert found.mse == pytest.approx(((published - raw) ** 2).sum() / 400)
    assert found.sse_before_truncation == pytest.approx((((V - U) * width) ** 2).sum())
    assert found.information_loss == pytest.approx(100 * ((P - U) ** 2).sum() / ((U - U.mean(0)) ** 2).sum())
    for j, attribute in enumerate(found.attributes.values()):
        assert attribute.mean_error == pytest.approx(published[:, j].mean() - raw[:, j].mean())
        assert attribute.variance_error == pytest.approx(published[:, j].var() / raw[:, j].var() - 1)
        levels = [0.05, 0.25, 0.5, 0.75, 0.95]
        quantiles = [np.quantile(x[:, j], levels, method="inverted_cdf") for x in (raw, published)]
        assert attribute.quantile_error == pytest.approx(np.abs(quantiles[1] - quantiles[0]).max())
        assert attribute.rmse == pytest.approx(math.sqrt(((published - raw)[:, j] ** 2).mean()))
        assert attribute.truncated == pytest.approx(np.mean((V[:, j] < 0) | (V[:, j] > 1)))
        ks = reference.kolmogorov_smirnov(raw[:, j].tolist(), published[:, j].tolist())
        assert attribute.kolmogorov_smirnov == pytest.approx(ks, abs=1e-9)
        area = reference.wasserstein(raw[:, j].tolist(), published[:, j].tolist())
        assert attribute.wasserstein == pytest.approx(area)
        assert attribute.original.quantiles[0] == pytest.approx(raw[:, j].min())
        assert attribute.released.quantiles[100] == pytest.approx(published[:, j].max())
        assert sum(attribute.histogram.original) >= 0.98 * 400
        assert sum(attribute.histogram.released) >= 0.98 * 400
    before, after = (np.corrcoef(x, rowvar=False) for x in (U, P))
    assert np.array(found.correlation_released) == pytest.approx(after)
    assert found.correlation_error == pytest.approx(np.abs(after - before)[np.triu_indices(3, 1)].mean())
    difference = np.cov(P, rowvar=False) - np.cov(U, rowvar=False)
    assert found.covariance_error == pytest.approx(
        np.linalg.norm(difference) / np.linalg.norm(np.cov(U, rowvar=False))
    )
    expected = reference.linked(U, np.arange(400), P, U.std(axis=0)).mean()
    assert found.linkage is not None
    assert found.linkage.share == pytest.approx(expected, abs=1e-12)


def test_threads_do_not_change_a_figure() -> None:
    generator = np.random.default_rng(2)
    U = generator.random((3000, 3))
    given_ = masked(U, U + generator.laplace(0, 0.1, U.shape))
    assert evaluate_masked(given_, CUBE, threads=1) == evaluate_masked(given_, CUBE, threads=3)


def test_whole_numbers_are_rounded_as_they_are_released() -> None:
    schema = Schema({"a": Numeric(0.5, 10.5)})
    U = (np.array([[1.0], [3.0], [9.0], [10.0]]) - 0.5) / 10
    V = U + np.array([[0.04], [-0.04], [0.06], [0.3]])  # 0.4 rounds back; 0.6 does not; 13 is moved to 10
    found = evaluate_masked(masked(U, V), schema, whole={"a"})
    assert found.sse == pytest.approx(1.0)
    assert found.attributes["a"].truncated == 0.25
    assert found.attributes["a"].histogram.edges[0] % 1 == 0.5


def test_noise_scales_follow_the_cluster_sizes() -> None:
    U = np.random.default_rng(0).random((100, 1))
    labels = np.repeat([0, 1, 2], [60, 30, 10]).astype(np.int32)
    b, width = 0.7, 50.0  # scale of the noise on a sum, in the unit cube
    variance = sum(size * 2 * (b / size) ** 2 for size in (60, 30, 10))
    given_ = Masked(("a",), U, U.copy(), {("a",): labels}, {"a": variance})
    found = evaluate_masked(given_, Schema({"a": Numeric(0, width)}))
    noise = found.attributes["a"].noise
    assert noise is not None
    assert (noise.least, noise.median, noise.greatest) == pytest.approx(
        (b * width / 60, b * width / 30, b * width / 10)
    )
    assert noise.deviation == pytest.approx(width * math.sqrt(variance / 100))
    sizes = found.sizes["a"]
    assert (sizes.clusters, sizes.smallest, sizes.median, sizes.largest) == (3, 10, 30, 60)
    assert sum(sizes.counts) == 3


def test_large_tables_are_sampled_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(4)
    U = generator.random((3000, 3))
    V = U + generator.laplace(0, 0.02, U.shape)
    whole = evaluate_masked(masked(U, V), CUBE).linkage
    monkeypatch.setattr(module, "LINKAGE_ROWS", 1000)
    monkeypatch.setattr(module, "LINKAGE_SAMPLE", 500)
    sampled = evaluate_masked(masked(U, V), CUBE).linkage
    assert whole is not None
    assert sampled is not None
    assert (whole.known, whole.standard_error) == (3000, 0)
    assert (sampled.known, sampled.among) == (500, 3000)
    assert 0.1 < whole.share < 0.9
    assert abs(sampled.share - whole.share) < 5 * sampled.standard_error  # the draw is fixed


@pytest.mark.parametrize("n", [1, 2])
def test_tiny_tables(n: int) -> None:
    U = np.linspace(0.2, 0.8, n)[:, None]
    found = evaluate_masked(masked(U, np.full((n, 1), 0.5)), CUBE)
    assert found.correlation_error is None
    assert found.ranges_2d is None
    assert found.information_loss == (None if n == 1 else pytest.approx(100))
    json.loads(found.to_json())


def test_an_attribute_that_no_longer_varies() -> None:
    U = np.random.default_rng(0).random((50, 2))
    V = U.copy()
    V[:, 0] = 0.5
    found = evaluate_masked(masked(U, V), CUBE)
    assert found.attributes["a"].variance_error == pytest.approx(-1)
    assert found.correlation_released is not None
    assert found.correlation_released[0] == (1.0, 0.0)
    assert "NaN" not in found.to_json()


def test_drawn_records_are_linked_to_nobody() -> None:
    U = np.random.default_rng(0).random((50, 2))
    given_ = masked(U, U.copy())
    given_.means_only = False
    found = evaluate_masked(given_, CUBE)
    assert (found.linkage, found.sse_expected) == (None, None)
    assert found.correlation_error == 0


def test_absent_figures_are_left_out() -> None:
    found = Evaluation(records=7)
    assert json.loads(found.to_json()) == {"records": 7, "records_dropped": 0}
    assert "7 records" in repr(found)
    assert "curator" in repr(found)


def test_json_holds_every_figure() -> None:
    U = np.random.default_rng(0).random((60, 2))
    found = evaluate_masked(masked(U, U + 0.01), CUBE, 3)
    read = json.loads(found.to_json())
    assert read["records_dropped"] == 3
    assert read["attributes"]["b"]["kolmogorov_smirnov"] == found.attributes["b"].kolmogorov_smirnov
    assert len(read["attributes"]["a"]["original"]["quantiles"]) == 101
    assert read["linkage"]["known"] == 60
    assert "noise" not in read["attributes"]["a"]
