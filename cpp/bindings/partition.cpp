#include <string>

#include "bindings.hpp"
#include "kernels.hpp"
#include "mdav.hpp"
#include "ordered.hpp"

namespace dpmicro::bindings {
namespace {

std::span<const double> as_span(const py::array_t<double, py::array::c_style>& x) {
  return {x.data(), static_cast<std::size_t>(x.shape(0))};
}

MdavPath path_of(const std::string& name) {
  if (name == "auto") return MdavPath::automatic;
  if (name == "tree") return MdavPath::tree;
  if (name == "scan") return MdavPath::scan;
  throw InputError("path must be auto, tree or scan");
}

}  // namespace

void register_partition(py::module_& m) {
  m.def(
      "mdav",
      [](const py::object& table, index_t k, int threads, const py::object& progress,
         const std::string& path) {
        const Matrix X(table);
        require_measurable(X.view());
        const MdavPath chosen = path_of(path);
        py::array_t<label_t> labels(X.rows());
        label_t* out = labels.mutable_data();
        without_gil(progress,
                    [&](Control& control) { mdav(X.view(), k, threads, control, out, chosen); });
        return labels;
      },
      py::arg("X"), py::arg("k"), py::kw_only(), py::arg("threads") = 0,
      py::arg("progress") = py::none(), py::arg("path") = "auto");

  m.def(
      "vmdav",
      [](const py::object& table, index_t k, double gamma, int threads,
         const py::object& progress) {
        const Matrix X(table);
        require_measurable(X.view());
        py::array_t<label_t> labels(X.rows());
        label_t* out = labels.mutable_data();
        without_gil(progress,
                    [&](Control& control) { vmdav(X.view(), k, gamma, threads, control, out); });
        return labels;
      },
      py::arg("X"), py::arg("k"), py::arg("gamma"), py::kw_only(), py::arg("threads") = 0,
      py::arg("progress") = py::none());

  m.def(
      "individual_ranking",
      [](const py::object& values, index_t k, const py::object& progress) {
        const auto x = as_vector(values);
        py::array_t<label_t> labels(x.shape(0));
        label_t* out = labels.mutable_data();
        without_gil(progress,
                    [&](Control& control) { individual_ranking(as_span(x), k, control, out); });
        return labels;
      },
      py::arg("x"), py::arg("k"), py::kw_only(), py::arg("progress") = py::none());

  m.def(
      "insensitive_ranking",
      [](const py::object& table, index_t k, const py::object& progress) {
        const Matrix U(table);
        py::array_t<label_t> labels(U.rows());
        label_t* out = labels.mutable_data();
        without_gil(progress,
                    [&](Control& control) { insensitive_ranking(U.view(), k, control, out); });
        return labels;
      },
      py::arg("U"), py::arg("k"), py::kw_only(), py::arg("progress") = py::none());

  m.def(
      "optimal_univariate",
      [](const py::object& values, double noise_cost, index_t min_size,
         const py::object& progress) {
        const auto x = as_vector(values);
        require_measurable({x.data(), x.shape(0), 1, 1, 1});
        py::array_t<label_t> labels(x.shape(0));
        label_t* out = labels.mutable_data();
        without_gil(progress, [&](Control& control) {
          optimal_univariate(as_span(x), noise_cost, min_size, control, out);
        });
        return labels;
      },
      py::arg("x"), py::kw_only(), py::arg("noise_cost") = 0.0, py::arg("min_size") = 1,
      py::arg("progress") = py::none());
}

}  // namespace dpmicro::bindings
