#include "cost_adjustment.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace dpmicro {
namespace {

constexpr double kQuantile = 0.01;   // of two cells' records tell how many are at their border
constexpr double kDamping = 1e-3;    // Marquardt's, relative to the diagonal; ten times as much
constexpr double kMostDamping = 10;  // whenever no step along the direction helps
constexpr double kLeastDamping = 1e-9;
constexpr double kArmijo = 0.1;          // least relative decrease of ||p||^2 for a full step
constexpr double kShortestStep = 0.125;  // backtracking ends here
constexpr double kEnough = 0.01;         // share of misplaced records that the exact finish likes
constexpr double kFar = 0.05;  // above this share of misplaced records, any progress is good
constexpr int kMaxSteps = 20;

// -J, the negative Jacobian of the cell sizes by the costs, as a graph Laplacian: symmetric with
// non-negative weights and zero row sums. So it is positive semidefinite by construction, and there
// are no eigenvalues to clip.
struct Laplacian {
  std::vector<double> diagonal;
  std::vector<index_t> begin;
  std::vector<label_t> neighbour;
  std::vector<double> weight;

  void multiply(const std::vector<double>& x, std::vector<double>& out) const {
    for (std::size_t q = 0; q < diagonal.size(); ++q) {
      double sum = diagonal[q] * x[q];
      for (index_t e = begin[q]; e < begin[q + 1]; ++e) sum -= weight[e] * x[neighbour[e]];
      out[q] = sum;
    }
  }
};

// Contested records next to the border between two cells, and what it would cost to cross it.
struct Neighbour {
  label_t other;  // the cell with the higher number
  std::int32_t count;
  double margin;
};

// The contested records by the lower of the two best cells for them.
std::vector<std::vector<Neighbour>> neighbours_by_cell(const CellSearch& search,
                                                       const Quantizer& quantizer,
                                                       const Assignment& assignment) {
  std::vector<std::vector<Neighbour>> neighbours(static_cast<std::size_t>(quantizer.cells));
  for (const Contested& chunk : assignment.contested)
    for (std::size_t i = 0; i < chunk.points.size(); ++i) {
      const std::int32_t point = chunk.points[i];
      const label_t own = assignment.labels[point];
      double best = 0, second = std::numeric_limits<double>::infinity();
      label_t other = -1;
      for (std::int32_t e = chunk.begin[i]; e < chunk.begin[i + 1]; ++e) {
        const Rival& rival = chunk.rivals[e];
        const double value = rival.value + quantizer.costs[rival.cell];
        if (rival.cell == own) {
          best = value;
        } else if (value < second) {
          second = value;
          other = rival.cell;
        }
      }
      neighbours[std::min(own, other)].push_back(
          {std::max(own, other), search.count(point), second - best});
    }
  return neighbours;
}

// How many records cross the border of two cells as their costs drift apart, for every border: the
// density of the margins next to it, on both sides, from the nearest few.
Laplacian negative_jacobian(const CellSearch& search, const Quantizer& quantizer,
                            const Assignment& assignment, const std::vector<double>& margins) {
  struct Edge {
    label_t from, to;
    double weight;
  };
  std::vector<Edge> edges;
  const auto neighbours = neighbours_by_cell(search, quantizer, assignment);
  using Margins = std::vector<std::pair<double, std::int32_t>>;  // and how many records have them
  std::vector<Margins> by_other(neighbours.size());              // for one cell
  for (label_t q = 0; q < static_cast<label_t>(neighbours.size()); ++q) {
    std::vector<label_t> others;
    for (const auto& [other, count, margin] : neighbours[q]) {
      if (by_other[other].empty()) others.push_back(other);
      by_other[other].emplace_back(margin, count);
    }
    for (const label_t r : others) {
      auto& list = by_other[r];
      // Three records at least, or the estimate is nothing but noise.
      const auto wanted = std::max<index_t>(
          3, static_cast<index_t>(kQuantile *
                                  static_cast<double>(assignment.sizes[q] + assignment.sizes[r])));
      std::sort(list.begin(), list.end());
      index_t found = 0;
      const double widest = std::max(margins[q], margins[r]);
      double reach = 0;
      for (auto next = list.begin(); next != list.end() && found < wanted; ++next) {
        found += next->second;
        reach = next->first;
      }
      if (found < 3) reach = widest;
      // Duplicates cross all at once, however small the step.
      const double weight = 0.5 * static_cast<double>(found) / std::max(reach, 1e-3 * widest);
      edges.push_back({q, r, weight});
      edges.push_back({r, q, weight});
      list.clear();
    }
  }
  std::sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) {
    return std::pair(a.from, a.to) < std::pair(b.from, b.to);
  });

  Laplacian L;
  L.diagonal.assign(neighbours.size(), 0.0);
  L.begin.assign(neighbours.size() + 1, 0);
  for (const Edge& edge : edges) {
    L.diagonal[edge.from] += edge.weight;
    L.neighbour.push_back(edge.to);
    L.weight.push_back(edge.weight);
    ++L.begin[edge.from + 1];
  }
  std::partial_sum(L.begin.begin(), L.begin.end(), L.begin.begin());
  return L;
}

// (L + damping) x = p by conjugate gradients with the diagonal as preconditioner; x stays 0 where
// `fixed`.
std::vector<double> solve(const Laplacian& L, double mu, std::vector<double> p,
                          const std::vector<char>& fixed) {
  const std::size_t cells = p.size();
  const double mean =
      std::accumulate(L.diagonal.begin(), L.diagonal.end(), 0.0) / static_cast<double>(cells);
  std::vector<double> damping(cells), x(cells, 0.0), z(cells), product(cells);
  for (std::size_t q = 0; q < cells; ++q)
    damping[q] = mu * (L.diagonal[q] > 0 ? L.diagonal[q] : mean);
  const auto mask = [&](std::vector<double>& v) {
    for (std::size_t q = 0; q < cells; ++q)
      if (fixed[q]) v[q] = 0;
  };
  const auto dot = [](const std::vector<double>& a, const std::vector<double>& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
  };
  std::vector<double>& residual = p;
  const auto precondition = [&] {
    for (std::size_t q = 0; q < cells; ++q) z[q] = residual[q] / (L.diagonal[q] + damping[q]);
  };
  mask(residual);
  precondition();
  std::vector<double> direction = z;
  double rho = dot(residual, z);
  const double enough = 1e-6 * rho;
  for (int iteration = 0; iteration < 1000 && rho > enough; ++iteration) {
    L.multiply(direction, product);
    for (std::size_t q = 0; q < cells; ++q) product[q] += damping[q] * direction[q];
    mask(product);
    const double alpha = rho / dot(direction, product);
    for (std::size_t q = 0; q < cells; ++q) {
      x[q] += alpha * direction[q];
      residual[q] -= alpha * product[q];
    }
    precondition();
    const double next = dot(residual, z);
    for (std::size_t q = 0; q < cells; ++q) direction[q] = z[q] + next / rho * direction[q];
    rho = next;
  }
  return x;
}

// A cell that has more than it must, at no cost, is as it should be.
bool is_free(const Targets& targets, const Quantizer& quantizer, const Assignment& assignment,
             index_t q) {
  return targets.at_least && quantizer.costs[q] == 0 && assignment.sizes[q] >= targets.sizes[q];
}

std::vector<double> imbalance(const Targets& targets, const Quantizer& quantizer,
                              const Assignment& assignment) {
  std::vector<double> p(targets.sizes.size(), 0.0);
  for (std::size_t q = 0; q < p.size(); ++q)
    if (!is_free(targets, quantizer, assignment, static_cast<index_t>(q)))
      p[q] = static_cast<double>(assignment.sizes[q] - targets.sizes[q]);
  return p;
}

double squared_norm(const std::vector<double>& p) {
  return std::inner_product(p.begin(), p.end(), p.begin(), 0.0);
}

}  // namespace

index_t misplaced(const Targets& targets, const Quantizer& quantizer,
                  const Assignment& assignment) {
  double over = 0, under = 0;
  for (const double x : imbalance(targets, quantizer, assignment))
    (x > 0 ? over : under) += std::abs(x);
  return static_cast<index_t>(std::max(over, under));
}

void adjust_costs(const CellSearch& search, const Targets& targets,
                  const std::vector<double>& margins, int threads, Control& control,
                  Quantizer& quantizer, Assignment& assignment) {
  const auto records = static_cast<double>(search.records());
  search.assign(quantizer, margins, threads, control, assignment);
  auto p = imbalance(targets, quantizer, assignment);
  auto wrong = static_cast<double>(misplaced(targets, quantizer, assignment));
  Quantizer trial = quantizer;
  Assignment trial_assignment;
  std::vector<double> trial_p;
  const auto try_costs = [&] {
    search.assign(trial, margins, threads, control, trial_assignment);
    trial_p = imbalance(targets, trial, trial_assignment);
  };
  const auto accept = [&] {
    std::swap(quantizer.costs, trial.costs);
    std::swap(assignment, trial_assignment);
    std::swap(p, trial_p);
    wrong = static_cast<double>(misplaced(targets, quantizer, assignment));
  };

  if (wrong > 2 * kFar * records) {  // the centroids have jumped: the costs of before say little
    std::fill(trial.costs.begin(), trial.costs.end(), 0.0);
    try_costs();
    if (squared_norm(trial_p) < squared_norm(p)) accept();
  }
  double last = std::numeric_limits<double>::infinity();
  double mu = kDamping;
  for (int step = 0; step < kMaxSteps && wrong > kEnough * records; ++step) {
    // Close to the solution the sizes move in jumps; what is left is for the exact finish.
    if (wrong > (wrong > kFar * records ? 0.95 : 0.5) * last) return;
    last = wrong;
    std::vector<char> fixed(p.size());
    for (std::size_t q = 0; q < p.size(); ++q)
      fixed[q] = is_free(targets, quantizer, assignment, static_cast<index_t>(q));
    const Laplacian L = negative_jacobian(search, quantizer, assignment, margins);
    const index_t smallest = *std::min_element(assignment.sizes.begin(), assignment.sizes.end());
    bool accepted = false;
    for (; mu <= kMostDamping && !accepted; mu *= 10) {
      const auto direction = solve(L, mu, p, fixed);
      for (double t = 1; t >= kShortestStep && !accepted; t /= 2) {
        for (std::size_t q = 0; q < p.size(); ++q) {
          trial.costs[q] = quantizer.costs[q] + t * direction[q];
          if (targets.at_least) trial.costs[q] = std::min(0.0, trial.costs[q]);
        }
        try_costs();
        // A cell must not run empty: it would have no Jacobian left (Kitagawa, Merigot & Thibert
        // 2019).
        accepted =
            squared_norm(trial_p) <= (1 - kArmijo * t) * squared_norm(p) &&
            2 * *std::min_element(trial_assignment.sizes.begin(), trial_assignment.sizes.end()) >=
                smallest;
      }
      if (accepted) break;
      if (wrong <= kFar * records) break;
    }
    if (!accepted) return;
    accept();
    mu = std::max(kLeastDamping, 0.1 * mu);  // long chains of cells need almost none
  }
}

}  // namespace dpmicro
