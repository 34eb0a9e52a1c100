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
  double least;  // no move on the edge has a smaller difference
  std::vector<Move> moves;

  void push(Move move) {
    least = std::min(least, move.difference);
    moves.push_back(move);
  }
};

// The moves of the records that were in `cell` at some time, up to a margin. A move that is not
// listed costs at least `bound` - cost of `cell`, then and later: costs only rise, and a record's
// best value rises by no more than the cost of `cell`.
struct Listing {
  label_t cell;
  double bound;  // margin + cost of the cell at that time
};

class Flow {
 public:
  Flow(const CellSearch& search, const Targets& targets, const std::vector<double>& margins,
       Control& control, Quantizer& quantizer, Assignment& assignment)
      : search_(search),
        targets_(targets),
        control_(control),
        quantizer_(quantizer),
        assignment_(assignment),
        cells_(static_cast<label_t>(quantizer.cells)),
        costs_(quantizer.costs),
        excess_(static_cast<std::size_t>(cells_)),
        usual_(margins),
        margins_(margins),
        knowledge_(static_cast<std::size_t>(cells_)),
        slot_(static_cast<std::size_t>(search.records()), -1),
        edges_(static_cast<std::size_t>(cells_)) {
    for (label_t q = 0; q < cells_; ++q) {
      excess_[q] = assignment.sizes[q] - targets.sizes[q];
      knowledge_[q].push_back(q);
      listings_.push_back({q, margins_[q] + costs_[q]});
    }
    if (targets.at_least) add_slack();
    const auto nodes = excess_.size();
    distance_.assign(nodes, kInfinity);
    parent_.assign(nodes, -1);
    via_.assign(nodes, -1);
    difference_.assign(nodes, 0.0);
    gather();
  }

  index_t solve() {
    for (label_t source = 0; source < static_cast<label_t>(excess_.size()); ++source)
      while (excess_[source] > 0) {
        control_.poll();
        augment(source);
      }
    std::copy_n(costs_.begin(), cells_, quantizer_.costs.begin());
    if (targets_.at_least) {
      const double level = costs_[cells_];
      for (label_t q = 0; q < cells_; ++q)
        quantizer_.costs[q] = slack_[q] > 0 ? 0.0 : std::min(0.0, quantizer_.costs[q] - level);
    }
    for (label_t q = 0; q < cells_; ++q)
      assignment_.sizes[q] = targets_.sizes[q] + (targets_.at_least ? slack_[q] : 0);
    return widenings_;
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

  void gather() {
    for (Contested& chunk : assignment_.contested) {
      const std::size_t offset = rivals_.size();
      rivals_.insert(rivals_.end(), chunk.rivals.begin(), chunk.rivals.end());
      for (std::size_t i = 0; i < chunk.records.size(); ++i) {
        const std::int32_t record = chunk.records[i];
        const label_t cell = assignment_.labels[record];
        slot_[record] = static_cast<std::int32_t>(slots_.size());
        slots_.push_back({offset + chunk.begin[i], chunk.begin[i + 1] - chunk.begin[i], cell});
        for_each_move(record, cell, append);
      }
      control_.poll();
      chunk = {};  // memory: the next search lists them anew
    }
    for (auto& edges : edges_) {
      heapify(edges);
      control_.poll();
    }
  }

  static void append(Edge& edge, Move move) { edge.push(move); }

  static void heapify(std::vector<Edge>& edges) {
    for (Edge& edge : edges) std::make_heap(edge.moves.begin(), edge.moves.end(), std::greater<>());
  }

  // The edge between two cells, or where it would be.
  std::vector<Edge>::iterator find_edge(label_t from, label_t to) {
    return std::lower_bound(edges_[from].begin(), edges_[from].end(), to,
                            [](const Edge& edge, label_t cell) { return edge.to < cell; });
  }

  // Calls act(edge, move) for every cell that a contested record, now in `cell`, may move to.
  template <class Act>
  void for_each_move(std::int32_t record, label_t cell, Act&& act) {
    const Slot& slot = slots_[slot_[record]];
    const Rival* const first = rivals_.data() + slot.begin;
    const Rival* const last = first + slot.count;
    const double own =
        std::find_if(first, last, [&](const Rival& rival) { return rival.cell == cell; })->value;
    auto& edges = edges_[cell];
    for (const Rival* rival = first; rival != last; ++rival) {
      if (rival->cell == cell) continue;
      auto edge = find_edge(cell, rival->cell);
      if (edge == edges.end() || edge->to != rival->cell)
        edge = edges.insert(edge, Edge{rival->cell, kInfinity, {}});
      act(*edge, Move{rival->value - own, record});
    }
  }

  // The moves out of a node are known up to this reduced weight.
  double known(label_t node) const {
    if (is_slack(node)) return kInfinity;
    double least = kInfinity;
    for (const std::int32_t listing : knowledge_[node])
      least = std::min(least, listings_[listing].bound - costs_[listings_[listing].cell]);
    return least;
  }

  void find_members() {
    if (!members_.empty()) return;
    members_.resize(static_cast<std::size_t>(cells_));
    regions_.resize(static_cast<std::size_t>(cells_));
    for (std::size_t i = 0; i < assignment_.labels.size(); ++i) {
      add_member(assignment_.labels[i], static_cast<std::int32_t>(i));
      if (i % 0x1000 == 0) control_.poll();
    }
  }

  void add_member(label_t cell, std::int32_t record) {
    members_[cell].push_back(record);
    search_.extend(regions_[cell], record);
  }

  // How far cell `own` is ahead of every other cell, for any record that it holds.
  void find_leads(label_t own) {
    find_members();
    quantizer_.costs.assign(costs_.begin(), costs_.begin() + cells_);
    search_.leads(quantizer_, regions_[own], own, leads_);
  }

  // The distance from which on a move out of a visited cell that is not listed may matter: one that
  // brings another cell nearer, and nearer than the nearest with room.
  double suspicion(label_t cell) {
    find_leads(cell);
    const double listed = std::max(0.0, known(cell));
    double least = kInfinity;
    for (label_t r = 0; r < cells_; ++r) {
      const double through = distance_[cell] + std::max(listed, leads_[r]);
      if (r != cell && through < std::min(distance_[r], nearest_)) least = std::min(least, through);
    }
    return least;
  }

  // Lists the moves of all records in the cell anew, up to its margin.
  void widen(label_t cell) {
    find_members();
    auto members = std::exchange(members_[cell], {});
    std::sort(members.begin(), members.end());
    members.erase(std::unique(members.begin(), members.end()), members.end());
    std::erase_if(members, [&](std::int32_t i) { return assignment_.labels[i] != cell; });
    regions_[cell] = {};
    for (const std::int32_t record : members) add_member(cell, record);
    find_leads(cell);
    std::vector<label_t> candidates;
    for (label_t r = 0; r < cells_; ++r)
      if (r == cell || leads_[r] <= margins_[cell]) candidates.push_back(r);

    ++widenings_;
    edges_[cell].clear();
    bool complete = true;
    for (const std::int32_t record : members) {
      if (slot_[record] < 0) {
        slot_[record] = static_cast<std::int32_t>(slots_.size());
        slots_.emplace_back();
      }
      Slot& slot = slots_[slot_[record]];
      abandoned_ += slot.count;
      const std::size_t begin = rivals_.size();
      search_.rivals(quantizer_, record, cell, margins_[cell], candidates, rivals_);
      slot = {begin, static_cast<std::int32_t>(rivals_.size() - begin),
              static_cast<std::int32_t>(listings_.size())};
      complete &= slot.count == cells_;
      for_each_move(record, cell, append);
    }
    if (2 * abandoned_ > rivals_.size()) drop_abandoned();
    heapify(edges_[cell]);
    knowledge_[cell].assign(1, static_cast<std::int32_t>(listings_.size()));
    listings_.push_back({cell, complete ? kInfinity : margins_[cell] + costs_[cell]});
  }

  void drop_abandoned() {
    std::vector<Rival> kept;
    kept.reserve(rivals_.size() - abandoned_);
    for (Slot& slot : slots_) {
      const auto first = rivals_.begin() + static_cast<std::ptrdiff_t>(slot.begin);
      slot.begin = kept.size();
      kept.insert(kept.end(), first, first + slot.count);
    }
    rivals_ = std::move(kept);
    abandoned_ = 0;
  }

  bool reach(label_t node, double distance, label_t parent, std::int32_t via) {
    if (distance >= distance_[node]) return false;
    if (distance_[node] == kInfinity) touched_.push_back(node);
    distance_[node] = distance;
    parent_[node] = parent;
    via_[node] = via;
    if (excess_[node] < 0) nearest_ = std::min(nearest_, distance);
    push(frontier_, distance, node);
    return true;
  }

  using Queue = std::vector<std::pair<double, label_t>>;
  static void push(Queue& queue, double key, label_t node) {
    queue.emplace_back(key, node);
    std::push_heap(queue.begin(), queue.end(), std::greater<>());
  }
  static std::pair<double, label_t> pop(Queue& queue) {
    std::pop_heap(queue.begin(), queue.end(), std::greater<>());
    const auto top = queue.back();
    queue.pop_back();
    return top;
  }

  // Sends one record's worth from the source along the shortest path to a node with room, and
  // raises the costs so that reduced weights stay non-negative.
  void augment(label_t source) {
    frontier_.clear();
    unknown_.clear();
    touched_.clear();
    nearest_ = kInfinity;
    reach(source, 0, -1, -1);
    label_t target = -1;
    while (target < 0) {
      // A visited cell may have a move that is not listed and leads to something nearer.
      if (!unknown_.empty() &&
          (frontier_.empty() || unknown_.front().first < frontier_.front().first)) {
        const auto [distance, node] = pop(unknown_);
        control_.poll();
        const double needed =
            frontier_.empty() ? margins_[node] : frontier_.front().first - distance_[node];
        // Farther than usual, where a cell lies tells for most that they have none, without a look
        // at their records.
        if (needed > usual_[node]) {
          if (const double from = suspicion(node); from > distance) {
            if (from < kInfinity) push(unknown_, from, node);
            continue;
          }
        }
        // Enough for this search and, likely, for the next ones.
        double& margin = margins_[node];
        margin = std::max(usual_[node], 2 * needed);
        // Far enough, too, to be seen beside large distances and costs.
        while (distance_[node] + ((margin + costs_[node]) - costs_[node]) <= distance) margin *= 2;
        widen(node);
        relax(node, distance_[node]);
        continue;
      }
      const auto [distance, node] = pop(frontier_);
      if (distance > distance_[node]) continue;
      if (excess_[node] < 0)
        target = node;
      else
        relax(node, distance);
    }
    const double length = distance_[target];
    for (const label_t node : touched_) {
      if (distance_[node] < length) costs_[node] += length - distance_[node];
      distance_[node] = kInfinity;
    }
    path_.clear();
    for (label_t node = target; node != source; node = parent_[node]) path_.push_back(node);
    do {
      for (const label_t node : path_) move(parent_[node], node, via_[node]);
      ++excess_[target];
      --excess_[source];
    } while (excess_[source] > 0 && excess_[target] < 0 && has_duplicates());
  }

  // Whether another record waits on every edge of the path with exactly the difference of the one
  // that went, as duplicates do: then the path is still a shortest one. If so, they are next.
  bool has_duplicates() {
    for (const label_t node : path_) {
      if (is_slack(node) || is_slack(parent_[node])) return false;
      const Move* const next = cheapest(parent_[node], *find_edge(parent_[node], node));
      if (next == nullptr || next->difference != difference_[node]) return false;
      via_[node] = next->record;
    }
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
    if (known(node) < kInfinity) push(unknown_, distance + known(node), node);
    for (Edge& edge : edges_[node]) {
      const auto through = [&] {
        return distance + std::max(0.0, edge.least + (costs_[edge.to] - costs_[node]));
      };
      // Most edges lead nowhere new; then their moves need not be looked at.
      if (through() >= std::min(distance_[edge.to], nearest_)) continue;
      const Move* const next = cheapest(node, edge);
      if (next != nullptr && reach(edge.to, through(), node, next->record))
        difference_[edge.to] = next->difference;
    }
  }

  // The cheapest move on an edge out of `cell`; null if there is none.
  const Move* cheapest(label_t cell, Edge& edge) {
    auto& moves = edge.moves;
    while (!moves.empty() && assignment_.labels[moves.front().record] != cell) {
      std::pop_heap(moves.begin(), moves.end(), std::greater<>());  // it has left
      moves.pop_back();
    }
    edge.least = moves.empty() ? kInfinity : moves.front().difference;
    return moves.empty() ? nullptr : &moves.front();
  }

  void move(label_t from, label_t to, std::int32_t record) {
    if (is_slack(from)) {
      --slack_[to];
    } else if (is_slack(to)) {
      ++slack_[from];
    } else {
      assignment_.labels[record] = to;
      if (!members_.empty()) add_member(to, record);
      auto& knowledge = knowledge_[to];
      const std::int32_t listing = slots_[slot_[record]].listing;
      if (std::find(knowledge.begin(), knowledge.end(), listing) == knowledge.end())
        knowledge.push_back(listing);
      for_each_move(record, to, [](Edge& edge, Move move) {
        edge.push(move);
        std::push_heap(edge.moves.begin(), edge.moves.end(), std::greater<>());
      });
    }
  }

  const CellSearch& search_;
  const Targets& targets_;
  Control& control_;
  Quantizer& quantizer_;
  Assignment& assignment_;
  const label_t cells_;
  std::vector<double> costs_;         // node potentials; the slack's comes last
  std::vector<index_t> excess_;       // records too many, by node
  std::vector<index_t> slack_;        // by cell; empty for exact sizes
  const std::vector<double>& usual_;  // margins by cell
  std::vector<double> margins_;       // by cell, of its latest listing
  index_t widenings_ = 0;
  std::vector<Listing> listings_;
  std::vector<std::vector<std::int32_t>> knowledge_;  // by cell, listings of the records in it
  // The rivals of a contested record, [begin, begin + count), and the listing that found them.
  struct Slot {
    std::size_t begin = 0;
    std::int32_t count = 0;
    std::int32_t listing = -1;
  };
  std::vector<std::int32_t> slot_;  // by record; -1 if it is not contested
  std::vector<Slot> slots_;
  std::vector<Rival> rivals_;
  std::size_t abandoned_ = 0;                       // rivals of no slot
  std::vector<std::vector<Edge>> edges_;            // by cell, in order of the other cell
  std::vector<std::vector<std::int32_t>> members_;  // records by cell, some gone; when needed
  std::vector<CellSearch::Region> regions_;         // where they lie
  std::vector<double> leads_;                       // of one cell over the others
  // Dijkstra's search.
  std::vector<double> distance_;
  std::vector<label_t> parent_;
  std::vector<std::int32_t> via_;   // the record that moves from the parent,
  std::vector<double> difference_;  // and what that adds to the sum of values
  std::vector<label_t> touched_;
  std::vector<label_t> path_;
  double nearest_ = kInfinity;  // distance of a node with room, so far
  Queue frontier_;
  Queue unknown_;  // visited cells, by the distance up to which what leaves them is known
};

}  // namespace

index_t transport(const CellSearch& search, const Targets& targets,
                  const std::vector<double>& margins, Control& control, Quantizer& quantizer,
                  Assignment& assignment) {
  return Flow(search, targets, margins, control, quantizer, assignment).solve();
}

}  // namespace dpmicro
