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

void Assignment::hold(std::int32_t point, const std::vector<Holding>& held) {
  const auto most = std::max_element(
      held.begin(), held.end(), [](const auto& a, const auto& b) { return a.count < b.count; });
  labels[point] = most->cell;
  for (const auto& holding : held)
    if (holding.cell != most->cell) parts.push_back({point, holding.cell, holding.count});
}

struct CellSearch::Scratch {
  std::vector<std::vector<label_t>> cells;  // the cells that are left, by depth
  std::vector<double> lead;    // of the best cell, first the distances that it comes from
  std::vector<double> values;  // cells x kLeaf
};

CellSearch::CellSearch(const MatrixView& X, const double* weights, const std::int32_t* counts,
                       int threads, Control& control)
    : dims_(X.cols),
      records_(counts == nullptr ? X.rows : std::accumulate(counts, counts + X.rows, index_t{0})),
      weighted_(weights != nullptr),
      order_(static_cast<std::size_t>(X.rows)) {
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
  if (counts != nullptr) {
    counts_.reserve(order_.size());
    for (const std::int32_t row : order_) counts_.push_back(counts[row]);
  }
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
  out.parts.clear();
  out.contested.resize(chunks_.size());
  parallel_for(
      static_cast<index_t>(chunks_.size()), 1, threads, control, [&](index_t begin, index_t end) {
        Scratch scratch;
        for (index_t chunk = begin; chunk < end; ++chunk) {
          Contested& contested = out.contested[chunk];
          contested.points.clear();
          contested.begin.assign(1, 0);
          contested.rivals.clear();
          scratch.cells.resize(1);
          scratch.cells[0].resize(static_cast<std::size_t>(quantizer.cells));
          std::iota(scratch.cells[0].begin(), scratch.cells[0].end(), 0);
          visit(chunks_[chunk], quantizer, margins, 0, scratch, out.labels.data(), contested);
          contested.points.shrink_to_fit();
          contested.begin.shrink_to_fit();
          contested.rivals.shrink_to_fit();
        }
      });
  out.sizes.assign(static_cast<std::size_t>(quantizer.cells), 0);
  for (std::size_t i = 0; i < out.labels.size(); ++i)
    out.sizes[out.labels[i]] += count(static_cast<index_t>(i));
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

void CellSearch::leads(const Quantizer& quantizer, const std::vector<double>& columns,
                       const Region& region, label_t own, std::vector<double>& out) const {
  const auto cells = static_cast<std::size_t>(quantizer.cells);
  std::vector<double> distance(cells, 0.0), swing(cells, 0.0);
  for (index_t j = 0; j < dims_; ++j) {
    const double width = region.high[j] - region.low[j];
    const double middle = region.low[j] + width / 2;
    const double* column = columns.data() + j * quantizer.cells;
    const double own_value = column[own];
    for (std::size_t q = 0; q < cells; ++q) {
      distance[q] += (middle - column[q]) * (middle - column[q]);
      swing[q] += std::abs(own_value - column[q]) * width;
    }
  }
  const Box box{nullptr, nullptr, region.lightest, region.heaviest};
  out.resize(cells);
  for (std::size_t q = 0; q < cells; ++q)
    out[q] = bounded_lead(box, distance[own], distance[q], swing[q], quantizer.costs[own],
                          quantizer.costs[q]);
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
// the box is the one in the middle minus the swing sum_j |z_j - r_j| width_j.
double CellSearch::bounded_lead(const Box& box, double z_distance, double r_distance, double swing,
                                double z_cost, double r_cost) const {
  double least = r_distance - z_distance - swing;
  if (weighted_) least = std::min(box.lightest * least, box.heaviest * least);
  const double scale =
      box.heaviest * (r_distance + z_distance + swing) + std::abs(r_cost) + std::abs(z_cost);
  return least + (r_cost - z_cost) - kRounding * scale;
}

double CellSearch::least_lead(const Quantizer& quantizer, const Box& box, label_t z,
                              double z_distance, label_t r, double r_distance) const {
  const double *a = quantizer.centroid(z), *b = quantizer.centroid(r);
  double swing = 0;
  for (index_t j = 0; j < dims_; ++j) swing += std::abs(a[j] - b[j]) * box.width[j];
  return bounded_lead(box, z_distance, r_distance, swing, quantizer.costs[z], quantizer.costs[r]);
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
    contested.points.push_back(static_cast<std::int32_t>(node.begin + i));
    for (std::size_t r = 0; r < cells.size(); ++r) {
      const double value = scratch.values[r * kLeaf + i];
      if (value + quantizer.costs[cells[r]] <= limit[i])
        contested.rivals.push_back({cells[r], value});
    }
    contested.begin.push_back(static_cast<std::int32_t>(contested.rivals.size()));
  }
}

std::vector<std::int32_t> CellSearch::at_label(const Assignment& assignment) const {
  std::vector<std::int32_t> left = counts_;
  for (const Part& part : assignment.parts) left[part.point] -= part.count;
  return left;
}

// Calls act(values, stride, weight, count, cell) for all that some cell holds of a leaf's points.
template <class Act>
void CellSearch::for_each_holding(const Node& leaf, const Assignment& assignment,
                                  const std::vector<std::int32_t>& at_label, Act&& act) const {
  const index_t size = leaf.end - leaf.begin;
  const double* points = points_.data() + static_cast<index_t>(leaf.begin) * dims_;
  const auto weight = [&](index_t position) { return weighted_ ? weights_[position] : 1.0; };
  for (index_t i = 0; i < size; ++i)
    act(points + i, size, weight(leaf.begin + i), at_label.empty() ? 1 : at_label[leaf.begin + i],
        assignment.labels[leaf.begin + i]);
  auto part =
      std::lower_bound(assignment.parts.begin(), assignment.parts.end(), leaf.begin,
                       [](const Part& p, std::int32_t position) { return p.point < position; });
  for (; part != assignment.parts.end() && part->point < leaf.end; ++part)
    act(points + (part->point - leaf.begin), size, weight(part->point), part->count, part->cell);
}

std::vector<double> CellSearch::means(const Assignment& assignment, index_t cells,
                                      Control& control) const {
  // Sums of differences to the cell's first record: no cancellation, and identical records have
  // exactly their own value as mean.
  std::vector<double> first(static_cast<std::size_t>(cells * dims_));
  std::vector<double> sum(first.size(), 0.0);
  std::vector<double> total(static_cast<std::size_t>(cells), 0.0);
  const auto left = at_label(assignment);
  for (std::size_t index = 0; index < nodes_.size(); ++index) {
    if ((index & 0xFFF) == 0) control.poll();
    if (nodes_[index].left >= 0) continue;
    for_each_holding(
        nodes_[index], assignment, left,
        [&](const double* x, index_t stride, double weight, std::int32_t count, label_t q) {
          double* base = first.data() + q * dims_;
          if (total[q] == 0)
            for (index_t j = 0; j < dims_; ++j) base[j] = x[j * stride];
          weight *= count;
          total[q] += weight;
          for (index_t j = 0; j < dims_; ++j)
            sum[q * dims_ + j] += weight * (x[j * stride] - base[j]);
        });
  }
  for (index_t q = 0; q < cells; ++q)
    for (index_t j = 0; j < dims_; ++j) first[q * dims_ + j] += sum[q * dims_ + j] / total[q];
  return first;
}

std::vector<double> CellSearch::mean_values(const Assignment& assignment,
                                            const std::vector<double>& centroids,
                                            Control& control) const {
  std::vector<double> sum(centroids.size() / dims_, 0.0), total(sum.size(), 0.0);
  const auto left = at_label(assignment);
  for (std::size_t index = 0; index < nodes_.size(); ++index) {
    if ((index & 0xFFF) == 0) control.poll();
    if (nodes_[index].left >= 0) continue;
    for_each_holding(
        nodes_[index], assignment, left,
        [&](const double* x, index_t stride, double weight, std::int32_t count, label_t q) {
          sum[q] +=
              weight * count * squared_distance(x, stride, centroids.data() + q * dims_, dims_);
          total[q] += count;
        });
  }
  for (std::size_t q = 0; q < sum.size(); ++q) sum[q] /= std::max(1.0, total[q]);
  return sum;
}

double CellSearch::distortion(const Assignment& assignment, const std::vector<double>& centroids,
                              int threads, Control& control) const {
  std::vector<double> partial(chunks_.size(), 0.0);
  const auto left = at_label(assignment);
  parallel_for(
      static_cast<index_t>(chunks_.size()), 1, threads, control, [&](index_t begin, index_t end) {
        std::vector<std::int32_t> stack(chunks_.begin() + begin, chunks_.begin() + end);
        while (!stack.empty()) {
          const Node& node = nodes_[stack.back()];
          stack.pop_back();
          if (node.left >= 0) {
            stack.push_back(node.left + 1);
            stack.push_back(node.left);
            continue;
          }
          for_each_holding(
              node, assignment, left,
              [&](const double* x, index_t stride, double weight, std::int32_t count, label_t q) {
                partial[begin] += weight * count *
                                  squared_distance(x, stride, centroids.data() + q * dims_, dims_);
              });
        }
      });
  return std::accumulate(partial.begin(), partial.end(), 0.0);
}

}  // namespace dpmicro
