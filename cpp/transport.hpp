// The exact finish of PCL: optimal assignment to given centroids with given cell sizes.
#pragma once

#include <vector>

#include "cell_search.hpp"

namespace dpmicro {

// How many records each cell must have: exactly, or at least (then the rest is free).
struct Targets {
  std::vector<index_t> sizes;
  bool at_least = false;
};

// Moves records between cells until every cell has its size, adjusting the costs.
//
// Guarantee: among all assignments with those sizes, the labels minimise sum weight ||x -
//   centroid||^2 up to rounding, and every record's cell minimises weight ||x - centroid||^2 + cost
//   up to rounding. With at_least, costs are <= 0, and 0 where a cell has more than it must.
// Requires: `assignment` is search.assign(quantizer, margins); sum of the sizes = number of records
//   (<= with at_least); no cost positive with at_least.
// Source: PCL, Theorem 4, by successive shortest paths (PAPERS.md, "PCL"). The cell graph's edge
// q->r
//   weighs min over x in q of (value in r - value in q); costs are the node potentials, so reduced
//   weights are margins and never negative. Only contested records are looked at; a cell's moves
//   are listed anew, up to a wider margin, when a path gets longer than what is known about them.
// Cost: one early-ending Dijkstra search over the cells per record in the wrong cell; a new listing
//   of a cell looks at every other cell. Returns how many of those there were: more
//   than a few say that the margin is narrow.
index_t transport(const CellSearch& search, const Targets& targets,
                  const std::vector<double>& margins, Control& control, Quantizer& quantizer,
                  Assignment& assignment);

}  // namespace dpmicro
