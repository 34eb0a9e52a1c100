#include "cell_search.hpp"

#include <cmath>
#include <limits>
#include <numeric>

namespace dpmicro {
namespace {

constexpr index_t kLeaf = 32;
constexpr index_t kMinChunk = 2048;
constexpr index_t kMaxChunks = 256;  // every chunk starts from all cells, so there may not be many
// What rounding may add to a bound, relative to the terms it is made of.
constexpr double kRounding = 1e-12;

double squared_distance(const double* x, index_t stride, const double* centroid, index_t dims) {
  double sum = 0;
  for (index_t j = 0; j < dims; ++j) {
    const double difference = x[j * stride] - centroid[j];
    sum += difference * difference;
  }
  return sum;
}

}  // namespace

struct CellSearch::Scratch {
  std::vector<std::vector<label_t>> cells;  // the cells that are left, by depth
  std::vector<double> lead;    // of the best cell, first the distances that it comes from
  std::vector<double> values;  // cells x kLeaf
};

CellSearch::CellSearch(const MatrixView& X, const double* weights, int threads, Control& control)
    : dims_(X.cols), weighted_(weights != nullptr), order_(static_cast<std::size_t>(X.rows)) {
  std::iota(order_.begin(), order_.end(), 0);
  const index_t chunk_size = std::max(kMinChunk, (X.rows + kMaxChunks - 1) / kMaxChunks);

  // The shape of the tree depends on the number of records only. Breadth first, so that the nodes
  // above the chunks come first.
  nodes_.push_back({0, static_cast<std::int32_t>(X.rows)});
  std::vector<char> in_chunk{0};
  std::vector<std::int32_t> above;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const Node node = nodes_[i];
    const index_t size = node.end - node.begin;
    const bool chunk = in_chunk[i] == 0 && size <= chunk_size;
    if (chunk) chunks_.push_back(static_cast<std::int32_t>(i));
    if (!chunk && in_chunk[i] == 0) above.push_back(static_cast<std::int32_t>(i));
    if (size <= kLeaf) continue;
    const auto half = static_cast<std::int32_t>(node.begin + size / 2);
    nodes_[i].left = static_cast<std::int32_t>(nodes_.size());
    for (const Node child : {Node{node.begin, half}, Node{half, node.end}}) {
      nodes_.push_back(child);
      in_chunk.push_back(static_cast<char>(chunk || in_chunk[i] != 0));
    }
  }
  std::sort(chunks_.begin(), chunks_.end(),
            [&](std::int32_t a, std::int32_t b) { return nodes_[a].begin < nodes_[b].begin; });

  middle_.resize(nodes_.size() * dims_);
  width_.resize(nodes_.size() * dims_);
  points_.resize(static_cast<std::size_t>(X.rows) * dims_);
  if (weighted_) {
    lightest_.resize(nodes_.size());
    heaviest_.resize(nodes_.size());
    weights_.resize(static_cast<std::size_t>(X.rows));
  }
  for (const std::int32_t node : above) {
    arrange(node, X, weights);
    control.poll();
  }
  parallel_for(static_cast<index_t>(chunks_.size()), 1, threads, control,
               [&](index_t begin, index_t end) {
                 std::vector<std::int32_t> stack(chunks_.begin() + begin, chunks_.begin() + end);
                 while (!stack.empty()) {
                   const std::int32_t node = stack.back();
                   stack.pop_back();
                   arrange(node, X, weights);
                   if (nodes_[node].left < 0) continue;
                   stack.push_back(nodes_[node].left + 1);
                   stack.push_back(nodes_[node].left);
                 }
               });
}

// Measures a node's box and halves it along its widest side, or lays out a leaf's records.
void CellSearch::arrange(std::int32_t index, const MatrixView& X, const double* weights) {
  const Node node = nodes_[index];
  const auto begin = order_.begin() + node.begin;
  const auto end = order_.begin() + node.end;
  index_t widest = 0;
  for (index_t j = 0; j < dims_; ++j) {
    double low = X(*begin, j), high = low;
    for (auto i = begin; i != end; ++i) {
      low = std::min(low, X(*i, j));
      high = std::max(high, X(*i, j));
    }
    middle_[index * dims_ + j] = low + (high - low) / 2;
    width_[index * dims_ + j] = high - low;
    if (width_[index * dims_ + j] > width_[index * dims_ + widest]) widest = j;
  }
  if (weighted_) {
    lightest_[index] = heaviest_[index] = weights[*begin];
    for (auto i = begin; i != end; ++i) {
      lightest_[index] = std::min(lightest_[index], weights[*i]);
      heaviest_[index] = std::max(heaviest_[index], weights[*i]);
    }
  }
  if (node.left >= 0) {
    std::nth_element(begin, order_.begin() + nodes_[node.left].end, end,
                     [&](std::int32_t a, std::int32_t b) {
                       const double x = X(a, widest), y = X(b, widest);
                       return x < y || (x == y && a < b);  // one outcome on every platform
                     });
    return;
  }
  std::sort(begin, end);
  double* point = points_.data() + static_cast<index_t>(node.begin) * dims_;
  for (index_t j = 0; j < dims_; ++j)
    for (auto i = begin; i != end; ++i) *point++ = X(*i, j);
  if (weighted_)
    for (index_t i = node.begin; i < node.end; ++i) weights_[i] = weights[order_[i]];
}

void CellSearch::assign(const Quantizer& quantizer, const std::vector<double>& margins, int threads,
                        Control& control, Assignment& out) const {
  out.labels.resize(order_.size());
  out.contested.resize(chunks_.size());
  parallel_for(
      static_cast<index_t>(chunks_.size()), 1, threads, control, [&](index_t begin, index_t end) {
        Scratch scratch;
        for (index_t chunk = begin; chunk < end; ++chunk) {
          Contested& contested = out.contested[chunk];
          contested.records.clear();
          contested.begin.assign(1, 0);
          contested.rivals.clear();
          scratch.cells.resize(1);
          scratch.cells[0].resize(static_cast<std::size_t>(quantizer.cells));
          std::iota(scratch.cells[0].begin(), scratch.cells[0].end(), 0);
          visit(chunks_[chunk], quantizer, margins, 0, scratch, out.labels.data(), contested);
        }
      });
  out.sizes.assign(static_cast<std::size_t>(quantizer.cells), 0);
  for (const label_t q : out.labels) ++out.sizes[q];
}

CellSearch::Point CellSearch::point(std::int32_t position) const {
  const Node* node = &nodes_[0];
  while (node->left >= 0) {
    const Node* const left = &nodes_[node->left];
    node = position < left->end ? left : left + 1;
  }
  return {points_.data() + node->begin * dims_ + (position - node->begin), node->end - node->begin,
          weighted_ ? weights_[position] : 1.0};
}

void CellSearch::extend(Region& region, std::int32_t position) const {
  const Point x = point(position);
  if (region.low.empty()) {
    for (index_t j = 0; j < dims_; ++j) region.low.push_back(x.values[j * x.stride]);
    region.high = region.low;
    region.lightest = region.heaviest = x.weight;
  }
  for (index_t j = 0; j < dims_; ++j) {
    region.low[j] = std::min(region.low[j], x.values[j * x.stride]);
    region.high[j] = std::max(region.high[j], x.values[j * x.stride]);
  }
  region.lightest = std::min(region.lightest, x.weight);
  region.heaviest = std::max(region.heaviest, x.weight);
}

void CellSearch::leads(const Quantizer& quantizer, const Region& region, label_t own,
                       std::vector<double>& out) const {
  std::vector<double> middle(dims_), width(dims_);
  for (index_t j = 0; j < dims_; ++j) {
    width[j] = region.high[j] - region.low[j];
    middle[j] = region.low[j] + width[j] / 2;
  }
  const Box box{middle.data(), width.data(), region.lightest, region.heaviest};
  const double own_distance = squared_distance(middle.data(), 1, quantizer.centroid(own), dims_);
  out.resize(static_cast<std::size_t>(quantizer.cells));
  for (label_t q = 0; q < static_cast<label_t>(quantizer.cells); ++q)
    out[q] = least_lead(quantizer, box, own, own_distance, q,
                        squared_distance(middle.data(), 1, quantizer.centroid(q), dims_));
}

void CellSearch::rivals(const Quantizer& quantizer, std::int32_t position, label_t own,
                        double margin, const std::vector<label_t>& candidates,
                        std::vector<Rival>& out) const {
  const Point x = point(position);
  const auto value = [&](label_t q) {
    return x.weight * squared_distance(x.values, x.stride, quantizer.centroid(q), dims_);
  };
  const double limit = value(own) + quantizer.costs[own] + margin;
  for (const label_t q : candidates) {
    const double v = value(q);
    if (q == own || v + quantizer.costs[q] <= limit) out.push_back({q, v});
  }
}

// How far cell z is ahead of cell r at least, anywhere in a box, rounding allowed for; distances
// are from the middle. |x-r|^2 - |x-z|^2 is linear in x with slope 2(z-r), so its least value in
// the box is the one in the middle minus sum_j |z_j - r_j| width_j.
double CellSearch::least_lead(const Quantizer& quantizer, const Box& box, label_t z,
                              double z_distance, label_t r, double r_distance) const {
  const double *a = quantizer.centroid(z), *b = quantizer.centroid(r);
  double swing = 0;
  for (index_t j = 0; j < dims_; ++j) swing += std::abs(a[j] - b[j]) * box.width[j];
  double least = r_distance - z_distance - swing;
  if (weighted_) least = std::min(box.lightest * least, box.heaviest * least);
  const double z_cost = quantizer.costs[z], r_cost = quantizer.costs[r];
  const double scale =
      box.heaviest * (r_distance + z_distance + swing) + std::abs(r_cost) + std::abs(z_cost);
  return least + (r_cost - z_cost) - kRounding * scale;
}

// Leaves out the cells that cannot come within the margin anywhere in the node's box. A rival
// within the margin of a record's best cell is within it of any other cell as well, so comparing
// with the one that is best in the middle is enough. The best cells of the box's records are among
// those that this one does not lead everywhere; the widest of their margins will do for all.
void CellSearch::visit(std::int32_t index, const Quantizer& quantizer,
                       const std::vector<double>& margins, index_t depth, Scratch& scratch,
                       label_t* labels, Contested& contested) const {
  const Node& node = nodes_[index];
  const Box box{middle_.data() + index * dims_, width_.data() + index * dims_,
                weighted_ ? lightest_[index] : 1.0, weighted_ ? heaviest_[index] : 1.0};
  if (static_cast<index_t>(scratch.cells.size()) < depth + 2) scratch.cells.resize(depth + 2);
  const std::vector<label_t>& all = scratch.cells[depth];
  std::vector<label_t>& left = scratch.cells[depth + 1];

  std::vector<double>& lead = scratch.lead;
  lead.resize(all.size());
  std::size_t best = 0;
  double best_value = std::numeric_limits<double>::infinity();
  for (std::size_t r = 0; r < all.size(); ++r) {
    lead[r] = squared_distance(box.middle, 1, quantizer.centroid(all[r]), dims_);
    const double value = box.heaviest * lead[r] + quantizer.costs[all[r]];
    if (value < best_value) {
      best_value = value;
      best = r;
    }
  }
  const double best_distance = lead[best];
  double widest = margins[all[best]];
  for (std::size_t r = 0; r < all.size(); ++r) {
    lead[r] = r == best ? 0 : least_lead(quantizer, box, all[best], best_distance, all[r], lead[r]);
    if (lead[r] <= 0) widest = std::max(widest, margins[all[r]]);
  }
  left.clear();
  for (std::size_t r = 0; r < all.size(); ++r)
    if (lead[r] <= widest) left.push_back(all[r]);
  if (left.size() == 1) {
    std::fill(labels + node.begin, labels + node.end, left[0]);
  } else if (node.left < 0) {
    visit_leaf(node, quantizer, margins, left, scratch, labels, contested);
  } else {
    const std::int32_t child = node.left;  // scratch.cells may move below, node does not
    visit(child, quantizer, margins, depth + 1, scratch, labels, contested);
    visit(child + 1, quantizer, margins, depth + 1, scratch, labels, contested);
  }
}

void CellSearch::visit_leaf(const Node& node, const Quantizer& quantizer,
                            const std::vector<double>& margins, const std::vector<label_t>& cells,
                            Scratch& scratch, label_t* labels, Contested& contested) const {
  const index_t size = node.end - node.begin;
  const double* points = points_.data() + static_cast<index_t>(node.begin) * dims_;
  scratch.values.resize(cells.size() * kLeaf);
  double best[kLeaf];
  label_t best_cell[kLeaf];
  std::fill_n(best, kLeaf, std::numeric_limits<double>::infinity());
  std::fill_n(best_cell, kLeaf, 0);
  for (std::size_t r = 0; r < cells.size(); ++r) {
    double* value = scratch.values.data() + r * kLeaf;
    const double* centroid = quantizer.centroid(cells[r]);
    std::fill_n(value, size, 0.0);
    for (index_t j = 0; j < dims_; ++j) {
      const double* x = points + j * size;
      const double c = centroid[j];
      for (index_t i = 0; i < size; ++i) {
        const double difference = x[i] - c;
        value[i] += difference * difference;
      }
    }
    if (weighted_)
      for (index_t i = 0; i < size; ++i) value[i] *= weights_[node.begin + i];
    const double cost = quantizer.costs[cells[r]];
    for (index_t i = 0; i < size; ++i) {
      const bool better = value[i] + cost < best[i];
      best[i] = better ? value[i] + cost : best[i];
      best_cell[i] = better ? cells[r] : best_cell[i];
    }
  }
  double limit[kLeaf];
  for (index_t i = 0; i < size; ++i) limit[i] = best[i] + margins[best_cell[i]];
  std::int32_t within[kLeaf] = {};
  for (std::size_t r = 0; r < cells.size(); ++r) {
    const double* value = scratch.values.data() + r * kLeaf;
    const double cost = quantizer.costs[cells[r]];
    for (index_t i = 0; i < size; ++i) within[i] += value[i] + cost <= limit[i];
  }
  std::copy_n(best_cell, size, labels + node.begin);
  for (index_t i = 0; i < size; ++i) {
    if (within[i] < 2) continue;
    contested.records.push_back(static_cast<std::int32_t>(node.begin + i));
    for (std::size_t r = 0; r < cells.size(); ++r) {
      const double value = scratch.values[r * kLeaf + i];
      if (value + quantizer.costs[cells[r]] <= limit[i])
        contested.rivals.push_back({cells[r], value});
    }
    contested.begin.push_back(static_cast<std::int32_t>(contested.rivals.size()));
  }
}

std::vector<double> CellSearch::means(const std::vector<label_t>& labels, index_t cells,
                                      Control& control) const {
  // Sums of differences to the cell's first record: no cancellation, and identical records have
  // exactly their own value as mean.
  std::vector<double> first(static_cast<std::size_t>(cells * dims_));
  std::vector<double> sum(first.size(), 0.0);
  std::vector<double> total(static_cast<std::size_t>(cells), 0.0);
  for (std::size_t index = 0; index < nodes_.size(); ++index) {
    const Node& node = nodes_[index];
    if ((index & 0xFFF) == 0) control.poll();
    if (node.left >= 0) continue;
    const index_t size = node.end - node.begin;
    const double* points = points_.data() + static_cast<index_t>(node.begin) * dims_;
    for (index_t i = 0; i < size; ++i) {
      const label_t q = labels[node.begin + i];
      const double weight = weighted_ ? weights_[node.begin + i] : 1.0;
      double* base = first.data() + q * dims_;
      if (total[q] == 0)
        for (index_t j = 0; j < dims_; ++j) base[j] = points[j * size + i];
      total[q] += weight;
      for (index_t j = 0; j < dims_; ++j)
        sum[q * dims_ + j] += weight * (points[j * size + i] - base[j]);
    }
  }
  for (index_t q = 0; q < cells; ++q)
    for (index_t j = 0; j < dims_; ++j) first[q * dims_ + j] += sum[q * dims_ + j] / total[q];
  return first;
}

std::vector<double> CellSearch::mean_values(const std::vector<label_t>& labels,
                                            const std::vector<double>& centroids,
                                            Control& control) const {
  std::vector<double> sum(centroids.size() / dims_, 0.0), count(sum.size(), 0.0);
  for (std::size_t index = 0; index < nodes_.size(); ++index) {
    const Node& node = nodes_[index];
    if ((index & 0xFFF) == 0) control.poll();
    if (node.left >= 0) continue;
    const index_t size = node.end - node.begin;
    const double* points = points_.data() + static_cast<index_t>(node.begin) * dims_;
    for (index_t i = 0; i < size; ++i) {
      const label_t q = labels[node.begin + i];
      const double weight = weighted_ ? weights_[node.begin + i] : 1.0;
      sum[q] += weight * squared_distance(points + i, size, centroids.data() + q * dims_, dims_);
      ++count[q];
    }
  }
  for (std::size_t q = 0; q < sum.size(); ++q) sum[q] /= std::max(1.0, count[q]);
  return sum;
}

double CellSearch::distortion(const std::vector<label_t>& labels,
                              const std::vector<double>& centroids, int threads,
                              Control& control) const {
  std::vector<double> partial(chunks_.size(), 0.0);
  parallel_for(static_cast<index_t>(chunks_.size()), 1, threads, control,
               [&](index_t begin, index_t end) {
                 std::vector<std::int32_t> stack(chunks_.begin() + begin, chunks_.begin() + end);
                 while (!stack.empty()) {
                   const Node& node = nodes_[stack.back()];
                   stack.pop_back();
                   if (node.left >= 0) {
                     stack.push_back(node.left + 1);
                     stack.push_back(node.left);
                     continue;
                   }
                   const index_t size = node.end - node.begin;
                   const double* points = points_.data() + static_cast<index_t>(node.begin) * dims_;
                   for (index_t i = 0; i < size; ++i) {
                     const double* c = centroids.data() + labels[node.begin + i] * dims_;
                     double distance = 0;
                     for (index_t j = 0; j < dims_; ++j) {
                       const double difference = points[j * size + i] - c[j];
                       distance += difference * difference;
                     }
                     partial[begin] += weighted_ ? weights_[node.begin + i] * distance : distance;
                   }
                 }
               });
  return std::accumulate(partial.begin(), partial.end(), 0.0);
}

}  // namespace dpmicro
