// Step 2 of PCL: costs that give every cell roughly its size.
#pragma once

#include "cell_search.hpp"
#include "transport.hpp"

namespace dpmicro {

// Adjusts quantizer.costs until at most 1 % of the records are in the wrong cell, or no step
// helps.
//
// Guarantee: on return `assignment` is search.assign(quantizer, margins), with ||p|| (p = sizes -
//   targets) no larger than for the costs given. With targets.at_least, costs stay <= 0.
// Source: PCL, appendix A: regularised Gauss-Newton with Levenberg-Marquardt damping and Armijo
//   backtracking. The Jacobian comes from the margins next to each border (PAPERS.md, "PCL"). It is
//   symmetric, so J step = -p is solved itself instead of its normal equation (5): the same step
//   as the damping goes to zero, at the square root of the condition number.
// Cost: one search per step and one per backtracking.
void adjust_costs(const CellSearch& search, const Targets& targets,
                  const std::vector<double>& margins, int threads, Control& control,
                  Quantizer& quantizer, Assignment& assignment);

// Records that would have to change cells for the sizes to be right.
index_t misplaced(const Targets& targets, const Quantizer& quantizer, const Assignment& assignment);

}  // namespace dpmicro
