#include "evaluate.hpp"

#include "bindings.hpp"

namespace dpmicro::bindings {
namespace {

using Indices = py::array_t<std::int64_t, py::array::c_style | py::array::forcecast>;

std::span<const double> span_of(const py::array_t<double, py::array::c_style>& array) {
  return {array.data(), static_cast<std::size_t>(array.size())};
}

}  // namespace

void register_evaluate(py::module_& m) {
  m.def(
      "compare_sorted",
      [](const py::object& original, const py::object& released, double tolerance) {
        const auto a = as_vector(original), b = as_vector(released);
        const auto found = without_gil(py::none(), [&](Control&) {
          return compare_sorted(span_of(a), span_of(b), tolerance);
        });
        return std::pair(found.kolmogorov_smirnov, found.wasserstein);
      },
      py::arg("a"), py::arg("b"), py::kw_only(), py::arg("tolerance") = 0.0);

  m.def(
      "row_classes",
      [](const py::object& table) {
        const Matrix X(table);
        const RowClasses found = without_gil(
            py::none(), [&](Control& control) { return row_classes(X.view(), control); });
        return std::tuple(found.distinct, found.unique, found.smallest);
      },
      py::arg("X"));

  m.def(
      "linkage",
      [](const py::object& original, const py::object& own, const py::object& released,
         const py::object& scale, int threads) {
        const Matrix X(original), Y(released);
        const Indices rows(own);
        const auto divisors = as_vector(scale);
        if (rows.ndim() != 1 || rows.shape(0) != X.rows())
          throw InputError("one row of the released table is needed per original record");
        if (divisors.shape(0) != X.cols()) throw InputError("one scale is needed per column");
        py::array_t<double> out(X.rows());
        double* data = out.mutable_data();
        const std::vector<index_t> own_rows(rows.data(), rows.data() + rows.size());
        without_gil(py::none(), [&](Control& control) {
          linkage(X.view(), own_rows.data(), Y.view(), divisors.data(), data, threads, control);
        });
        return out;
      },
      py::arg("original"), py::arg("own"), py::arg("released"), py::arg("scale"), py::kw_only(),
      py::arg("threads") = 0);

  m.def(
      "range_counts",
      [](const py::object& table, const py::object& columns, const py::object& lower,
         const py::object& upper, int threads) {
        const Matrix X(table), low(lower), high(upper);
        const Indices pairs(columns);
        const index_t count = low.rows();
        if (low.cols() != 2 || high.cols() != 2 || high.rows() != count || pairs.ndim() != 2 ||
            pairs.shape(0) != count || pairs.shape(1) != 2)
          throw InputError("ranges need two columns, two lower and two upper ends each");
        std::vector<Range> ranges(static_cast<std::size_t>(count));
        for (index_t q = 0; q < count; ++q) {
          for (index_t side = 0; side < 2; ++side) {
            ranges[q].column[side] = pairs.at(q, side);
            ranges[q].lower[side] = low.view()(q, side);
            ranges[q].upper[side] = high.view()(q, side);
          }
        }
        py::array_t<std::int64_t> out(count);
        std::int64_t* data = out.mutable_data();
        without_gil(py::none(), [&](Control& control) {
          range_counts(X.view(), ranges, data, threads, control);
        });
        return out;
      },
      py::arg("X"), py::arg("columns"), py::arg("lower"), py::arg("upper"), py::kw_only(),
      py::arg("threads") = 0);
}

}  // namespace dpmicro::bindings
