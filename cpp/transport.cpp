#include "transport.hpp"

#include <algorithm>
#include <compare>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

namespace dpmicro {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kMoves = 1024;  // roughly, that a cell lists at a time, to
constexpr std::size_t kFewest = 4;    // so many cells at least,
constexpr std::size_t kMost = 16;     // and to so many at most if they are not that near

// A contested point that may leave its cell, and what a record of it adds to the sum of values.
struct Move {
  double difference;
  std::int32_t point;
  auto operator<=>(const Move&) const = default;
};

// Moves from one cell to another, the cheapest on top. Differences hold no costs, so the order
// lasts; points that have left the cell stay in the heap until they come to the top.
struct Edge {
  label_t to;
  double least;  // no move on the edge has a smaller difference
  std::vector<Move> moves;

  void push(Move move) {
    least = std::min(least, move.difference);
    moves.push_back(move);
  }
};

// Makes room for some more: a quarter at a time, where a vector by itself would take twice what it
// has.
template <class T>
void make_room(std::vector<T>& items, std::size_t more) {
  if (items.size() + more > items.capacity()) items.reserve(items.size() + items.size() / 4 + more);
}

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
        level_(static_cast<std::size_t>(cells_)),
        newcomers_(static_cast<std::size_t>(cells_)),
        slot_(static_cast<std::size_t>(search.points()), -1),
        edges_(static_cast<std::size_t>(cells_)) {
    for (label_t q = 0; q < cells_; ++q) {
      excess_[q] = assignment.sizes[q] - targets.sizes[q];
      level_[q] = margins[q] + costs_[q];
    }
    if (search.counted()) {
      held_.reserve(assignment.labels.size());
      for (std::size_t i = 0; i < assignment.labels.size(); ++i)
        held_.push_back({{assignment.labels[i], search.count(static_cast<index_t>(i))}});
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
    for (std::size_t i = 0; i < held_.size(); ++i)
      assignment_.hold(static_cast<std::int32_t>(i), held_[i]);
    return widenings_;
  }

 private:
  using Queue = std::vector<std::pair<double, std::int32_t>>;  // the least on top

  // The rivals of a contested point, [begin, begin + count): all cells up to a limit for value +
  // cost. Costs only rise, so that the limit lasts.
  struct Slot {
    std::size_t begin = 0;
    std::int32_t count = 0;
    double limit = 0;
  };

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

  // How many of a point's records are in a cell.
  index_t held(std::int32_t point, label_t cell) const {
    if (held_.empty()) return assignment_.labels[point] == cell ? 1 : 0;
    for (const Holding& holding : held_[point])
      if (holding.cell == cell) return holding.count;
    return 0;
  }

  void hand_over(std::int32_t point, label_t from, label_t to, index_t count) {
    if (held_.empty()) {
      assignment_.labels[point] = to;
      return;
    }
    auto& holdings = held_[point];
    const auto find = [&](label_t cell) {
      return std::find_if(holdings.begin(), holdings.end(),
                          [&](const Holding& holding) { return holding.cell == cell; });
    };
    auto taker = find(to);
    if (taker == holdings.end()) taker = holdings.insert(taker, {to, 0});
    taker->count += static_cast<std::int32_t>(count);
    const auto giver = find(from);
    giver->count -= static_cast<std::int32_t>(count);
    if (giver->count == 0) holdings.erase(giver);
  }

  void gather() {
    std::size_t points = 0, rivals = 0;
    for (const Contested& chunk : assignment_.contested) {
      points += chunk.points.size();
      rivals += chunk.rivals.size();
    }
    slots_.reserve(points);
    rivals_.reserve(rivals);
    for (Contested& chunk : assignment_.contested) {
      const std::size_t offset = rivals_.size();
      rivals_.insert(rivals_.end(), chunk.rivals.begin(), chunk.rivals.end());
      for (std::size_t i = 0; i < chunk.points.size(); ++i) {
        const std::int32_t point = chunk.points[i];
        const label_t cell = assignment_.labels[point];
        slot_[point] = static_cast<std::int32_t>(slots_.size());
        slots_.push_back({offset + chunk.begin[i], chunk.begin[i + 1] - chunk.begin[i], 0});
        slots_.back().limit = own_value(point, cell) + level_[cell];
        for_each_move(point, cell, append);
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

  const Rival* find_rival(const Slot& slot, label_t cell) const {
    const Rival* const first = rivals_.data() + slot.begin;
    return std::find_if(first, first + slot.count,
                        [&](const Rival& rival) { return rival.cell == cell; });
  }

  double own_value(std::int32_t point, label_t cell) const {
    return find_rival(slots_[slot_[point]], cell)->value;
  }

  // Calls act(edge, move) for every cell that a contested point, now in `cell`, may move to.
  template <class Act>
  void for_each_move(std::int32_t point, label_t cell, Act&& act) {
    const Slot& slot = slots_[slot_[point]];
    const Rival* const first = rivals_.data() + slot.begin;
    const Rival* const last = first + slot.count;
    const double own = find_rival(slot, cell)->value;
    auto& edges = edges_[cell];
    for (const Rival* rival = first; rival != last; ++rival) {
      if (rival->cell == cell) continue;
      auto edge = find_edge(cell, rival->cell);
      if (edge == edges.end() || edge->to != rival->cell)
        edge = edges.insert(edge, Edge{rival->cell, kInfinity, {}});
      act(*edge, Move{rival->value - own, point});
    }
  }

  // The moves out of a node are known up to this reduced weight.
  double known(label_t node) {
    if (is_slack(node)) return kInfinity;
    auto& newcomers = newcomers_[node];
    while (!newcomers.empty() && is_outdated(newcomers.front(), node)) pop(newcomers);
    const double least = newcomers.empty() ? kInfinity : newcomers.front().first;
    return std::min(level_[node], least) - costs_[node];
  }

  bool is_outdated(std::pair<double, std::int32_t> newcomer, label_t cell) const {
    const auto [bound, point] = newcomer;
    return held(point, cell) == 0 || slots_[slot_[point]].limit - own_value(point, cell) != bound;
  }

  void find_members() {
    if (!members_.empty()) return;
    for (index_t j = 0; j < quantizer_.dims; ++j)
      for (label_t q = 0; q < cells_; ++q) columns_.push_back(quantizer_.centroid(q)[j]);
    members_.resize(static_cast<std::size_t>(cells_));
    regions_.resize(static_cast<std::size_t>(cells_));
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(search_.points()); ++i) {
      if (held_.empty())
        add_member(assignment_.labels[i], i);
      else
        for (const Holding& holding : held_[i]) add_member(holding.cell, i);
      if (i % 0x1000 == 0) control_.poll();
    }
  }

  void add_member(label_t cell, std::int32_t point) {
    members_[cell].push_back(point);
    search_.extend(regions_[cell], point);
  }

  // How far cell `own` is ahead of every other cell, for any point that it holds.
  void find_leads(label_t own) {
    find_members();
    quantizer_.costs.assign(costs_.begin(), costs_.begin() + cells_);
    search_.leads(quantizer_, columns_, regions_[own], own, leads_);
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

  // Lists the moves of all points in the cell up to a margin.
  void widen(label_t cell, double margin) {
    find_members();
    auto members = std::exchange(members_[cell], {});
    std::sort(members.begin(), members.end());
    members.erase(std::unique(members.begin(), members.end()), members.end());
    std::erase_if(members, [&](std::int32_t i) { return held(i, cell) == 0; });
    regions_[cell] = {};
    for (const std::int32_t point : members) add_member(cell, point);
    find_leads(cell);
    // A margin may be tiny beside the distance to the next point, as it is among duplicates; a
    // small cell rather lists some moves too many than often.
    const std::size_t wanted = std::min<std::size_t>(
        std::clamp(kMoves / std::max<std::size_t>(1, members.size()), kFewest, kMost), cells_);
    const auto within = [&] {
      return static_cast<std::size_t>(
          std::count_if(leads_.begin(), leads_.end(), [&](double lead) { return lead <= margin; }));
    };
    while (within() < wanted && margin < kInfinity) margin *= 1.5;
    std::vector<label_t> candidates;
    for (label_t r = 0; r < cells_; ++r)
      if (r == cell || leads_[r] <= margin) candidates.push_back(r);

    ++widenings_;
    level_[cell] = margin + costs_[cell];
    newcomers_[cell].clear();
    edges_[cell].clear();
    bool complete = true;
    for (const std::int32_t point : members) {
      const std::int32_t rivals = list(point, cell, margin, candidates);
      complete &= rivals == cells_;
      if (rivals > 1) for_each_move(point, cell, append);
    }
    if (complete) level_[cell] = kInfinity;
    if (2 * abandoned_ > rivals_.size()) drop_abandoned();
    heapify(edges_[cell]);
  }

  // Finds the rivals of a point up to the level of its cell; returns how many it has. None is
  // forgotten: moves to it are listed.
  std::int32_t list(std::int32_t point, label_t cell, double margin,
                    const std::vector<label_t>& candidates) {
    Slot before;
    if (slot_[point] >= 0) {
      before = slots_[slot_[point]];
      if (before.limit - own_value(point, cell) >= level_[cell]) return before.count;
    }
    found_.clear();
    search_.rivals(quantizer_, point, cell, margin, candidates, found_);
    if (slot_[point] < 0) {
      if (found_.size() == 1) return 1;  // as most points of a large cell: they need no memory
      slot_[point] = static_cast<std::int32_t>(slots_.size());
      make_room(slots_, 1);
      slots_.emplace_back();
    }
    const std::size_t begin = rivals_.size();
    make_room(rivals_, static_cast<std::size_t>(before.count) + found_.size());
    rivals_.resize(begin + static_cast<std::size_t>(before.count) + found_.size());
    const auto known = rivals_.begin() + static_cast<std::ptrdiff_t>(before.begin);
    const auto merged = rivals_.begin() + static_cast<std::ptrdiff_t>(begin);
    rivals_.erase(std::set_union(known, known + before.count, found_.begin(), found_.end(), merged,
                                 [](const Rival& x, const Rival& y) { return x.cell < y.cell; }),
                  rivals_.end());
    abandoned_ += before.count;
    const auto count = static_cast<std::int32_t>(rivals_.size() - begin);
    Slot& slot = slots_[slot_[point]] = {begin, count, 0};
    slot.limit = own_value(point, cell) + level_[cell];
    if (!held_.empty())
      for (const Holding& holding : held_[point])
        if (holding.cell != cell) {
          add_moves(point, holding.cell, before);
          add_newcomer(point, holding.cell);
        }
    return count;
  }

  // Lists the moves of a point out of a cell that has those to the rivals of before already.
  void add_moves(std::int32_t point, label_t cell, const Slot& before) {
    for_each_move(point, cell, [&](Edge& edge, Move move) {
      if (find_rival(before, edge.to) != rivals_.data() + before.begin + before.count) return;
      edge.push(move);
      std::push_heap(edge.moves.begin(), edge.moves.end(), std::greater<>());
    });
  }

  void add_newcomer(std::int32_t point, label_t cell) {
    const double bound = slots_[slot_[point]].limit - own_value(point, cell);
    if (bound < level_[cell]) push(newcomers_[cell], bound, point);
  }

  // A point that came from elsewhere and knows less than the others in its cell catches up.
  void catch_up(label_t cell) {
    const std::int32_t point = pop(newcomers_[cell]).second;
    const Slot before = slots_[slot_[point]];
    quantizer_.costs.assign(costs_.begin(), costs_.begin() + cells_);
    if (everyone_.empty()) {
      everyone_.resize(static_cast<std::size_t>(cells_));
      std::iota(everyone_.begin(), everyone_.end(), 0);
    }
    list(point, cell, level_[cell] - costs_[cell], everyone_);
    add_moves(point, cell, before);
    if (2 * abandoned_ > rivals_.size()) drop_abandoned();
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

  static void push(Queue& queue, double key, std::int32_t item) {
    queue.emplace_back(key, item);
    std::push_heap(queue.begin(), queue.end(), std::greater<>());
  }
  static std::pair<double, std::int32_t> pop(Queue& queue) {
    std::pop_heap(queue.begin(), queue.end(), std::greater<>());
    const auto top = queue.back();
    queue.pop_back();
    return top;
  }

  // Sends records from the source along the shortest path to a node with room, and
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
        const double listed = level_[node] - costs_[node];
        const double needed =
            frontier_.empty() ? listed : frontier_.front().first - distance_[node];
        // Farther than usual, where a cell lies tells for most that they have none, without a look
        // at their records.
        if (needed > usual_[node]) {
          if (const double from = suspicion(node); from > distance) {
            if (from < kInfinity) push(unknown_, from, node);
            continue;
          }
        }
        if (known(node) < listed) {
          catch_up(node);
        } else {
          // Enough for this search and, likely, for the next ones.
          double margin = std::max(usual_[node], 2 * needed);
          // Far enough, too, to be seen beside large distances and costs.
          while (distance_[node] + ((margin + costs_[node]) - costs_[node]) <= distance)
            margin *= 2;
          widen(node, margin);
        }
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
      index_t count = std::min(excess_[source], -excess_[target]);
      for (const label_t node : path_)
        count = std::min(count, capacity(parent_[node], node, via_[node]));
      for (const label_t node : path_) move(parent_[node], node, via_[node], count);
      excess_[target] += count;
      excess_[source] -= count;
    } while (excess_[source] > 0 && excess_[target] < 0 && has_duplicates());
  }

  // Whether another record waits on every edge of the path with exactly the difference of the one
  // that went, as duplicates do: then the path is still a shortest one. If so, they are next.
  bool has_duplicates() {
    for (const label_t node : path_) {
      if (is_slack(node) || is_slack(parent_[node])) return false;
      const Move* const next = cheapest(parent_[node], *find_edge(parent_[node], node));
      if (next == nullptr || next->difference != difference_[node]) return false;
      via_[node] = next->point;
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
      if (next != nullptr && reach(edge.to, through(), node, next->point))
        difference_[edge.to] = next->difference;
    }
  }

  // The cheapest move on an edge out of `cell`; null if there is none.
  const Move* cheapest(label_t cell, Edge& edge) {
    auto& moves = edge.moves;
    while (!moves.empty() && held(moves.front().point, cell) == 0) {
      std::pop_heap(moves.begin(), moves.end(), std::greater<>());  // it has left
      moves.pop_back();
    }
    edge.least = moves.empty() ? kInfinity : moves.front().difference;
    return moves.empty() ? nullptr : &moves.front();
  }

  index_t capacity(label_t from, label_t to, std::int32_t point) const {
    if (is_slack(from)) return slack_[to];
    if (is_slack(to)) return std::numeric_limits<index_t>::max();
    return held(point, from);
  }

  void move(label_t from, label_t to, std::int32_t point, index_t count) {
    if (is_slack(from)) {
      slack_[to] -= count;
    } else if (is_slack(to)) {
      slack_[from] += count;
    } else {
      const bool is_new = held(point, to) == 0;
      hand_over(point, from, to, count);
      if (!is_new) return;
      if (!members_.empty()) add_member(to, point);
      add_moves(point, to, {});
      add_newcomer(point, to);
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
  index_t widenings_ = 0;
  // What is known of the moves out of a cell: for any record in it, a move that is not listed costs
  // at least level_ - cost of the cell, then and later, since costs only rise; newcomers that know
  // less, and how much, come apart.
  std::vector<double> level_;
  std::vector<Queue> newcomers_;
  std::vector<std::vector<Holding>> held_;  // by point, if points are counted
  std::vector<std::int32_t> slot_;          // by point; -1 if it is not contested
  std::vector<Slot> slots_;
  std::vector<Rival> rivals_;
  std::size_t abandoned_ = 0;                       // rivals of no slot
  std::vector<Rival> found_;                        // of one point
  std::vector<std::vector<Edge>> edges_;            // by cell, in order of the other cell
  std::vector<std::vector<std::int32_t>> members_;  // points by cell, some gone; when needed
  std::vector<CellSearch::Region> regions_;         // where they lie
  std::vector<double> columns_;                     // the centroids, attribute by attribute
  std::vector<double> leads_;                       // of one cell over the others
  // Dijkstra's search.
  std::vector<double> distance_;
  std::vector<label_t> parent_;
  std::vector<std::int32_t> via_;   // the point that moves from the parent,
  std::vector<double> difference_;  // and what that adds to the sum of values
  std::vector<label_t> touched_;
  std::vector<label_t> path_;
  double nearest_ = kInfinity;     // distance of a node with room, so far
  std::vector<label_t> everyone_;  // all cells, when needed
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
