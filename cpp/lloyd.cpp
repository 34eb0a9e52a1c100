#include "lloyd.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <chrono>
#include <numeric>
#include <random>

#include "kernels.hpp"

namespace dpmicro {
namespace {

double env(const char* name, double value) {
  const char* s = std::getenv(name);
  return s ? std::atof(s) : value;
}
static double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
double t_newton, t_transport;
int searches;

// -J, the negative Jacobian of the cell sizes by the costs: a graph Laplacian. Symmetric, with
// non-negative weights and zero row sums, so positive semidefinite by construction; nothing to clip.
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

// Raises each cost until 5 % of the cell's records leave and sees where they go: the quantile of the
// margins (second best - best) is that step.
Laplacian laplacian(const Assignment& assignment, const Quantizer& quantizer, double margin) {
  struct Leaver {
    double margin;
    label_t to;
  };
  const auto cells = static_cast<std::size_t>(quantizer.cells);
  std::vector<std::vector<Leaver>> leavers(cells);
  for (const Contested& chunk : assignment.contested)
    for (std::size_t i = 0; i < chunk.records.size(); ++i) {
      const label_t own = assignment.labels[chunk.records[i]];
      double own_value = 0, second = std::numeric_limits<double>::infinity();
      label_t to = -1;
      for (std::int32_t e = chunk.begin[i]; e < chunk.begin[i + 1]; ++e) {
        const Rival& rival = chunk.rivals[e];
        const double value = rival.value + quantizer.costs[rival.cell];
        if (rival.cell == own)
          own_value = value;
        else if (value < second) {
          second = value;
          to = rival.cell;
        }
      }
      leavers[own].push_back({second - own_value, to});
    }
  struct Edge {
    label_t from, to;
    double weight;
  };
  std::vector<Edge> edges;
  for (std::size_t q = 0; q < cells; ++q) {
    auto& list = leavers[q];
    if (list.empty()) continue;
    const auto wanted = std::max<std::size_t>(
        static_cast<std::size_t>(std::ceil(0.05 * static_cast<double>(assignment.sizes[q]))), 3);
    double step = margin;
    std::size_t moved = list.size();
    if (wanted < list.size()) {
      std::nth_element(list.begin(), list.begin() + wanted, list.end(),
                       [](const Leaver& a, const Leaver& b) { return a.margin < b.margin; });
      step = list[wanted].margin;
      moved = wanted;
    }
    step = std::max(step, 1e-3 * margin);  // duplicated records leave together, at no distance
    for (std::size_t i = 0; i < moved; ++i) {
      const auto from = static_cast<label_t>(q);
      edges.push_back({from, list[i].to, 0.5 / step});
      edges.push_back({list[i].to, from, 0.5 / step});
    }
  }
  std::sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) {
    return a.from < b.from || (a.from == b.from && a.to < b.to);
  });
  Laplacian result;
  result.diagonal.assign(cells, 0.0);
  result.begin.assign(cells + 1, 0);
  for (std::size_t e = 0; e < edges.size(); ++e) {
    result.diagonal[edges[e].from] += edges[e].weight;
    if (e > 0 && edges[e].from == edges[e - 1].from && edges[e].to == edges[e - 1].to) {
      result.weight.back() += edges[e].weight;
      continue;
    }
    result.neighbour.push_back(edges[e].to);
    result.weight.push_back(edges[e].weight);
    ++result.begin[edges[e].from + 1];
  }
  std::partial_sum(result.begin.begin(), result.begin.end(), result.begin.begin());
  return result;
}

// (L + damping diag) step = p by conjugate gradients with the diagonal as preconditioner.
std::vector<double> solve(const Laplacian& L, double damping, const std::vector<double>& p) {
  const std::size_t cells = p.size();
  double mean = 0;
  for (const double x : L.diagonal) mean += x / static_cast<double>(cells);
  std::vector<double> damped(cells);
  for (std::size_t q = 0; q < cells; ++q) damped[q] = damping * (L.diagonal[q] + mean);
  std::vector<double> x(cells, 0.0), residual = p, direction(cells), product(cells), z(cells);
  const auto precondition = [&] {
    for (std::size_t q = 0; q < cells; ++q) z[q] = residual[q] / (L.diagonal[q] + damped[q]);
  };
  const auto dot = [](const std::vector<double>& a, const std::vector<double>& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
  };
  precondition();
  direction = z;
  double rho = dot(residual, z);
  const double enough = 1e-6 * rho;
  for (std::size_t it = 0; it < 4 * cells + 10 && it < 1000 && rho > enough; ++it) {
    L.multiply(direction, product);
    for (std::size_t q = 0; q < cells; ++q) product[q] += damped[q] * direction[q];
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

class Pcl {
 public:
  Pcl(const CellSearch& search, const PclOptions& options, Control& control)
      : search_(search), options_(options), control_(control) {}

  // Optimal labels for the centroids, with the targets' sizes.
  void fit(Quantizer& quantizer, Assignment& assignment, double& margin) {
    const double a = now();
    adjust_costs(quantizer, assignment, margin);
    const double b = now();
    double used = margin;
    transport(search_, options_.targets, used, options_.threads, control_, quantizer, assignment);
    const double c = now();
    t_newton += b - a;
    t_transport += c - b;
    double contested = 0;
    for (const auto& chunk : assignment.contested) contested += (double)chunk.records.size();
    const double share = contested / (double)search_.records();
    if (env("PCL_DEBUG", 0) > 0) std::printf("   margin %g used %g share %.3f\n", margin, used, share);
    margin *= std::clamp(env("PCL_SHARE", 0.2) / std::max(share, 1e-3), 0.5, 2.0);
    margin = std::max(margin, env("PCL_USED", 1.2) * used);
  }

 private:
  std::vector<double> imbalance(const Assignment& assignment) const {
    std::vector<double> p(assignment.sizes.size());
    for (std::size_t q = 0; q < p.size(); ++q)
      p[q] = static_cast<double>(assignment.sizes[q] - options_.targets.sizes[q]);
    return p;
  }

  void adjust_costs(Quantizer& quantizer, Assignment& assignment, double margin) {
    search_.assign(quantizer, margin, options_.threads, control_, assignment);
    ++searches;
    Quantizer trial = quantizer;
    double last = 1e300;
    const double enough = env("PCL_ENOUGH", 0.002) * static_cast<double>(search_.records());
    for (int step = 0; step < (int)env("PCL_STEPS", 20); ++step) {
      const std::vector<double> p = imbalance(assignment);
      double wrong = 0, norm = 0;
      for (const double x : p) {
        wrong += std::abs(x) / 2;
        norm += x * x;
      }
      if (env("PCL_DEBUG", 0) > 0) std::printf("   step %d wrong %g norm %g\n", step, wrong, norm);
      if (wrong <= enough || wrong > env("PCL_PROGRESS",0.5) * last) return;
      last = wrong;
      const Laplacian L = laplacian(assignment, quantizer, margin);
      const std::vector<double> direction = solve(L, env("PCL_DAMP", 1e-3), p);
      bool accepted = false;
      for (double t = 1; t > 0.1 && !accepted; t /= 2) {
        for (index_t q = 0; q < quantizer.cells; ++q)
          trial.costs[q] = quantizer.costs[q] + t * direction[q];
        search_.assign(trial, margin, options_.threads, control_, trial_);
        ++searches;
        double trial_norm = 0;
        for (const double x : imbalance(trial_)) trial_norm += x * x;
        accepted = trial_norm <= (1 - env("PCL_ARMIJO", 0.1) * t) * norm;
      }
      if (!accepted) return;
      std::swap(quantizer.costs, trial.costs);
      std::swap(assignment, trial_);
    }
  }

  const CellSearch& search_;
  const PclOptions& options_;
  Control& control_;
  Assignment trial_;
};

}  // namespace

PclResult pcl(const MatrixView& X, const std::vector<label_t>& partition,
              const std::vector<double>& centroids, const PclOptions& options, Control& control) {
  const double a = now();
  const CellSearch search(X, options.weights, options.threads, control);
  const index_t n = X.rows;
  const auto cells = static_cast<index_t>(options.targets.sizes.size());
  PclResult result;
  result.quantizer = {cells, X.cols, centroids, std::vector<double>(cells, 0.0)};
  Assignment assignment;
  assignment.labels.resize(n);
  double scale;
  if (!partition.empty()) {
    for (index_t i = 0; i < n; ++i) assignment.labels[i] = partition[search.order()[i]];
    result.quantizer.centroids = search.means(assignment.labels, cells, control);
    result.distortions.push_back(
        search.distortion(assignment.labels, result.quantizer.centroids, options.threads, control));
    scale = result.distortions.back() / (double)n;
  } else {
    search.assign(result.quantizer, 0, options.threads, control, assignment);
    scale = search.distortion(assignment.labels, centroids, options.threads, control) / (double)n;
  }
  double margin = 0.3 * scale;
  t_newton = t_transport = 0;
  searches = 0;
  const double b = now();
  Pcl fitter(search, options, control);
  const double s = env("PCL_SPEED", 1.0);
  int it = 0;
  for (; it < options.max_iter; ++it) {
    fitter.fit(result.quantizer, assignment, margin);
    const auto means = search.means(assignment.labels, cells, control);
    const double d = search.distortion(assignment.labels, means, options.threads, control);
    const bool stalled = !result.distortions.empty() &&
                         result.distortions.back() - d <= env("PCL_TOL", 1e-5) * d;
    result.distortions.push_back(d);
    if (stalled || it + 1 == options.max_iter) break;
    for (std::size_t i = 0; i < means.size(); ++i)
      result.quantizer.centroids[i] += s * (means[i] - result.quantizer.centroids[i]);
  }
  result.labels.resize(n);
  for (index_t i = 0; i < n; ++i) result.labels[search.order()[i]] = assignment.labels[i];
  if (env("PCL_DEBUG", 0) >= 0)
    std::printf("build %.3f newton %.3f transport %.3f total %.3f iterations %d searches %d\n", b - a, t_newton,
                t_transport, now() - a, it + 1, searches);
  return result;
}

std::vector<double> kmeans_plus_plus(const MatrixView& X, index_t cells, std::uint64_t seed,
                                     int threads, Control& control) {
  std::mt19937_64 generator(seed);
  const auto uniform = [&] { return static_cast<double>(generator() >> 11) * 0x1p-53; };
  std::vector<double> centroids;
  std::vector<double> nearest(static_cast<std::size_t>(X.rows),
                              std::numeric_limits<double>::infinity());
  std::vector<double> distance(nearest.size());
  auto chosen = static_cast<index_t>(uniform() * static_cast<double>(X.rows));
  for (index_t q = 0; q < cells; ++q) {
    for (index_t j = 0; j < X.cols; ++j) centroids.push_back(X(chosen, j));
    squared_distances(X, centroids.data() + q * X.cols, distance.data(), threads, control);
    double total = 0;
    for (std::size_t i = 0; i < nearest.size(); ++i) {
      nearest[i] = std::min(nearest[i], distance[i]);
      total += nearest[i];
    }
    double rest = uniform() * total;
    chosen = 0;
    while (chosen + 1 < X.rows && (rest -= nearest[chosen]) >= 0) ++chosen;
  }
  return centroids;
}

void assign(const MatrixView& X, const Quantizer& quantizer, int threads, Control& control,
            label_t* labels) {
  const CellSearch search(X, nullptr, threads, control);
  Assignment assignment;
  search.assign(quantizer, 0, threads, control, assignment);
  for (index_t i = 0; i < X.rows; ++i) labels[search.order()[i]] = assignment.labels[i];
}

}  // namespace dpmicro
