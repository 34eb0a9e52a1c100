#include "transport.hpp"

#include <algorithm>
#include <compare>
#include <functional>
#include <limits>
#include <utility>

namespace dpmicro {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A contested record that may leave its cell, and what that adds to the sum of values.
struct Move {
  double difference;
  std::int32_t record;
  auto operator<=>(const Move&) const = default;
};

// Moves from one cell to another, the cheapest on top. Differences hold no costs, so the order
// lasts; records that have left the cell stay in the heap until they come to the top.
struct Edge {
  label_t to;
  std::vector<Move> moves;
};

class Flow {
 public:
  Flow(const CellSearch& search, const Targets& targets, Quantizer& quantizer,
       Assignment& assignment)
      : search_(search),
        targets_(targets),
        quantizer_(quantizer),
        assignment_(assignment),
        cells_(static_cast<label_t>(quantizer.cells)),
        costs_(quantizer.costs),
        excess_(static_cast<std::size_t>(cells_)),
        edges_(static_cast<std::size_t>(cells_)) {
    for (label_t q = 0; q < cells_; ++q) excess_[q] = assignment.sizes[q] - targets.sizes[q];
    if (targets.at_least) add_slack();
    const auto nodes = excess_.size();
    raised_.assign(nodes, 0.0);
    distance_.assign(nodes, kInfinity);
    parent_.assign(nodes, -1);
    via_.assign(nodes, -1);
  }

  void solve(double& margin, int threads, Control& control) {
    gather();
    double widest = 0;  // margin that was really needed
    for (label_t source = 0; source < static_cast<label_t>(excess_.size()); ++source)
      while (excess_[source] > 0) {
        control.poll();
        if (augment(source, margin)) {
          widest = std::max(widest, most_raised_);
          continue;
        }
        // The potentials moved on, but no cell with room was within reach: look again from here.
        copy_costs();
        const index_t budget = 2 * search_.records() + 4096;
        if (static_cast<index_t>(rivals_.size()) < budget) margin *= 2;
        widest = margin;
        search_.contest(quantizer_, margin, threads, control, assignment_);
        gather();
      }
    copy_costs();
    margin = widest;
    if (targets_.at_least) {
      const double level = costs_[cells_];
      for (label_t q = 0; q < cells_; ++q)
        quantizer_.costs[q] = slack_[q] > 0 ? 0.0 : std::min(0.0, quantizer_.costs[q] - level);
    }
    for (label_t q = 0; q < cells_; ++q)
      assignment_.sizes[q] = targets_.sizes[q] + (targets_.at_least ? slack_[q] : 0);
  }

 private:
  // "At least" is "exactly" with one more cell that takes what is over: slack_[q] counts the
  // records of q that it holds. It costs nothing to be there, so a cell with slack has the same
  // cost as it.
  void add_slack() {
    slack_.assign(static_cast<std::size_t>(cells_), 0);
    index_t free = search_.records();
    for (const index_t size : targets_.sizes) free -= size;
    for (label_t q = 0; q < cells_; ++q)
      if (costs_[q] == 0 && excess_[q] > 0) slack_[q] = std::exchange(excess_[q], 0);
    for (const index_t slack : slack_) free -= slack;
    excess_.push_back(-free);
    costs_.push_back(0.0);
  }

  bool is_slack(label_t node) const { return node == cells_; }

  void copy_costs() { std::copy_n(costs_.begin(), cells_, quantizer_.costs.begin()); }

  void gather() {
    records_.clear();
    begin_.assign(1, 0);
    rivals_.clear();
    for (const Contested& chunk : assignment_.contested) {
      const auto offset = static_cast<index_t>(rivals_.size());
      records_.insert(records_.end(), chunk.records.begin(), chunk.records.end());
      rivals_.insert(rivals_.end(), chunk.rivals.begin(), chunk.rivals.end());
      for (std::size_t i = 1; i < chunk.begin.size(); ++i)
        begin_.push_back(offset + chunk.begin[i]);
    }
    for (auto& edges : edges_) edges.clear();
    for (std::size_t i = 0; i < records_.size(); ++i)
      for_each_move(static_cast<std::int32_t>(i), assignment_.labels[records_[i]],
                    [](Edge& edge, Move move) { edge.moves.push_back(move); });
    for (auto& edges : edges_)
      for (Edge& edge : edges)
        std::make_heap(edge.moves.begin(), edge.moves.end(), std::greater<>());
    std::fill(raised_.begin(), raised_.end(), 0.0);
    most_raised_ = 0;
  }

  // Calls act(edge, move) for every cell that contested record i, now in `cell`, may move to.
  template <class Act>
  void for_each_move(std::int32_t i, label_t cell, Act&& act) {
    double own = 0;
    for (index_t e = begin_[i]; e < begin_[i + 1]; ++e)
      if (rivals_[e].cell == cell) own = rivals_[e].value;
    auto& edges = edges_[cell];
    for (index_t e = begin_[i]; e < begin_[i + 1]; ++e) {
      const label_t to = rivals_[e].cell;
      if (to == cell) continue;
      auto edge = std::lower_bound(edges.begin(), edges.end(), to,
                                   [](const Edge& a, label_t b) { return a.to < b; });
      if (edge == edges.end() || edge->to != to) edge = edges.insert(edge, Edge{to, {}});
      act(*edge, Move{rivals_[e].value - own, i});
    }
  }

  void reach(label_t node, double distance, label_t parent, std::int32_t via) {
    if (distance >= distance_[node]) return;
    if (distance_[node] == kInfinity) touched_.push_back(node);
    distance_[node] = distance;
    parent_[node] = parent;
    via_[node] = via;
    heap_.emplace_back(distance, node);
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }

  // Sends one record's worth from the source along the shortest path to a cell with room. False: no
  // such path within what the contested records can prove; the potentials have moved all the same.
  bool augment(label_t source, double margin) {
    heap_.clear();
    touched_.clear();
    reach(source, 0, -1, -1);
    // A cell left out of a record's rivals was more than `margin` away, and is at least margin -
    // most_raised_ away by now; up to there the graph is complete.
    const double limit = margin - most_raised_;
    label_t target = -1;
    double length = limit;
    while (!heap_.empty()) {
      const auto [distance, node] = heap_.front();
      if (distance > limit) break;
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      heap_.pop_back();
      if (distance > distance_[node]) continue;
      if (excess_[node] < 0) {
        target = node;
        length = distance;
        break;
      }
      relax(node, distance);
    }
    for (const label_t node : touched_) {
      if (distance_[node] < length) {
        costs_[node] += length - distance_[node];
        raised_[node] += length - distance_[node];
        most_raised_ = std::max(most_raised_, raised_[node]);
      }
      distance_[node] = kInfinity;
    }
    if (target < 0) return false;
    ++excess_[target];
    --excess_[source];
    for (label_t node = target; node != source; node = parent_[node])
      move(parent_[node], node, via_[node]);
    return true;
  }

  void relax(label_t node, double distance) {
    if (is_slack(node)) {
      for (label_t r = 0; r < cells_; ++r)
        if (slack_[r] > 0) reach(r, distance + std::max(0.0, costs_[r] - costs_[node]), node, -1);
      return;
    }
    if (targets_.at_least)
      reach(cells_, distance + std::max(0.0, costs_[cells_] - costs_[node]), node, -1);
    for (Edge& edge : edges_[node]) {
      auto& moves = edge.moves;
      while (!moves.empty() && assignment_.labels[records_[moves.front().record]] != node) {
        std::pop_heap(moves.begin(), moves.end(), std::greater<>());  // it has left this cell
        moves.pop_back();
      }
      if (moves.empty()) continue;
      const double margin = moves.front().difference + (costs_[edge.to] - costs_[node]);
      reach(edge.to, distance + std::max(0.0, margin), node, moves.front().record);
    }
  }

  void move(label_t from, label_t to, std::int32_t i) {
    if (is_slack(from)) {
      --slack_[to];
    } else if (is_slack(to)) {
      ++slack_[from];
    } else {
      assignment_.labels[records_[i]] = to;
      for_each_move(i, to, [](Edge& edge, Move move) {
        edge.moves.push_back(move);
        std::push_heap(edge.moves.begin(), edge.moves.end(), std::greater<>());
      });
    }
  }

  const CellSearch& search_;
  const Targets& targets_;
  Quantizer& quantizer_;
  Assignment& assignment_;
  const label_t cells_;
  std::vector<double> costs_;    // node potentials; the slack's comes last
  std::vector<index_t> excess_;  // records too many, by node
  std::vector<index_t> slack_;   // by cell; empty for exact sizes
  std::vector<double> raised_;   // since the last search
  double most_raised_ = 0;
  // The contested records, flattened, and the cell graph that they make.
  std::vector<std::int32_t> records_;
  std::vector<index_t> begin_;
  std::vector<Rival> rivals_;
  std::vector<std::vector<Edge>> edges_;  // by cell, in order of the other cell
  // Dijkstra's search.
  std::vector<double> distance_;
  std::vector<label_t> parent_;
  std::vector<std::int32_t> via_;
  std::vector<label_t> touched_;
  std::vector<std::pair<double, label_t>> heap_;
};

}  // namespace

void transport(const CellSearch& search, const Targets& targets, double& margin, int threads,
               Control& control, Quantizer& quantizer, Assignment& assignment) {
  Flow(search, targets, quantizer, assignment).solve(margin, threads, control);
}

}  // namespace dpmicro
