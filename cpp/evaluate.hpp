// How far a release is from its original, where a plain computation would cost n^2 or an extra
// sort.
#pragma once

#include <span>

#include "parallel.hpp"
#include "types.hpp"

namespace dpmicro {

// Two distances between the distributions of two samples of one attribute.
struct DistributionDistance {
  double kolmogorov_smirnov;  // greatest difference of the distribution functions
  double wasserstein;         // area between them
};

// Compares two sorted samples, of any sizes, in one merge.
//
// Guarantee: values that lie within the tolerance of the smallest of their run count as equal for
// the
//   first distance: a mean that left the grid by a rounding error must not look like another value.
// Requires: both sorted in ascending order and not empty.
// Cost: a.size() + b.size().
DistributionDistance compare_sorted(std::span<const double> a, std::span<const double> b,
                                    double tolerance);

// The classes of rows that are equal in every column.
struct RowClasses {
  index_t distinct;  // how many classes there are
  index_t unique;    // rows that no other row equals
  index_t smallest;  // rows in the smallest class
};

// Guarantee: exact; rows with the same hash are compared value by value. 0.0 and -0.0 are equal.
// Cost: n (d + log n); 16 bytes per row.
RowClasses row_classes(const MatrixView& X, Control& control);

// Distance-based record linkage: out[i] is the chance that an intruder who knows original record i
// and picks the nearest released record, any one of those equally near, picks row own[i].
//
// Guarantee: equals the brute-force program over all pairs, for every number of threads.
// Requires: the same columns on both sides; own[i] a row of released; a scale per column by which
// both
//   sides are divided before distances are taken.
// Cost: a sort of the released rows by their widest attribute and a copy of them; then per record
// the
//   rows that lie within its own distance on that attribute, and no more than are needed to meet a
//   nearer one.
void linkage(const MatrixView& original, const index_t* own, const MatrixView& released,
             const double* scale, double* out, int threads, Control& control);

// A query that counts the records with lower <= value <= upper on two attributes.
struct Range {
  index_t column[2];
  double lower[2];
  double upper[2];
};

// counts[q] = number of records inside ranges[q].
//
// Guarantee: exact, ends included; a range whose upper end is below its lower one is empty.
// Requires: finite ends.
// Cost: with c columns and p pairs of columns named by q ranges, n (c log q + p) + p q^2, instead
// of
//   n q; 2 bytes per record and column.
void range_counts(const MatrixView& X, std::span<const Range> ranges, std::int64_t* counts,
                  int threads, Control& control);

}  // namespace dpmicro
