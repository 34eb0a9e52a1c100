#include "noise.hpp"

#include <pybind11/stl.h>

#include <cstring>

#include "bindings.hpp"
#include "random.hpp"

namespace dpmicro::bindings {
namespace {

using Integers = py::array_t<std::int64_t, py::array::c_style>;
using Words = std::vector<std::uint64_t>;

// Python's integers have no limit; the core's have.
u128 as_u128(const py::int_& number) {
  const py::int_ zero(0), bits(64), mask(~std::uint64_t{0});
  if (number < zero || !((number >> py::int_(128)).equal(zero)))
    throw InputError("the numbers of a fraction must be positive and below 2^128");
  const auto low = py::int_(number & mask).cast<std::uint64_t>();
  const auto high = py::int_(number >> bits).cast<std::uint64_t>();
  return static_cast<u128>(high) << 64 | low;
}

// (numerator, denominator) of a Python Fraction.
std::vector<DiscreteLaplace> as_noises(const std::vector<std::pair<py::int_, py::int_>>& scales) {
  std::vector<DiscreteLaplace> noises;
  noises.reserve(scales.size());
  for (const auto& [numerator, denominator] : scales) {
    const u128 top = as_u128(numerator);
    if (top >= kRationalLimit)
      throw InputError(
          "the scale of the noise is too large or too fine; its numerator must be below 2^62");
    noises.emplace_back(static_cast<std::uint64_t>(top), as_u128(denominator));
  }
  return noises;
}

}  // namespace

void register_noise(py::module_& m) {
  // Seeds, for dpmicro_native.testing.
  m.def("push_seed", [](const py::bytes& bytes) {
    const std::string_view text = bytes;
    SeededGenerator::Key key;
    if (text.size() != sizeof key) throw InputError("a key has 32 bytes");
    std::memcpy(key.data(), text.data(), sizeof key);
    push_seed(key);
  });
  m.def("pop_seed", &pop_seed);
  m.def("generator_is_seeded", &is_seeded);

  m.def(
      "random_words",
      [](index_t count, int threads, const py::object& progress) {
        if (count < 0) throw InputError("a count cannot be negative");
        const RandomSource source = RandomSource::current();
        py::array_t<std::uint64_t> out(count);
        std::uint64_t* words = out.mutable_data();
        without_gil(progress, [&](Control& control) {
          constexpr index_t kGrain = 4096;
          parallel_for(count, kGrain, threads, control, [&](index_t begin, index_t end) {
            Stream stream = source.stream(begin / kGrain);
            for (index_t i = begin; i < end; ++i) words[i] = stream->bits64();
          });
        });
        return out;
      },
      py::arg("count"), py::kw_only(), py::arg("threads") = 0, py::arg("progress") = py::none());

  m.def(
      "permutation",
      [](index_t count, const py::object& progress) {
        if (count < 0) throw InputError("a count cannot be negative");
        const RandomSource source = RandomSource::current();
        Integers out(count);
        const std::span order(out.mutable_data(), static_cast<std::size_t>(count));
        without_gil(progress, [&](Control& control) {
          Stream stream = source.stream();
          permutation(order, stream, control);
        });
        return out;
      },
      py::arg("count"), py::kw_only(), py::arg("progress") = py::none());

  m.def(
      "poisson_sample",
      [](index_t count, std::uint64_t numerator, std::uint64_t denominator, bool exponential,
         int threads, const py::object& progress) {
        if (count < 0) throw InputError("a count cannot be negative");
        const RandomSource source = RandomSource::current();
        py::array_t<bool> out(count);
        const std::span kept(reinterpret_cast<std::uint8_t*>(out.mutable_data()),
                             static_cast<std::size_t>(count));
        without_gil(progress, [&](Control& control) {
          const auto sample = exponential ? &poisson_sample_exponential : &poisson_sample;
          sample(kept, {numerator, denominator}, source, threads, control);
        });
        return out;
      },
      py::arg("count"), py::arg("numerator"), py::arg("denominator"), py::kw_only(),
      py::arg("exponential"), py::arg("threads") = 0, py::arg("progress") = py::none());

  m.def(
      "add_discrete_laplace",
      [](const Integers& values, const std::vector<std::pair<py::int_, py::int_>>& scales,
         const std::optional<py::array_t<std::int32_t, py::array::c_style>>& groups, int threads,
         const py::object& progress) {
        if (values.ndim() != 2) throw InputError("a 2-D array of whole numbers is needed");
        const std::vector<DiscreteLaplace> noises = as_noises(scales);
        const RandomSource source = RandomSource::current();
        const index_t cols = values.shape(1);
        Integers out({values.shape(0), cols});
        std::copy_n(values.data(), values.size(), out.mutable_data());
        const std::span entries(out.mutable_data(), static_cast<std::size_t>(out.size()));
        std::span<const std::int32_t> rows;
        if (groups) rows = {groups->data(), static_cast<std::size_t>(groups->size())};
        without_gil(progress, [&](Control& control) {
          add_discrete_laplace(entries, cols, noises, rows, source, threads, control);
        });
        return out;
      },
      py::arg("values").noconvert(), py::arg("scales"), py::kw_only(),
      py::arg("groups") = py::none(), py::arg("threads") = 0, py::arg("progress") = py::none());

  m.def(
      "select",
      [](const Integers& scores, std::uint64_t numerator, std::uint64_t denominator, bool permute) {
        const RandomSource source = RandomSource::current();
        const std::span candidates(scores.data(), static_cast<std::size_t>(scores.size()));
        const py::gil_scoped_release release;
        Stream stream = source.stream();
        const auto choose = permute ? &permute_and_flip : &exponential_mechanism;
        return choose(candidates, {numerator, denominator}, stream);
      },
      py::arg("scores").noconvert(), py::arg("numerator"), py::arg("denominator"), py::kw_only(),
      py::arg("permute"));

  m.def(
      "quantise",
      [](const py::object& table, int bits, int threads, const py::object& progress) {
        const Matrix U(table);
        Integers out({U.rows(), U.cols()});
        std::int64_t* codes = out.mutable_data();
        without_gil(progress,
                    [&](Control& control) { quantise(U.view(), bits, codes, threads, control); });
        return out;
      },
      py::arg("U"), py::arg("bits"), py::kw_only(), py::arg("threads") = 0,
      py::arg("progress") = py::none());

  m.def(
      "cluster_sums",
      [](const py::object& table, const py::object& labels, index_t clusters, int bits,
         const py::object& progress) {
        const Matrix U(table);
        const auto l = as_labels(labels, U.rows());
        if (clusters < 1 || clusters > U.rows())
          throw InputError("there must be between 1 cluster and one per record");
        const ClusterSums result = without_gil(progress, [&](Control& control) {
          return cluster_sums(U.view(), l.data(), clusters, bits, control);
        });
        Integers sizes(clusters);
        Integers sums({clusters, U.cols()});
        std::copy(result.sizes.begin(), result.sizes.end(), sizes.mutable_data());
        std::copy(result.sums.begin(), result.sums.end(), sums.mutable_data());
        return py::make_tuple(sizes, sums);
      },
      py::arg("U"), py::arg("labels"), py::arg("clusters"), py::arg("bits"), py::kw_only(),
      py::arg("progress") = py::none());

  // What tests need to look inside: draws made from given words instead of random ones. They
  // raise GeneratorError when the words do not suffice.
  m.def("scripted_below", [](Words words, std::uint64_t bound) {
    ScriptedGenerator generator(std::move(words));
    return generator.below(bound);
  });
  m.def("scripted_rational_coin",
        [](Words words, std::uint64_t numerator, std::uint64_t denominator) {
          ScriptedGenerator generator(std::move(words));
          return RationalCoin({numerator, denominator}).flip(generator);
        });
  m.def("scripted_exponential_coin",
        [](Words words, const py::int_& numerator, std::uint64_t denominator) {
          ScriptedGenerator generator(std::move(words));
          return ExponentialCoin(denominator).flip(as_u128(numerator), generator);
        });
  m.def("scripted_below_exponential",
        [](Words words, std::uint64_t numerator, std::uint64_t denominator) {
          ScriptedGenerator generator(std::move(words));
          const std::uint64_t first = generator.bits64();
          return below_exponential(first, numerator, denominator, generator);
        });
  m.def("scripted_discrete_laplace", [](Words words, const py::int_& numerator,
                                        const py::int_& denominator) {
    ScriptedGenerator generator(std::move(words));
    return static_cast<std::int64_t>(as_noises({{numerator, denominator}}).front().draw(generator));
  });
  m.def("exponential_bounds", [](std::uint64_t numerator, std::uint64_t denominator) {
    const ExponentialCoin::Bounds bounds = ExponentialCoin(denominator).bounds(numerator);
    return py::make_tuple(bounds.lower, bounds.upper);
  });
}

}  // namespace dpmicro::bindings
