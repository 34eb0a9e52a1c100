#include "lloyd.hpp"

#include <pybind11/stl.h>

#include "bindings.hpp"
#include "kernels.hpp"

namespace dpmicro::bindings {
namespace {

py::array_t<double> as_table(const std::vector<double>& values, index_t rows, index_t cols) {
  py::array_t<double> out({rows, cols});
  std::copy(values.begin(), values.end(), out.mutable_data());
  return out;
}

template <class T>
py::array_t<T> as_array(const std::vector<T>& values) {
  return py::array_t<T>(static_cast<py::ssize_t>(values.size()), values.data());
}

}  // namespace

void register_lloyd(py::module_& m) {
  m.def(
      "pcl",
      [](const py::object& table, const std::vector<index_t>& sizes, bool at_least,
         const py::object& partition, const std::vector<py::object>& centroids,
         const py::object& weights, int max_iter, double speed, std::uint64_t seed, int threads,
         const py::object& progress) {
        const Matrix X(table);
        require_measurable(X.view());
        PclOptions options;
        options.targets = {sizes, at_least};
        options.max_iter = max_iter;
        options.speed = speed;
        options.seed = seed;
        options.threads = threads;
        py::array_t<double, py::array::c_style> w;
        if (!weights.is_none()) {
          w = as_vector(weights);
          if (w.shape(0) != X.rows()) throw InputError("weights must have one entry per record");
          options.weights = w.data();
        }
        std::vector<PclStart> starts;
        if (!partition.is_none()) {
          const auto labels = as_labels(partition, X.rows());
          starts.push_back({{labels.data(), labels.data() + labels.size()}, {}});
        }
        for (const py::object& given : centroids) {
          const Matrix start(given);
          require_measurable(start.view());
          starts.emplace_back();
          for (index_t q = 0; q < start.rows(); ++q)
            for (index_t j = 0; j < start.cols(); ++j)
              starts.back().centroids.push_back(start.view()(q, j));
        }
        const PclResult result = without_gil(progress, [&](Control& control) {
          return pcl(X.view(), std::move(starts), options, control);
        });
        return py::make_tuple(
            as_array(result.labels),
            as_table(result.quantizer.centroids, result.quantizer.cells, X.cols()),
            as_array(result.quantizer.costs), as_array(result.distortions));
      },
      py::arg("X"), py::arg("sizes"), py::kw_only(), py::arg("at_least") = false,
      py::arg("partition") = py::none(), py::arg("centroids") = std::vector<py::object>(),
      py::arg("weights") = py::none(), py::arg("max_iter") = 100,
      py::arg("speed") = PclOptions().speed, py::arg("seed") = 0, py::arg("threads") = 0,
      py::arg("progress") = py::none());

  m.def(
      "kmeans_plus_plus",
      [](const py::object& table, index_t cells, std::uint64_t seed, int threads,
         const py::object& progress) {
        const Matrix X(table);
        require_measurable(X.view());
        const auto centroids = without_gil(progress, [&](Control& control) {
          return kmeans_plus_plus(X.view(), cells, seed, threads, control);
        });
        return as_table(centroids, cells, X.cols());
      },
      py::arg("X"), py::arg("cells"), py::kw_only(), py::arg("seed") = 0, py::arg("threads") = 0,
      py::arg("progress") = py::none());

  m.def(
      "assign_cells",
      [](const py::object& table, const py::object& centroids, const py::object& costs, int threads,
         const py::object& progress) {
        const Matrix X(table);
        require_measurable(X.view());
        const Matrix c(centroids);
        require_measurable(c.view());
        const auto p = as_vector(costs);
        if (c.cols() != X.cols())
          throw InputError("the centroids must have as many columns as the table");
        if (p.shape(0) != c.rows()) throw InputError("costs must have one entry per centroid");
        Quantizer quantizer{c.rows(), c.cols(), {}, {p.data(), p.data() + p.size()}};
        for (index_t q = 0; q < c.rows(); ++q)
          for (index_t j = 0; j < c.cols(); ++j) quantizer.centroids.push_back(c.view()(q, j));
        py::array_t<label_t> labels(X.rows());
        label_t* data = labels.mutable_data();
        without_gil(progress,
                    [&](Control& control) { assign(X.view(), quantizer, threads, control, data); });
        return labels;
      },
      py::arg("X"), py::arg("centroids"), py::arg("costs"), py::kw_only(), py::arg("threads") = 0,
      py::arg("progress") = py::none());
}

}  // namespace dpmicro::bindings
