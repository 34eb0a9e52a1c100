#include "kernels.hpp"

#include "bindings.hpp"

namespace dpmicro::bindings {

void register_kernels(py::module_& m) {
  m.def(
      "squared_distances",
      [](const py::object& table, const py::object& point, int threads,
         const py::object& progress) {
        const Matrix X(table);
        const auto p = as_vector(point);
        if (p.shape(0) != X.cols()) throw InputError("the point needs one coordinate per column");
        py::array_t<double> out(X.rows());
        double* data = out.mutable_data();
        without_gil(progress, [&](Control& control) {
          squared_distances(X.view(), p.data(), data, threads, control);
        });
        return out;
      },
      py::arg("X"), py::arg("point"), py::kw_only(), py::arg("threads") = 0,
      py::arg("progress") = py::none());

  m.def(
      "sse",
      [](const py::object& table, const py::object& labels, int threads,
         const py::object& progress) {
        const Matrix X(table);
        const auto l = as_labels(labels, X.rows());
        return without_gil(
            progress, [&](Control& control) { return sse(X.view(), l.data(), threads, control); });
      },
      py::arg("X"), py::arg("labels"), py::kw_only(), py::arg("threads") = 0,
      py::arg("progress") = py::none());
}

}  // namespace dpmicro::bindings
