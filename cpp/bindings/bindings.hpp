// What the binding files share: numpy arrays as views, errors, signals and progress.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <chrono>
#include <optional>

#include "parallel.hpp"
#include "types.hpp"

namespace dpmicro::bindings {

namespace py = pybind11;

// One function per family; module.cpp lists them.
void register_evaluate(py::module_& m);
void register_kernels(py::module_& m);
void register_lloyd(py::module_& m);
void register_moments(py::module_& m);
void register_noise(py::module_& m);
void register_partition(py::module_& m);
void register_safepub(py::module_& m);

// A 2-D float64 array that is C- or F-contiguous, so that it can be viewed; other arrays were
// converted once. Keeps the numpy array alive.
class Matrix {
 public:
  // InputError for what is not a 2-D table of at least one row and one column of finite numbers.
  explicit Matrix(const py::object& array);
  const MatrixView& view() const { return view_; }
  index_t rows() const { return view_.rows; }
  index_t cols() const { return view_.cols; }

 private:
  py::array_t<double> array_;
  MatrixView view_;
};

// A 1-D contiguous float64 array of at least one finite number.
py::array_t<double, py::array::c_style> as_vector(const py::object& array);

// A 1-D contiguous int32 array of the given length.
py::array_t<label_t, py::array::c_style> as_labels(const py::object& array, index_t length);

// Lets Ctrl-C and a progress callback into a computation that runs without the GIL. Now and then it
// takes the GIL, runs pending signal handlers, and calls progress(share) if there is a callback.
class PythonControl final : public Control {
 public:
  explicit PythonControl(py::object callback);
  void poll() override;
  void progress(double share) override;
  // Call with the GIL held after catching Cancelled: rethrows what stopped the computation.
  [[noreturn]] void rethrow();

 private:
  using Clock = std::chrono::steady_clock;
  py::object callback_;
  double share_ = 0;
  Clock::time_point last_{};  // long ago, so that the first poll looks at once
  std::optional<py::error_already_set> error_;
};

// Runs compute(control) without the GIL. Safe because inputs are views on arrays that the caller
// holds for the duration, and nothing inside touches a Python object except through the control.
template <class Compute>
auto without_gil(const py::object& callback, Compute&& compute) {
  PythonControl control(callback);
  try {
    const py::gil_scoped_release release;
    return compute(control);
  } catch (const Cancelled&) {
    control.rethrow();
  }
}

}  // namespace dpmicro::bindings
