#include "safepub.hpp"

#include <pybind11/stl.h>

#include <limits>
#include <map>

#include "bindings.hpp"

namespace dpmicro::bindings {
namespace {

using Codes = py::array_t<std::int32_t, py::array::c_style>;
using Fraction = std::pair<std::uint64_t, std::uint64_t>;

// One levels x leaves table per column of the codes.
std::vector<Attribute> as_attributes(const std::vector<Codes>& tables, const Codes& codes) {
  if (codes.ndim() != 2 || codes.shape(1) != static_cast<index_t>(tables.size()))
    throw InputError("codes need two dimensions and one hierarchy per column");
  std::vector<Attribute> attributes;
  for (const Codes& table : tables) {
    if (table.ndim() != 2) throw InputError("a hierarchy is a table of levels and leaves");
    attributes.emplace_back(std::span(table.data(), static_cast<std::size_t>(table.size())),
                            table.shape(0), table.shape(1));
  }
  return attributes;
}

std::span<const std::int32_t> as_span(const Codes& codes) {
  return {codes.data(), static_cast<std::size_t>(codes.size())};
}

Scoring as_scoring(const std::string& name, std::int64_t k, index_t class_attribute, bool hard) {
  static const std::map<std::string, Score> scores = {{"granularity", Score::granularity},
                                                      {"intensity", Score::intensity},
                                                      {"discernibility", Score::discernibility},
                                                      {"entropy", Score::entropy},
                                                      {"groups", Score::groups},
                                                      {"classification", Score::classification}};
  const auto found = scores.find(name);
  if (found == scores.end()) throw InputError("there is no such score");
  if (k < 1 || k > std::numeric_limits<std::int32_t>::max())
    throw InputError("k must lie between 1 and 2^31 - 1");
  return {found->second, k, class_attribute, hard ? Survival::hard : Survival::ramp};
}

void check_scheme(const Scheme& scheme, std::span<const Attribute> attributes,
                  index_t class_attribute) {
  bool inside = scheme.size() == attributes.size();
  for (std::size_t a = 0; inside && a < scheme.size(); ++a) {
    const bool is_class = static_cast<index_t>(a) == class_attribute;
    inside = scheme[a] >= 0 && scheme[a] <= (is_class ? 0 : attributes[a].top());
  }
  if (!inside) throw InputError("a scheme needs one existing level per attribute");
}

Rational as_rational(const Fraction& fraction) { return {fraction.first, fraction.second}; }

py::array_t<std::int64_t> as_array(const std::vector<std::int64_t>& numbers) {
  return py::array_t<std::int64_t>(static_cast<index_t>(numbers.size()), numbers.data());
}

}  // namespace

void register_safepub(py::module_& m) {
  m.def(
      "score_sensitivity",
      [](const std::string& score, std::int64_t k, index_t attributes, bool hard) {
        const Scoring scoring = as_scoring(score, k, -1, hard);
        return py::make_tuple(score_sensitivity(scoring, attributes), scoring.unit(),
                              score_is_monotone(scoring.score));
      },
      py::arg("score"), py::arg("k"), py::arg("attributes"), py::kw_only(), py::arg("hard"));

  m.def(
      "safepub_scores",
      [](const Codes& codes, const std::vector<Codes>& tables, const std::vector<Scheme>& schemes,
         const std::string& score, std::int64_t k, index_t class_attribute, bool hard,
         const py::object& progress) {
        const std::vector<Attribute> attributes = as_attributes(tables, codes);
        const Scoring scoring = as_scoring(score, k, class_attribute, hard);
        return without_gil(progress, [&](Control& control) {
          const Combinations combinations = compress(as_span(codes), attributes, control);
          std::vector<std::int32_t> counts(combinations.count, 0);
          for (const std::int32_t c : combinations.of_row) ++counts[c];
          const Lattice lattice(combinations, attributes, counts, scoring);
          std::vector<std::int64_t> scores;
          for (const Scheme& scheme : schemes) {
            check_scheme(scheme, attributes, class_attribute);
            scores.push_back(lattice.score(scheme));
            control.poll();
          }
          return scores;
        });
      },
      py::arg("codes"), py::arg("tables"), py::arg("schemes"), py::kw_only(), py::arg("score"),
      py::arg("k"), py::arg("class_attribute"), py::arg("hard"), py::arg("progress") = py::none());

  m.def(
      "safepub",
      [](const Codes& codes, const std::vector<Codes>& tables, const std::string& score,
         std::int64_t k, index_t class_attribute, index_t steps, const Fraction& step_factor,
         const Fraction& final_factor, const Fraction& epsilon_anon, bool as_published, int threads,
         const py::object& progress) {
        const std::vector<Attribute> attributes = as_attributes(tables, codes);
        const Scoring scoring = as_scoring(score, k, class_attribute, as_published);
        const SearchPlan plan{steps, as_rational(step_factor), as_rational(final_factor),
                              as_published};
        const SafePubSources sources{RandomSource::current(), RandomSource::current(),
                                     RandomSource::current(), RandomSource::current()};
        const SafePubResult result = without_gil(progress, [&](Control& control) {
          return safepub(as_span(codes), attributes, scoring, plan, as_rational(epsilon_anon),
                         sources, threads, control);
        });
        return py::make_tuple(as_array(result.rows), result.search.scheme, result.search.visited,
                              result.search.schemes, result.search.scores);
      },
      py::arg("codes"), py::arg("tables"), py::kw_only(), py::arg("score"), py::arg("k"),
      py::arg("class_attribute"), py::arg("steps"), py::arg("step_factor"), py::arg("final_factor"),
      py::arg("epsilon_anon"), py::arg("as_published"), py::arg("threads") = 0,
      py::arg("progress") = py::none());

  m.def(
      "safepub_release",
      [](const Codes& codes, const std::vector<Codes>& tables, const Scheme& scheme, std::int64_t k,
         index_t class_attribute, const Fraction& epsilon_anon, int threads,
         const py::object& progress) {
        const std::vector<Attribute> attributes = as_attributes(tables, codes);
        check_scheme(scheme, attributes, class_attribute);
        const Scoring scoring = as_scoring(class_attribute < 0 ? "granularity" : "classification",
                                           k, class_attribute, true);
        const RandomSource sample = RandomSource::current(), shuffle = RandomSource::current();
        return as_array(without_gil(progress, [&](Control& control) {
          return release_scheme(as_span(codes), attributes, scheme, scoring,
                                as_rational(epsilon_anon), sample, shuffle, threads, control);
        }));
      },
      py::arg("codes"), py::arg("tables"), py::arg("scheme"), py::kw_only(), py::arg("k"),
      py::arg("class_attribute"), py::arg("epsilon_anon"), py::arg("threads") = 0,
      py::arg("progress") = py::none());
}

}  // namespace dpmicro::bindings
