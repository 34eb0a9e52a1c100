// SafePub's middle: scores of generalisation schemes on a compressed sample, the private search
// over the lattice of schemes, and the rows of a release.
//
// Source of everything here: Bild, Kuhn & Prasser, SafePub, PoPETs 2018 (sections 4 to 6), with the
// corrections of PAPERS.md.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "noise.hpp"
#include "parallel.hpp"
#include "random.hpp"
#include "types.hpp"

namespace dpmicro {

// One attribute's hierarchy. tables[level * leaves + leaf] is the number of the value that a leaf
// becomes on a level; the last level is the root.
class Attribute {
 public:
  // InputError unless numbers are 0.. on every level and the last level has one value.
  Attribute(std::span<const std::int32_t> tables, index_t levels, index_t leaves);

  index_t leaves() const { return leaves_; }
  std::int32_t top() const { return static_cast<std::int32_t>(values_.size()) - 1; }
  std::int32_t values(std::int32_t level) const { return values_[level]; }
  const std::int32_t* table(std::int32_t level) const { return &tables_[level * leaves_]; }
  // leaves(value) / leaves on the grid of kScoreUnit steps.
  const std::int64_t* granularity(std::int32_t level) const { return granularity_[level].data(); }

 private:
  index_t leaves_;
  std::vector<std::int32_t> tables_;
  std::vector<std::int32_t> values_;
  std::vector<std::vector<std::int64_t>> granularity_;
};

// A table of leaf codes, compressed to its distinct rows.
struct Combinations {
  index_t count = 0;
  std::vector<std::int32_t> of_row;              // which combination a row is
  std::vector<std::vector<std::int32_t>> codes;  // attribute by attribute, the combinations' leaves
};

// Guarantee: rows are equal if and only if they get the same number; numbers are in order of first
//   appearance.
// Requires: codes is rows x attributes in C order, 0 <= code < leaves; InputError otherwise.
// Cost: rows x attributes, one hash lookup per row and per 2^63 possible combinations.
Combinations compress(std::span<const std::int32_t> codes, std::span<const Attribute> attributes,
                      Control& control);

// The level that each attribute is generalised to.
using Scheme = std::vector<std::int32_t>;

enum class Score { granularity, intensity, discernibility, entropy, groups, classification };

// Scores are integers, so that private selection needs no floating point: real-valued ones are
// multiples of 1/kScoreUnit. Granularity and intensity round the loss of a cell once, before
// summing, so their sensitivity stays what it was; discernibility and entropy round the sum down,
// and two sums x, y have |floor(x) - floor(y)| <= ceil(|x - y|).
inline constexpr std::int64_t kScoreUnit = 1 << 16;

// How a class of s records counts in a score.
//
// hard: as in the paper, wholly if s >= k and else as suppressed. A record that completes a class
//   moves k records at once, so sensitivities grow with k, and the budget of a search drowns in
//   them.
// ramp: as credit(s) = min(s, max(0, 2 s - ceil(3k/2))) kept records and s - credit(s) suppressed
//   ones: nothing up to 3k/4, half of it at k, all from 3k/2 on. Whether a class near k survives in
//   the release is open anyway, since that draws a sample of its own. One record moves the credit
//   by at most 2, so sensitivities do not depend on k.
enum class Survival { hard, ramp };

// What a search needs to know about a score besides the sample.
struct Scoring {
  Score score = Score::granularity;
  std::int64_t k = 1;
  index_t class_attribute = -1;  // never generalised; classification only
  Survival survival = Survival::ramp;

  // Classes below this size contribute nothing; nor do any of their refinements.
  std::int64_t least() const { return survival == Survival::hard ? k : ramp_end() / 2 + 1; }
  std::int64_t ramp_end() const { return (3 * k + 1) / 2; }
  // Of a class of at least least() records.
  std::int64_t credit(std::int64_t size) const {
    return survival == Survival::hard ? size : std::min(size, 2 * size - ramp_end());
  }
  // Steps of the score's integer scale per unit of the paper's.
  std::int64_t unit() const {
    if (score == Score::classification) return 1;
    if (score == Score::groups) return survival == Survival::hard ? 1 : ramp_end();
    return kScoreUnit;
  }
};

// By how much adding or removing one record can move a score, on its integer scale.
//
// Guarantee: an upper bound for every scheme and every sample.
//   hard: theorems 6 to 9 and section 5.4, on the grid as above.
//   ramp: let a record change its class's credit by c in {0, 1, 2}, and N be the records of the
//   sample before. Granularity and intensity: a cell's loss is v <= 1 kept and 1 suppressed, so m
//   cells change by |m - c (m - sum v)| <= m. Classification: the largest credit changes by at most
//   2. Groups: the count of a class is credit(min(s, e)) / e, e the end of the ramp.
//   Discernibility: phi = A/N + N - (sum of credits), A the sum of squared credits, changes by
//   -A/(N(N+1)) + ((h + c)^2 - h^2)/(N+1) + 1 - c, where 0 <= A <= N^2 and h + c <= N + 1: at least
//   -c, at most 1 + c, so by 3 or less. Entropy: the same for each of m columns, h being the
//   credits of all classes with the record's value.
std::int64_t score_sensitivity(const Scoring& scoring, index_t attributes);
// Whether adding a record never lowers the score of any scheme: it can complete or enlarge a class,
// so the number of classes and the largest of those with equal features never fall. Permute and
// flip then needs half the noise, factor = epsilon / sensitivity: it depends on differences of
// scores only, and those move by one sensitivity instead of two.
bool score_is_monotone(Score score);

// Scores of schemes on one sample.
//
// The classes of a scheme refine those of every scheme above it, and a class that is too small to
// count stays so when refined. So a scheme is scored from the classes of a scheme directly above
// it, on the combinations whose class is not suppressed there.
class Lattice {
 public:
  // counts: how often each combination is in the sample. Keeps references to its arguments.
  // InputError for a class attribute that does not exist or does not fit the score.
  Lattice(const Combinations& combinations, std::span<const Attribute> attributes,
          std::span<const std::int32_t> counts, const Scoring& scoring);

  // The most general scheme: every attribute at its root, the class attribute at its leaves.
  const Scheme& top() const { return top_; }

  // The combinations that a scheme does not suppress, those of one class (classification: with the
  // same features) next to each other: class i is order[starts[i]] .. order[starts[i + 1] - 1].
  struct Classes {
    std::vector<std::int32_t> order;
    std::vector<std::int32_t> starts;
  };

  // Cost: the combinations in the sample, once per attribute below its root, fewer and fewer.
  Classes classes(const Scheme& scheme) const;
  // The same from the classes of the scheme one level above in one attribute. Cost: those, once.
  Classes refine(const Classes& above, const Scheme& scheme, index_t attribute) const;

  // Guarantee: the score of the scheme, an integer (see kScoreUnit).
  std::int64_t score(const Scheme& scheme) const;
  // Scores of the schemes one level below in one attribute, given the scheme's classes; one entry
  // per attribute, and where an attribute cannot go lower the entry is not touched.
  //
  // Guarantee: the same for every number of threads.
  // Cost: per attribute, one pass over the combinations in the classes.
  void score_predecessors(const Scheme& scheme, const Classes& classes,
                          std::span<const index_t> attributes, std::span<std::int64_t> scores,
                          int threads, Control& control) const;

 private:
  bool refines(index_t attribute) const { return attribute != scoring_.class_attribute; }
  Classes everything() const;
  Classes split(const Classes& classes, index_t attribute, std::int32_t level) const;
  Classes suppress_rare(Classes classes) const;
  std::int64_t score_below(const Scheme& scheme, const Classes& classes, index_t attribute,
                           std::int32_t level) const;

  const Combinations& combinations_;
  std::span<const Attribute> attributes_;
  std::span<const std::int32_t> counts_;
  Scoring scoring_;
  Scheme top_;
  std::int64_t records_ = 0;
};

// How a search chooses; factors as in permute_and_flip.
struct SearchPlan {
  index_t steps = 0;
  Rational step_factor;
  Rational final_factor;
  // The paper's algorithm: exponential mechanism; a scheme may be visited again when another one
  // above it is; and the best of the visited schemes by its true score, which nobody pays for.
  bool as_published = false;
};

struct SearchResult {
  Scheme scheme;
  // What the search saw, for tests; the scores are exact and must never be released.
  std::vector<std::size_t> visited;  // pivots in order of first visit
  std::vector<Scheme> schemes;       // all that were scored
  std::vector<std::int64_t> scores;
};

// Top-down search for a good scheme.
//
// Guarantee: every pivot is chosen by permute and flip alone, and so is the scheme returned, among
//   all schemes scored on the way; which ones those are follows from the pivots. The scores enter
//   nowhere else. Ends early when no candidate is left. as_published: see SearchPlan.
// Source: SafePub, figure 7; PAPERS.md, correction 1.
// Cost: at most steps x attributes passes over the surviving combinations; no scheme is scored
//   twice.
SearchResult search(const Lattice& lattice, const SearchPlan& plan, const RandomSource& source,
                    int threads, Control& control);

// The release of one scheme: Poisson sample with rate 1 - exp(-epsilon_anon), generalise, leave out
// what occurs less than k times, shuffle.
//
// Guarantee: with k from theorem 3 the generalised rows are (epsilon_anon, delta)-differentially
//   private under adding or removing a record, for every scheme chosen without looking at the
//   codes.
// Requires: codes as for compress; epsilon_anon > 0; one existing level per attribute, the leaves
//   for the class attribute. scoring gives k and the class attribute.
std::vector<std::int64_t> release_scheme(std::span<const std::int32_t> codes,
                                         std::span<const Attribute> attributes,
                                         const Scheme& scheme, const Scoring& scoring,
                                         Rational epsilon_anon, const RandomSource& release_sample,
                                         const RandomSource& shuffle, int threads,
                                         Control& control);

// Random bits of the phases, which must be independent.
struct SafePubSources {
  RandomSource search_sample, search, release_sample, shuffle;
};

struct SafePubResult {
  SearchResult search;
  std::vector<std::int64_t> rows;  // released rows, shuffled
};

// The whole mechanism: Poisson sample with rate 1 - exp(-epsilon_anon), search on it, second sample
// with the same rate (as_published: the same sample), generalise, suppress, shuffle.
//
// Guarantee: with k from theorem 3 the rows and the scheme are (epsilon_anon + epsilon_search,
//   delta)-differentially private under adding or removing a record, if the factors spend
//   epsilon_search through the sampling. as_published: no such guarantee.
// Requires: codes as for compress; epsilon_anon > 0.
SafePubResult safepub(std::span<const std::int32_t> codes, std::span<const Attribute> attributes,
                      const Scoring& scoring, const SearchPlan& plan, Rational epsilon_anon,
                      const SafePubSources& sources, int threads, Control& control);

}  // namespace dpmicro
