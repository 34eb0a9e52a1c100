#include "moments.hpp"

#include "bindings.hpp"
#include "kernels.hpp"
#include "repair.hpp"
#include "sample.hpp"

namespace dpmicro::bindings {
namespace {

using Array = py::array_t<double, py::array::c_style | py::array::forcecast>;

// A C-contiguous array of finite numbers with the given number of dimensions.
Array as_array(const py::object& object, py::ssize_t dimensions) {
  const auto flat = as_vector(py::module_::import("numpy").attr("ravel")(object));
  const Array array(py::module_::import("numpy").attr("asarray")(object));
  if (array.ndim() != dimensions)
    throw InputError("an array with " + std::to_string(dimensions) + " dimensions is needed");
  return array;
}

// A stack of square matrices, count x d x d.
Array as_matrices(const py::object& object) {
  const Array array = as_array(object, 3);
  if (array.shape(1) != array.shape(2)) throw InputError("square matrices are needed");
  return array;
}

Array copy_of(const Array& array) {
  Array copy(std::vector<py::ssize_t>(array.shape(), array.shape() + array.ndim()));
  std::copy_n(array.data(), array.size(), copy.mutable_data());
  return copy;
}

std::span<const label_t> span_of(const py::array_t<label_t, py::array::c_style>& labels) {
  return {labels.data(), static_cast<std::size_t>(labels.shape(0))};
}

py::tuple bind_cluster_moments(const py::object& table, const py::object& labels, int order,
                               bool marginal_covariance, bool marginal_skewness, int threads,
                               const py::object& progress) {
  if (order < 0 || order > 2)
    throw InputError("order must be 0 (mean), 1 (and covariance) or 2 (and coskewness)");
  const Matrix X(table);
  require_measurable(X.view());
  const auto l = as_labels(labels, X.rows());
  const Clusters clusters =
      without_gil(progress, [&](Control&) { return group_records(span_of(l)); });
  const index_t count = clusters.count(), d = X.cols();

  py::array_t<std::int64_t> sizes(count);
  for (index_t c = 0; c < count; ++c) sizes.mutable_data()[c] = clusters.size(c);
  Array mean({count, d}), covariance(0), skewness(0);
  if (order >= 1) {
    if (marginal_covariance)
      covariance = Array({count, d});
    else
      covariance = Array({count, d, d});
  }
  if (order >= 2) {
    if (marginal_skewness)
      skewness = Array({count, d});
    else
      skewness = Array({count, d, d, d});
  }
  double *m = mean.mutable_data(), *q = covariance.mutable_data(), *phi = skewness.mutable_data();
  without_gil(progress, [&](Control& control) {
    cluster_moments(X.view(), clusters, {order, marginal_covariance, marginal_skewness}, m, q, phi,
                    threads, control);
  });
  return py::make_tuple(sizes, mean, order >= 1 ? py::object(covariance) : py::none(),
                        order >= 2 ? py::object(skewness) : py::none());
}

py::tuple bind_symmetric_eigen(const py::object& matrices, int threads,
                               const py::object& progress) {
  const Array A = as_matrices(matrices);
  const index_t count = A.shape(0), d = A.shape(1);
  Array values({count, d}), vectors({count, d, d}), gaps({count, d});
  double *lambda = values.mutable_data(), *v = vectors.mutable_data(), *gap = gaps.mutable_data();
  without_gil(progress, [&](Control& control) {
    symmetric_eigen(A.data(), count, d, lambda, v, gap, threads, control);
  });
  return py::make_tuple(values, vectors, gaps);
}

Array bind_nearest_psd(const py::object& matrices, const py::object& diagonals, int threads,
                       const py::object& progress) {
  Array A = copy_of(as_matrices(matrices));
  const Array b = as_array(diagonals, 2);
  if (b.shape(0) != A.shape(0) || b.shape(1) != A.shape(1))
    throw InputError("one diagonal of the matrices' dimension is needed for each matrix");
  if (std::any_of(b.data(), b.data() + b.size(), [](double x) { return x < 0; }))
    throw InputError("a negative diagonal is never positive semidefinite; clip it at 0");
  double* data = A.mutable_data();
  without_gil(progress, [&](Control& control) {
    nearest_psd(data, b.data(), A.shape(0), A.shape(1), threads, control);
  });
  return A;
}

Array bind_nearest_orthogonal(const py::object& matrices, int threads, const py::object& progress) {
  Array A = copy_of(as_matrices(matrices));
  double* data = A.mutable_data();
  without_gil(progress, [&](Control& control) {
    nearest_orthogonal(data, A.shape(0), A.shape(1), threads, control);
  });
  return A;
}

// Covariance as matrices (count x d x d) or as variances (count x d); says which.
Array as_covariance(const py::object& object, index_t count, index_t d, bool& marginal) {
  marginal = py::len(py::module_::import("numpy").attr("shape")(object)) == 2;
  const Array Q = as_array(object, marginal ? 2 : 3);
  if (Q.shape(0) != count || Q.shape(1) != d || (!marginal && Q.shape(2) != d))
    throw InputError("covariances and other moments must be of the same clusters and attributes");
  return Q;
}

py::tuple bind_feasible_skewness(const py::object& covariance, const py::object& skewness,
                                 int threads, const py::object& progress) {
  Array phi = copy_of(as_array(skewness, 2));
  const index_t count = phi.shape(0), d = phi.shape(1);
  bool marginal = false;
  const Array Q = as_covariance(covariance, count, d, marginal);
  py::array_t<bool> shrunk(count);
  double* data = phi.mutable_data();
  bool* flags = shrunk.mutable_data();
  without_gil(progress, [&](Control& control) {
    feasible_skewness(Q.data(), marginal, data, count, d, flags, threads, control);
  });
  return py::make_tuple(phi, shrunk);
}

Array bind_sample_records(const py::object& labels, const py::object& mean,
                          const py::object& covariance, const py::object& skewness, int threads,
                          const py::object& progress) {
  const Array mu = as_array(mean, 2);
  const index_t count = mu.shape(0), d = mu.shape(1);
  const auto l = as_labels(labels, py::len(labels));
  ClusterMoments moments;
  moments.mean = mu.data();
  Array Q, phi;
  if (!covariance.is_none()) {
    Q = as_covariance(covariance, count, d, moments.marginal);
    moments.covariance = Q.data();
  }
  if (!skewness.is_none()) {
    if (covariance.is_none()) throw InputError("skewness without covariance cannot be sampled");
    phi = as_array(skewness, 2);
    if (phi.shape(0) != count || phi.shape(1) != d)
      throw InputError("the marginal skewness of every cluster and attribute is needed");
    moments.skewness = phi.data();
  }
  const Clusters clusters =
      without_gil(progress, [&](Control&) { return group_records(span_of(l)); });
  if (clusters.count() != count)
    throw InputError("the labels name another number of clusters than there are moments for");
  const RandomSource source = RandomSource::current();
  Array out({static_cast<index_t>(l.shape(0)), d});
  double* data = out.mutable_data();
  without_gil(progress, [&](Control& control) {
    sample_records(clusters, d, moments, data, source, threads, control);
  });
  return out;
}

}  // namespace

void register_moments(py::module_& m) {
  const auto define = [&](const char* name, auto function, auto... arguments) {
    m.def(name, function, arguments..., py::kw_only(), py::arg("threads") = 0,
          py::arg("progress") = py::none());
  };
  define("cluster_moments", &bind_cluster_moments, py::arg("X"), py::arg("labels"),
         py::arg("order"), py::arg("marginal_covariance"), py::arg("marginal_skewness"));
  define("symmetric_eigen", &bind_symmetric_eigen, py::arg("matrices"));
  define("nearest_psd", &bind_nearest_psd, py::arg("matrices"), py::arg("diagonals"));
  define("nearest_orthogonal", &bind_nearest_orthogonal, py::arg("matrices"));
  define("feasible_skewness", &bind_feasible_skewness, py::arg("covariance"), py::arg("skewness"));
  define("sample_records", &bind_sample_records, py::arg("labels"), py::arg("mean"),
         py::arg("covariance"), py::arg("skewness"));
}

}  // namespace dpmicro::bindings
