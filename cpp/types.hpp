// What every part of the core speaks: views on tables, labels, errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace dpmicro {

using index_t = std::ptrdiff_t;
using label_t = std::int32_t;  // clusters are numbered 0.. in order of creation

// Input that cannot be worked on. The message gives the reason and the remedy and never a value of
// the table. Becomes dpmicro_native.errors.InputError.
struct InputError : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

// The system's random generator failed; nothing may be released. Becomes errors.GeneratorError.
struct GeneratorError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The caller asked to stop (Ctrl-C, or an exception in the progress callback).
struct Cancelled : std::runtime_error {
  Cancelled() : std::runtime_error("cancelled") {}
};

// An n x d table of doubles that somebody else owns; rows are records. Strides are in elements, so
// C and F order are both views, never copies.
struct MatrixView {
  const double* data = nullptr;
  index_t rows = 0;
  index_t cols = 0;
  index_t row_stride = 0;
  index_t col_stride = 0;

  double operator()(index_t i, index_t j) const { return data[i * row_stride + j * col_stride]; }
};

}  // namespace dpmicro
