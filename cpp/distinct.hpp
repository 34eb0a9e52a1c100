// Identical records as one point with a count: tables of whole numbers have many.
#pragma once

#include <cstdint>
#include <vector>

#include "types.hpp"

namespace dpmicro {

// The distinct records of a table, in order of their first row.
struct Distinct {
  std::vector<std::int32_t> first;   // row of each point
  std::vector<std::int32_t> counts;  // rows like it
  std::vector<std::int32_t> point;   // of each row
};

// Guarantee: rows of one point have bit for bit the same values and the same weight. Empty when
//   more than half of the records are distinct: then points are not worth their while.
// Requires: X.rows fits 32 bits; weights is null or one per record.
// Cost: n d.
Distinct distinct_records(const MatrixView& X, const double* weights);

}  // namespace dpmicro
