#include "safepub.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <unordered_map>

namespace dpmicro {

namespace {

// Open addressing from 64-bit keys to 0, 1, ... in order of first appearance.
class Numbering {
 public:
  Numbering() { rehash(1 << 10); }

  std::int32_t operator()(std::uint64_t key) {
    std::size_t slot = find(key);
    if (numbers_[slot] < 0) {
      if (2 * size_ >= keys_.size()) {
        rehash(2 * keys_.size());
        slot = find(key);
      }
      keys_[slot] = key;
      numbers_[slot] = static_cast<std::int32_t>(size_++);
    }
    return numbers_[slot];
  }
  index_t size() const { return static_cast<index_t>(size_); }

 private:
  std::size_t find(std::uint64_t key) const {
    std::uint64_t hash = key * 0x9e3779b97f4a7c15u;
    std::size_t slot = (hash ^ (hash >> 32)) & (keys_.size() - 1);
    while (numbers_[slot] >= 0 && keys_[slot] != key) slot = (slot + 1) & (keys_.size() - 1);
    return slot;
  }
  void rehash(std::size_t capacity) {
    const std::vector<std::uint64_t> keys = std::move(keys_);
    const std::vector<std::int32_t> numbers = std::move(numbers_);
    keys_.assign(capacity, 0);
    numbers_.assign(capacity, -1);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (numbers[i] < 0) continue;
      const std::size_t slot = find(keys[i]);
      keys_[slot] = keys[i];
      numbers_[slot] = numbers[i];
    }
  }

  std::size_t size_ = 0;
  std::vector<std::uint64_t> keys_;
  std::vector<std::int32_t> numbers_;
};

constexpr index_t kRowsPerPoll = 1 << 16;

}  // namespace

Attribute::Attribute(std::span<const std::int32_t> tables, index_t levels, index_t leaves)
    : leaves_(leaves), tables_(tables.begin(), tables.end()) {
  if (levels < 1 || leaves < 1)
    throw InputError("a hierarchy needs at least one level and one value");
  for (index_t level = 0; level < levels; ++level) {
    const std::int32_t* table = &tables_[level * leaves];
    const std::int32_t values = *std::max_element(table, table + leaves) + 1;
    if (*std::min_element(table, table + leaves) < 0 || values > leaves)
      throw InputError("the values of a hierarchy's level must be numbered from 0");
    values_.push_back(values);
    std::vector<std::int64_t> below(values, 0);
    for (index_t leaf = 0; leaf < leaves; ++leaf) ++below[table[leaf]];
    for (std::int64_t& share : below) share = (share * kScoreUnit + leaves / 2) / leaves;
    granularity_.push_back(std::move(below));
  }
  if (values_.back() != 1) throw InputError("the last level of a hierarchy must have one value");
}

Combinations compress(std::span<const std::int32_t> codes, std::span<const Attribute> attributes,
                      Control& control) {
  const index_t width = static_cast<index_t>(attributes.size());
  if (width < 1) throw InputError("at least one attribute with a hierarchy is needed");
  const index_t rows = static_cast<index_t>(codes.size()) / width;
  if (rows > std::numeric_limits<std::int32_t>::max())
    throw InputError("more than 2^31 - 1 records; split the table");

  Combinations result;
  result.of_row.assign(rows, 0);
  result.count = std::min<index_t>(rows, 1);
  for (index_t first = 0; first < width;) {
    // As many attributes at once as fit into a key beside the number so far.
    index_t last = first;
    u128 keys = static_cast<u128>(std::max<index_t>(result.count, 1));
    while (last < width && keys * attributes[last].leaves() < (u128{1} << 63))
      keys *= attributes[last++].leaves();
    Numbering numbering;
    for (index_t i = 0; i < rows; ++i) {
      if (i % kRowsPerPoll == 0) control.poll();
      std::uint64_t key = result.of_row[i];
      for (index_t a = first; a < last; ++a) {
        const std::int32_t code = codes[i * width + a];
        if (code < 0 || code >= attributes[a].leaves())
          throw InputError("a code lies outside its hierarchy");
        key = key * attributes[a].leaves() + code;
      }
      result.of_row[i] = numbering(key);
    }
    result.count = numbering.size();
    first = last;
  }

  result.codes.assign(width, std::vector<std::int32_t>(result.count));
  index_t next = 0;  // numbers are in order of first appearance
  for (index_t i = 0; i < rows; ++i) {
    if (result.of_row[i] != next) continue;
    for (index_t a = 0; a < width; ++a) result.codes[a][next] = codes[i * width + a];
    ++next;
  }
  return result;
}

std::int64_t score_sensitivity(const Scoring& scoring, index_t attributes) {
  const bool hard = scoring.survival == Survival::hard;
  const std::int64_t k = scoring.k;
  const std::int64_t m = attributes;
  // Of phi (equation 7), summed over columns. Hard: k^2/(k - 1) + 1, or 5 (appendix B.2).
  const auto homogeneity = [&](std::int64_t columns) -> std::int64_t {
    const std::int64_t unit = columns * kScoreUnit;
    if (!hard) return 3 * unit;
    if (k == 1) return 5 * unit;
    const u128 grown = static_cast<u128>(unit) * static_cast<u128>(k) * static_cast<u128>(k);
    return unit + static_cast<std::int64_t>((grown + k - 2) / (k - 1));
  };
  switch (scoring.score) {
    case Score::granularity:
    case Score::intensity:
      return (hard ? std::max<std::int64_t>(k - 1, 1) : 1) * m * kScoreUnit;
    case Score::discernibility:
      return homogeneity(1);
    case Score::entropy:
      return homogeneity(m);
    case Score::groups:
      return hard ? 1 : 2;
    case Score::classification:
      return hard ? k : 2;
  }
  throw InputError("unknown score");
}

bool score_is_monotone(Score score) {
  return score == Score::groups || score == Score::classification;
}

Lattice::Lattice(const Combinations& combinations, std::span<const Attribute> attributes,
                 std::span<const std::int32_t> counts, const Scoring& scoring)
    : combinations_(combinations), attributes_(attributes), counts_(counts), scoring_(scoring) {
  const index_t width = static_cast<index_t>(attributes.size());
  const bool classifies = scoring.score == Score::classification;
  if (classifies != (scoring.class_attribute >= 0) || scoring.class_attribute >= width)
    throw InputError("the classification score needs a class column, the other scores take none");
  // Sums of losses and, times the unit, of squared class sizes must stay in their integers.
  if (width > 1024) throw InputError("more than 1024 attributes; keep those that identify people");
  for (index_t a = 0; a < width; ++a) top_.push_back(refines(a) ? attributes[a].top() : 0);
  records_ = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

Lattice::Classes Lattice::everything() const {
  Classes all;
  if (records_ >= scoring_.least()) {
    for (index_t c = 0; c < combinations_.count; ++c)
      if (counts_[c] > 0) all.order.push_back(static_cast<std::int32_t>(c));
  }
  all.starts = {0};
  if (!all.order.empty()) all.starts.push_back(static_cast<std::int32_t>(all.order.size()));
  return all;
}

// Splits every class by an attribute's value and leaves out the parts below k.
Lattice::Classes Lattice::split(const Classes& classes, index_t attribute,
                                std::int32_t level) const {
  const std::int32_t* table = attributes_[attribute].table(level);
  const std::int32_t* codes = combinations_.codes[attribute].data();
  const std::int32_t values = attributes_[attribute].values(level);
  std::vector<std::int64_t> sizes(values, 0);
  std::vector<std::int32_t> places(values, 0);  // combinations of a value, then where they go
  std::vector<std::int32_t> seen(values + 1);
  Classes parts;
  parts.order.resize(classes.order.size());
  parts.starts = {0};
  const std::int64_t least = scoring_.least();
  std::int32_t end = 0;
  for (std::size_t i = 0; i + 1 < classes.starts.size(); ++i) {
    const std::span members(&classes.order[classes.starts[i]],
                            classes.starts[i + 1] - classes.starts[i]);
    std::size_t different = 0;
    for (const std::int32_t c : members) {
      const std::int32_t value = table[codes[c]];
      seen[different] = value;  // as in score_below
      different += places[value]++ == 0;
      sizes[value] += counts_[c];
    }
    const std::span found(seen.data(), different);
    for (const std::int32_t value : found) {
      const bool survives = sizes[value] >= least;
      const std::int32_t place = survives ? end : -1;
      if (survives) {
        end += places[value];
        parts.starts.push_back(end);
      }
      places[value] = place;
    }
    for (const std::int32_t c : members) {
      std::int32_t& place = places[table[codes[c]]];
      if (place >= 0) parts.order[place++] = c;
    }
    for (const std::int32_t value : found) {
      places[value] = 0;
      sizes[value] = 0;
    }
  }
  parts.order.resize(end);
  return parts;
}

// Leaves out the records whose features together with the class value occur less than k times.
Lattice::Classes Lattice::suppress_rare(Classes classes) const {
  if (scoring_.class_attribute < 0) return classes;
  const std::int32_t* codes = combinations_.codes[scoring_.class_attribute].data();
  std::vector<std::int64_t> sizes(attributes_[scoring_.class_attribute].leaves(), 0);
  Classes kept;
  kept.starts = {0};
  for (std::size_t i = 0; i + 1 < classes.starts.size(); ++i) {
    const std::span members(&classes.order[classes.starts[i]],
                            classes.starts[i + 1] - classes.starts[i]);
    for (const std::int32_t c : members) sizes[codes[c]] += counts_[c];
    for (const std::int32_t c : members)
      if (sizes[codes[c]] >= scoring_.least()) kept.order.push_back(c);
    for (const std::int32_t c : members) sizes[codes[c]] = 0;
    const auto end = static_cast<std::int32_t>(kept.order.size());
    if (end > kept.starts.back()) kept.starts.push_back(end);
  }
  return kept;
}

Lattice::Classes Lattice::classes(const Scheme& scheme) const {
  Classes classes = everything();
  for (std::size_t a = 0; a < scheme.size(); ++a)
    if (refines(static_cast<index_t>(a)) && scheme[a] < top_[a])
      classes = split(classes, static_cast<index_t>(a), scheme[a]);
  return suppress_rare(std::move(classes));
}

Lattice::Classes Lattice::refine(const Classes& above, const Scheme& scheme,
                                 index_t attribute) const {
  return suppress_rare(split(above, attribute, scheme[attribute]));
}

// The score of the scheme with one attribute at another level, given classes of the scheme as it is
// or of any scheme between it and that one.
std::int64_t Lattice::score_below(const Scheme& scheme, const Classes& classes, index_t attribute,
                                  std::int32_t level) const {
  const index_t width = static_cast<index_t>(attributes_.size());
  const std::int32_t* table = attributes_[attribute].table(level);
  const std::int32_t* codes = combinations_.codes[attribute].data();
  const std::int32_t values = attributes_[attribute].values(level);
  const bool classifies = scoring_.score == Score::classification;
  const std::int32_t* class_codes =
      classifies ? combinations_.codes[scoring_.class_attribute].data() : nullptr;
  const index_t class_values = classifies ? attributes_[scoring_.class_attribute].leaves() : 1;
  const auto level_of = [&](index_t a) { return a == attribute ? level : scheme[a]; };

  bool all_roots = true;  // then every record counts as suppressed (section 2.2)
  for (index_t a = 0; a < width; ++a) all_roots &= !refines(a) || level_of(a) == top_[a];

  std::vector<std::int64_t> sizes(values * class_values, 0);
  std::vector<std::int64_t> largest(classifies ? values : 0, 0);
  std::vector<index_t> seen(sizes.size() + 1);
  std::vector<std::vector<std::int64_t>> histograms;
  if (scoring_.score == Score::entropy) {
    for (index_t a = 0; a < width; ++a)
      histograms.emplace_back(attributes_[a].values(level_of(a)), 0);
  }

  const bool hard = scoring_.survival == Survival::hard;
  const std::int64_t least = scoring_.least();
  std::int64_t kept = 0;      // records not suppressed
  std::int64_t groups = 0;    // classes
  std::int64_t loss = 0;      // granularity of the kept records
  std::int64_t majority = 0;  // records of the most frequent class value among equal features
  u128 squares = 0;           // sum of squared class sizes
  for (std::size_t i = 0; i + 1 < classes.starts.size() && !all_roots; ++i) {
    const std::span members(&classes.order[classes.starts[i]],
                            classes.starts[i + 1] - classes.starts[i]);
    std::size_t different = 0;
    for (const std::int32_t c : members) {
      index_t key = table[codes[c]];
      if (classifies) key = key * class_values + class_codes[c];
      // Written always and counted if new: a branch here would be mispredicted often.
      seen[different] = key;
      different += sizes[key] == 0;
      sizes[key] += counts_[c];
    }
    const std::span keys(seen.data(), different);
    std::int64_t kept_here = 0;
    for (const index_t key : keys) {
      const std::int64_t members_of_class = sizes[key];
      sizes[key] = 0;
      if (members_of_class < least) continue;
      const std::int64_t size = scoring_.credit(members_of_class);
      kept_here += size;
      switch (scoring_.score) {
        case Score::granularity:
          loss += size * attributes_[attribute].granularity(level)[key];
          break;
        case Score::discernibility:
          squares += static_cast<u128>(size) * static_cast<u128>(size);
          break;
        case Score::entropy:
          histograms[attribute][key] += size;
          break;
        case Score::classification: {
          std::int64_t& best = largest[key / class_values];
          majority += std::max(size - best, std::int64_t{0});
          best = std::max(best, size);
          break;
        }
        case Score::groups:
          groups += hard ? 1 : scoring_.credit(std::min(members_of_class, scoring_.ramp_end()));
          break;
        case Score::intensity:
          break;
      }
    }
    if (classifies)
      for (const index_t key : keys) largest[key / class_values] = 0;
    kept += kept_here;
    if (kept_here == 0) continue;
    // The members of a class share the values of all other attributes.
    if (scoring_.score == Score::granularity || scoring_.score == Score::entropy) {
      for (index_t a = 0; a < width; ++a) {
        if (a == attribute) continue;
        const std::int32_t value =
            attributes_[a].table(scheme[a])[combinations_.codes[a][members.front()]];
        if (scoring_.score == Score::granularity)
          loss += kept_here * attributes_[a].granularity(scheme[a])[value];
        else
          histograms[a][value] += kept_here;
      }
    }
  }

  const std::int64_t suppressed = records_ - kept;
  // phi of equation 7: sum of squares over the number of records, plus the suppressed.
  const auto homogeneity = [&](u128 sum_of_squares, std::int64_t stars) {
    if (records_ == 0) return std::int64_t{0};
    const u128 quotient = sum_of_squares * kScoreUnit / static_cast<u128>(records_);
    return static_cast<std::int64_t>(quotient) + stars * kScoreUnit;
  };
  switch (scoring_.score) {
    case Score::granularity:
      return -(loss + suppressed * width * kScoreUnit);
    case Score::intensity: {
      std::int64_t cells = 0;  // of one kept record
      for (index_t a = 0; a < width; ++a) {
        const std::int64_t top = attributes_[a].top();
        cells += top == 0 ? kScoreUnit : (level_of(a) * kScoreUnit + top / 2) / top;
      }
      return -(kept * cells + suppressed * width * kScoreUnit);
    }
    case Score::discernibility:
      return -homogeneity(squares, suppressed);
    case Score::entropy: {
      std::int64_t stars = suppressed * width;
      for (index_t a = 0; a < width; ++a) {
        if (level_of(a) == attributes_[a].top()) {
          stars += kept;
          continue;
        }
        for (const std::int64_t size : histograms[a])
          squares += static_cast<u128>(size) * static_cast<u128>(size);
      }
      return -homogeneity(squares, stars);
    }
    case Score::groups:
      return groups;
    case Score::classification:
      return majority;
  }
  throw InputError("unknown score");
}

std::int64_t Lattice::score(const Scheme& scheme) const {
  // Any attribute that may be refined serves: "at the level it has" is a level like another.
  const index_t attribute = scoring_.class_attribute == 0 ? 1 : 0;
  if (attribute >= static_cast<index_t>(scheme.size())) return 0;  // nothing but the class column
  return score_below(scheme, classes(scheme), attribute, scheme[attribute]);
}

void Lattice::score_predecessors(const Scheme& scheme, const Classes& classes,
                                 std::span<const index_t> attributes,
                                 std::span<std::int64_t> scores, int threads,
                                 Control& control) const {
  // Starting threads costs more than a small pass.
  const bool small = classes.order.size() * attributes.size() < (1 << 15);
  parallel_for(static_cast<index_t>(attributes.size()), 1, small ? 1 : threads, control,
               [&](index_t begin, index_t end) {
                 for (index_t i = begin; i < end; ++i)
                   scores[attributes[i]] =
                       score_below(scheme, classes, attributes[i], scheme[attributes[i]] - 1);
               });
}

SearchResult search(const Lattice& lattice, const SearchPlan& plan, const RandomSource& source,
                    int threads, Control& control) {
  struct Node {
    Scheme scheme;
    std::int64_t score;
    std::size_t above;  // the pivot it was first reached from
    index_t attribute;  // and the attribute that differs
    bool is_candidate = false;
    bool is_visited = false;
    Lattice::Classes classes;  // of pivots, while there is room
  };
  // Room for the classes of earlier pivots; without them a pivot's are made from scratch.
  std::size_t room = std::size_t{64} << 20;

  std::vector<u128> stride;  // of the schemes, numbered in mixed radix
  u128 schemes = 1;
  for (const std::int32_t level : lattice.top()) {
    stride.push_back(schemes);
    schemes *= static_cast<u128>(level + 1);
    if (schemes >= (u128{1} << 63))
      throw InputError("more than 2^63 generalisation schemes; use fewer attributes or levels");
  }

  std::vector<Node> nodes;
  std::unordered_map<std::uint64_t, std::size_t> node_of;  // by number of the scheme
  const auto number = [&](const Scheme& scheme) {
    u128 sum = 0;
    for (std::size_t a = 0; a < scheme.size(); ++a) sum += stride[a] * scheme[a];
    return static_cast<std::uint64_t>(sum);
  };
  std::vector<std::size_t> candidates;
  std::vector<std::int64_t> candidate_scores;
  std::vector<std::size_t> visited;
  std::vector<std::int64_t> fresh_scores(lattice.top().size());
  std::vector<index_t> fresh;
  Stream stream = source.stream();
  Generator& generator = stream;
  const auto select = [&](std::span<const std::int64_t> scores, Rational factor) {
    return plan.as_published ? exponential_mechanism(scores, factor, generator)
                             : permute_and_flip(scores, factor, generator);
  };

  nodes.push_back({lattice.top(), lattice.score(lattice.top()), 0, -1, false, true, {}});
  node_of[number(lattice.top())] = 0;
  visited.push_back(0);
  std::size_t pivot = 0;
  for (index_t step = 0; step < plan.steps; ++step) {
    control.progress(static_cast<double>(step) / static_cast<double>(plan.steps));
    // candidates <- candidates + predecessors(pivot); score those never seen before
    const Scheme scheme = nodes[pivot].scheme;
    fresh.clear();
    for (index_t a = 0; a < static_cast<index_t>(scheme.size()); ++a) {
      if (scheme[a] == 0) continue;
      const auto known = node_of.find(number(scheme) - static_cast<std::uint64_t>(stride[a]));
      if (known == node_of.end()) {
        fresh.push_back(a);
      } else if (Node& node = nodes[known->second];
                 !node.is_candidate && (plan.as_published || !node.is_visited)) {
        node.is_candidate = true;
        candidates.push_back(known->second);
        candidate_scores.push_back(node.score);
      }
    }
    if (!fresh.empty()) {
      Node& node = nodes[pivot];
      const Lattice::Classes& above = nodes[node.above].classes;
      Lattice::Classes classes = pivot != 0 && !above.starts.empty()
                                     ? lattice.refine(above, scheme, node.attribute)
                                     : lattice.classes(scheme);
      lattice.score_predecessors(scheme, classes, fresh, fresh_scores, threads, control);
      const std::size_t bytes = 4 * (classes.order.size() + classes.starts.size());
      if (bytes <= room) {
        room -= bytes;
        node.classes = std::move(classes);
      }
    }
    for (const index_t a : fresh) {
      Scheme below = scheme;
      --below[a];
      node_of[number(below)] = nodes.size();
      candidates.push_back(nodes.size());
      candidate_scores.push_back(fresh_scores[a]);
      nodes.push_back({std::move(below), fresh_scores[a], pivot, a, true, false, {}});
    }
    if (candidates.empty()) break;
    const index_t choice = select(candidate_scores, plan.step_factor);
    pivot = candidates[choice];
    // candidates <- candidates - {pivot}
    candidates[choice] = candidates.back();
    candidates.pop_back();
    candidate_scores[choice] = candidate_scores.back();
    candidate_scores.pop_back();
    nodes[pivot].is_candidate = false;
    if (!nodes[pivot].is_visited) visited.push_back(pivot);
    nodes[pivot].is_visited = true;
  }

  SearchResult result;
  for (const Node& node : nodes) result.scores.push_back(node.score);
  std::size_t chosen = 0;
  if (plan.as_published) {
    for (const std::size_t node : visited)
      if (result.scores[node] > result.scores[chosen]) chosen = node;
  } else {
    chosen = static_cast<std::size_t>(select(result.scores, plan.final_factor));
  }
  result.scheme = nodes[chosen].scheme;
  result.visited = std::move(visited);
  for (Node& node : nodes) result.schemes.push_back(std::move(node.scheme));
  return result;
}

namespace {

// Which rows are in a sample, and how often each combination is.
struct Sample {
  std::vector<std::uint8_t> rows;
  std::vector<std::int32_t> counts;
};

// Every row with probability 1 - exp(-epsilon_anon), independently.
Sample draw_sample(const Combinations& combinations, Rational epsilon_anon,
                   const RandomSource& source, int threads, Control& control) {
  if (epsilon_anon.numerator == 0) throw InputError("the share of epsilon for sampling is zero");
  Sample sample{std::vector<std::uint8_t>(combinations.of_row.size()),
                std::vector<std::int32_t>(combinations.count, 0)};
  poisson_sample_exponential(sample.rows, epsilon_anon, source, threads, control);
  for (std::size_t i = 0; i < sample.rows.size(); ++i)
    sample.counts[combinations.of_row[i]] += sample.rows[i];
  return sample;
}

// The sampled rows whose generalised combination occurs at least k times, shuffled.
std::vector<std::int64_t> suppress(const Combinations& combinations,
                                   std::span<const Attribute> attributes, const Scheme& scheme,
                                   const Sample& sample, Scoring scoring,
                                   const RandomSource& shuffle, Control& control) {
  scoring.survival = Survival::hard;
  const Lattice lattice(combinations, attributes, sample.counts, scoring);
  const bool all_suppressed = scheme == lattice.top() && scoring.class_attribute < 0;
  std::vector<std::uint8_t> survives(combinations.count, 0);
  if (!all_suppressed)
    for (const std::int32_t c : lattice.classes(scheme).order) survives[c] = 1;
  std::vector<std::int64_t> kept;
  for (std::size_t i = 0; i < sample.rows.size(); ++i)
    if (sample.rows[i] && survives[combinations.of_row[i]])
      kept.push_back(static_cast<std::int64_t>(i));
  std::vector<std::int64_t> order(kept.size());
  Stream stream = shuffle.stream();
  permutation(order, stream, control);
  std::vector<std::int64_t> rows;
  for (const std::int64_t place : order) rows.push_back(kept[place]);
  return rows;
}

}  // namespace

std::vector<std::int64_t> release_scheme(std::span<const std::int32_t> codes,
                                         std::span<const Attribute> attributes,
                                         const Scheme& scheme, const Scoring& scoring,
                                         Rational epsilon_anon, const RandomSource& release_sample,
                                         const RandomSource& shuffle, int threads,
                                         Control& control) {
  const Combinations combinations = compress(codes, attributes, control);
  const Sample sample = draw_sample(combinations, epsilon_anon, release_sample, threads, control);
  return suppress(combinations, attributes, scheme, sample, scoring, shuffle, control);
}

SafePubResult safepub(std::span<const std::int32_t> codes, std::span<const Attribute> attributes,
                      const Scoring& scoring, const SearchPlan& plan, Rational epsilon_anon,
                      const SafePubSources& sources, int threads, Control& control) {
  const Combinations combinations = compress(codes, attributes, control);
  const auto draw = [&](const RandomSource& source) {
    return draw_sample(combinations, epsilon_anon, source, threads, control);
  };
  SafePubResult result;
  Sample sample = draw(sources.search_sample);
  result.search = search(Lattice(combinations, attributes, sample.counts, scoring), plan,
                         sources.search, threads, control);
  if (!plan.as_published) sample = draw(sources.release_sample);
  result.rows = suppress(combinations, attributes, result.search.scheme, sample, scoring,
                         sources.shuffle, control);
  return result;
}

}  // namespace dpmicro
