#include "bindings.hpp"

#include "kernels.hpp"

namespace dpmicro::bindings {
namespace {

py::array_t<double> as_float_array(const py::object& object) {
  const auto numpy = py::module_::import("numpy");
  const py::array array = numpy.attr("asarray")(object);
  const char kind = array.dtype().kind();
  if (kind != 'f' && kind != 'i' && kind != 'u')
    throw InputError("numbers are needed; convert text, dates, booleans and objects first");
  return py::array_t<double>(array);
}

}  // namespace

Matrix::Matrix(const py::object& object) : array_(as_float_array(object)) {
  if (array_.ndim() != 2)
    throw InputError("a 2-D table is needed, rows are records; reshape a single column to (n, 1)");
  if (array_.shape(0) == 0 || array_.shape(1) == 0)
    throw InputError("the table is empty; it needs at least one record and one attribute");
  if ((array_.flags() & (py::array::c_style | py::array::f_style)) == 0)
    array_ = py::array_t<double, py::array::c_style | py::array::forcecast>(array_);
  constexpr auto kSize = static_cast<index_t>(sizeof(double));
  view_ = {array_.data(), array_.shape(0), array_.shape(1), array_.strides(0) / kSize,
           array_.strides(1) / kSize};
  // A dimension of length 1 may carry any stride; a view must not trust it.
  if (view_.rows == 1) view_.row_stride = view_.cols;
  if (view_.rows == 1 && view_.cols > 1) view_.col_stride = 1;
  if (view_.cols == 1 && view_.rows > 1) view_.row_stride = 1;
  require_finite(view_);
}

py::array_t<double, py::array::c_style> as_vector(const py::object& object) {
  auto array =
      py::array_t<double, py::array::c_style | py::array::forcecast>(as_float_array(object));
  if (array.ndim() != 1) throw InputError("a 1-D array of numbers is needed");
  if (array.shape(0) == 0) throw InputError("the array is empty; it needs at least one value");
  require_finite({array.data(), array.shape(0), 1, 1, 1});
  return array;
}

py::array_t<label_t, py::array::c_style> as_labels(const py::object& object, index_t length) {
  const auto numpy = py::module_::import("numpy");
  const py::array array = numpy.attr("asarray")(object);
  const char kind = array.dtype().kind();
  if (kind != 'i' && kind != 'u') throw InputError("labels must be whole numbers (int32)");
  if (array.ndim() != 1 || array.shape(0) != length)
    throw InputError("labels must be a 1-D array with one label per record");
  return py::array_t<label_t, py::array::c_style | py::array::forcecast>(array);
}

PythonControl::PythonControl(py::object callback) : callback_(std::move(callback)) {}

void PythonControl::poll() {
  // Taking the GIL costs microseconds and may have to wait for other Python threads, so not too
  // often.
  constexpr auto kInterval = std::chrono::milliseconds(20);
  const auto now = Clock::now();
  if (now - last_ < kInterval) return;
  last_ = now;
  const py::gil_scoped_acquire acquire;
  try {
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    if (!callback_.is_none()) callback_(share_);
  } catch (py::error_already_set& error) {
    error_.emplace(std::move(error));
    throw Cancelled();
  }
}

void PythonControl::progress(double share) {
  share_ = share;
  poll();
}

void PythonControl::rethrow() {
  if (error_) throw py::error_already_set(*error_);
  throw Cancelled();
}

}  // namespace dpmicro::bindings
