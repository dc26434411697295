/// \file BEAM: results stay, a kernel is searched once, bounds and stops hold, wrong candidates are recognised.
#include "tinygrad/engine/beam.h"

#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "device_facts.h"
#include "tinygrad/base/env.h"
#include "tinygrad/engine/compile.h"
#include "tinygrad/engine/kernel_timer.h"
#include "tinygrad/schedule/schedule.h"
#include "tinygrad/tensor/inspect_tensors.h"
#include "tinygrad/tensor/jit/jit.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {

/// Numbers without a pattern that a wrong order of elements would keep.
Tensor numbers(const Shape& shape, int seed) {
  std::vector<float> v(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < v.size(); i++)
    v[i] = static_cast<float>((i * 7919 + static_cast<size_t>(seed) * 104729) % 1009) / 1009.0f - 0.4f;
  return Tensor::from(v, shape).realize();
}
void expect_close(const std::vector<float>& want, const std::vector<float>& got) {
  ASSERT_EQ(want.size(), got.size());
  for (size_t i = 0; i < want.size(); i++) ASSERT_NEAR(want[i], got[i], 1e-4 * (1 + std::abs(want[i]))) << i;
}
/// The values of f() without a search and with one.
template <class F> void same_with_beam(F f) {
  const auto want = f().template to_vector<float>();
  const Context beam{{"BEAM", 2}, {"BEAM_CANDIDATES_MAX", 8}, {"IGNORE_BEAM_CACHE", 1}};
  clear_kernel_cache();
  expect_close(want, f().template to_vector<float>());
}
int64_t searches_of(const auto& f) {
  const int64_t before = beam_counters().searches;
  clear_kernel_cache();
  clear_schedule_cache();
  f();
  return beam_counters().searches - before;
}

TEST(Beam, ResultsStay) {
  const Tensor a = numbers({65, 96}, 1), b = numbers({96, 80}, 2), x = numbers({2, 8, 17, 16}, 3),
               w = numbers({8, 8, 3, 3}, 4);
  same_with_beam([&] { return a.matmul(b); });
  same_with_beam([&] { return a.matmul(b).relu().sum(0); });
  same_with_beam([&] { return b.transpose(0, 1).matmul(a.transpose(0, 1)).softmax(); });
  same_with_beam([&] { return x.conv2d(w, {}, {.padding = {1, 1}}); });
  same_with_beam([&] { return a.exp().sum(1) + a.max(1); });
}

TEST(Beam, IntegersAndGathersStayExact) {
  const Context beam{{"BEAM", 1}, {"BEAM_CANDIDATES_MAX", 6}};
  const Tensor i = (Tensor::arange(4096).reshape({64, 64}) * 37 % 101).realize();
  int64_t sum = 0;
  for (int k = 0; k < 4096; k++) sum += k * 37 % 101;
  EXPECT_EQ((i.matmul(i.transpose(0, 1)) * 0 + i.sum()).max().item<int>(), sum);
  const Tensor table = numbers({50, 64}, 5), at = (Tensor::arange(300) * 7 % 50).realize();
  const auto rows = table.to_vector<float>(), got = table[at].to_vector<float>();
  for (size_t k = 0; k < 300; k++)
    for (size_t c = 0; c < 64; c += 9) ASSERT_EQ(got[k * 64 + c], rows[k * 7 % 50 * 64 + c]);
}

TEST(Beam, OfCapturedFunctionsOnly) {
  if (!searches_kernels()) GTEST_SKIP() << "BEAM searches compiled kernels of hosts only";
  const Context settings{{"EAGER", 0}, {"JITBEAM", 1}, {"BEAM_CANDIDATES_MAX", 4}, {"IGNORE_BEAM_CACHE", 1}};
  const Tensor a = numbers({70, 64}, 8), b = numbers({64, 74}, 9);
  const auto product = [](const Tensor& x, const Tensor& y) { return x.matmul(y); };
  EXPECT_EQ(searches_of([&] { product(a, b).realize(); }), 0) << "nothing is captured";
  auto captured = jit(product);
  const auto want = product(a, b).to_vector<float>();
  EXPECT_GE(searches_of([&] {
              for (int i = 0; i < 3; i++) expect_close(want, captured(a, b).template to_vector<float>());
            }),
            1);
  const Context off{{"JITBEAM", 0}, {"BEAM", 1}};
  auto other = jit([](const Tensor& x, const Tensor& y) { return x.matmul(y) + 1; });
  other(a, b);
  EXPECT_EQ(searches_of([&] { other(a, b); }), 0) << "captured functions do without";
}

TEST(Beam, SearchesAmongDotProductsKeepIntegersExact) {
  const Context beam{{"EAGER", 0}, {"BEAM", 2}, {"BEAM_CANDIDATES_MAX", 12}, {"IGNORE_BEAM_CACHE", 1}};
  std::vector<int8_t> x(96 * 132), y(132 * 80);
  for (size_t i = 0; i < x.size(); i++) x[i] = static_cast<int8_t>(i * 7919 % 256 - 128);
  for (size_t i = 0; i < y.size(); i++) y[i] = static_cast<int8_t>(i * 104729 % 256 - 128);
  const Tensor a = Tensor::from(x, Shape{96, 132}), b = Tensor::from(y, Shape{132, 80});
  const auto got = a.cast(dtypes::int32).matmul(b.cast(dtypes::int32)).to_vector<int32_t>();
  for (size_t i = 0; i < 96; i++)
    for (size_t j = 0; j < 80; j++) {
      int32_t want = 0;
      for (size_t k = 0; k < 132; k++) want += x[i * 132 + k] * y[k * 80 + j];
      ASSERT_EQ(got[i * 80 + j], want) << i << " " << j;
    }
}

TEST(Beam, AKernelIsSearchedOnce) {
  const Context lazy{{"EAGER", 0}, {"BEAM", 1}, {"BEAM_CANDIDATES_MAX", 4}};
  const Tensor a = numbers({70, 64}, 6), b = numbers({64, 72}, 7);
  const auto product = [&] { a.matmul(b).realize(); };
  const int64_t one = searches_kernels() ? 1 : 0;
  {
    const Context again{{"IGNORE_BEAM_CACHE", 1}};
    EXPECT_EQ(searches_of(product), one);
    EXPECT_EQ(searches_of(product), one) << "IGNORE_BEAM_CACHE=1";
    const int64_t before = beam_counters().searches;
    product();
    EXPECT_EQ(beam_counters().searches, before) << "the loaded kernel is taken all the same";
  }
  EXPECT_EQ(searches_of(product), 0) << "known to this process";
  clear_beam_cache();
  EXPECT_EQ(searches_of(product), env::CACHELEVEL ? 0 : one) << "known to the disk";
  {
    const Context off{{"BEAM", 0}};
    EXPECT_EQ(searches_of(product), 0);
  }
  {
    const Context off{{"NOOPT", 1}};
    EXPECT_EQ(searches_of(product), 0);
  }
  const Context other{{"BEAM_CANDIDATES_MAX", 5}, {"IGNORE_BEAM_CACHE", 1}};
  EXPECT_EQ(searches_of(product), one) << "other bounds, other results";
}

TEST(Beam, BoundsHold) {
  if (!searches_kernels()) GTEST_SKIP() << "BEAM searches compiled kernels of hosts only";
  const Context lazy{{"EAGER", 0}, {"BEAM", 4}, {"IGNORE_BEAM_CACHE", 1}};
  const Tensor a = numbers({96, 96}, 8), b = numbers({96, 96}, 9);
  const auto compiled = [&](const char* name, int64_t value) {
    const Context bound{{name, value}};
    const int64_t before = beam_counters().compiled;
    searches_of([&] { a.matmul(b).realize(); });
    return beam_counters().compiled - before;
  };
  EXPECT_EQ(compiled("BEAM_TIMEOUT_SEC", 0), 1) << "the heuristic's own";
  EXPECT_EQ(compiled("BEAM_CANDIDATES_MAX", 1), 1);
  const int64_t six = compiled("BEAM_CANDIDATES_MAX", 6);
  EXPECT_GT(six, 1);
  EXPECT_LE(six, 6);
}

/// What the heuristic plans in ways of its own (a scan, a product of packed numbers) is measured as it is, and stays where
/// nothing is tried that is faster.
TEST(Beam, BeginsWithTheKernelsOfTheHeuristic) {
  if (!searches_kernels()) GTEST_SKIP() << "BEAM searches compiled kernels of hosts only";
  const Context lazy{{"EAGER", 0}, {"BEAM_CANDIDATES_MAX", 1}, {"IGNORE_BEAM_CACHE", 1}};
  const Tensor a = numbers({64, 96}, 8), b = numbers({96, 64}, 9);
  const auto sources = [&](int64_t beam) {
    const Context searched{{"BEAM", beam}};
    clear_kernel_cache();
    std::vector<std::string> out;
    for (const Tensor& t : {a.cumsum(1), a.cumsum(0), a.matmul(b), a.softmax(1)})
      for (const InspectedKernel& k : inspect({t}, {.measure = false}).kernels) out.push_back(k.source);
    return out;
  };
  EXPECT_EQ(sources(2), sources(0));
}

TEST(Beam, AStopEndsIt) {
  if (!searches_kernels()) GTEST_SKIP() << "BEAM searches compiled kernels of hosts only";
  const Context lazy{
      {"EAGER", 0}, {"BEAM", 8}, {"IGNORE_BEAM_CACHE", 1}, {"BEAM_TIMEOUT_SEC", 60}, {"BEAM_CANDIDATES_MAX", 100000}};
  const Tensor a = numbers({256, 256}, 10), b = numbers({256, 256}, 11);
  Tensor c = a.matmul(b);
  clear_kernel_cache();
  const int64_t before = beam_counters().searches;
  {
    std::stop_source source;
    std::jthread thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      source.request_stop();
    });
    const StopScope scope(source.get_token());
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_THROW(c.realize(), Cancelled);
    EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 20);
  }
  EXPECT_EQ(beam_counters().searches, before);
  EXPECT_FALSE(c.is_realized());
  const Context quick{{"BEAM_CANDIDATES_MAX", 2}};
  const auto got = c.to_vector<float>();
  EXPECT_EQ(beam_counters().searches, before + 1);
  const auto x = a.to_vector<float>(), y = b.to_vector<float>();
  double want = 0;
  for (size_t k = 0; k < 256; k++) want += static_cast<double>(x[3 * 256 + k]) * y[k * 256 + 5];
  EXPECT_NEAR(got[3 * 256 + 5], want, 1e-3);
}

TEST(Beam, CapturedFunctionsReplayWhatWasFound) {
  const Context beam{{"BEAM", 1}, {"BEAM_CANDIDATES_MAX", 4}};
  const Tensor w = numbers({64, 64}, 12);
  auto f = jit([&](const Tensor& x) { return x.matmul(w).relu(); });
  for (int i = 0; i < 4; i++) {
    const Tensor x = numbers({48, 64}, 20 + i);
    expect_close(x.matmul(w).relu().to_vector<float>(), f(x).to_vector<float>());
  }
}

TEST(Beam, WrongResultsAreRecognised) {
  const std::vector<float> want{1.0f, 2.0f, NAN, INFINITY, 0.0f};
  const auto agree = [&](std::vector<float> got) {
    return results_agree(dtypes::float32, want.data(), got.data(), 5, 1e-5);
  };
  EXPECT_TRUE(agree(want));
  EXPECT_TRUE(agree({1.000001f, 2, NAN, INFINITY, -0.0f}));
  EXPECT_FALSE(agree({1.001f, 2, NAN, INFINITY, 0}));
  EXPECT_FALSE(agree({1, 2, 3, INFINITY, 0}));
  EXPECT_FALSE(agree({1, NAN, NAN, INFINITY, 0}));
  EXPECT_FALSE(agree({1, 2, NAN, 1e30f, 0}));
  EXPECT_FALSE(agree({1, 2, NAN, -INFINITY, 0}));
  const std::vector<int32_t> a{1, 2, 3}, b{1, 2, 4};
  EXPECT_TRUE(results_agree(dtypes::int32, a.data(), a.data(), 3, 1));
  EXPECT_FALSE(results_agree(dtypes::int32, a.data(), b.data(), 3, 1));
  const std::vector<uint16_t> h{0x3c00, 0x0001}, g{0x3c01, 0x0001}, q{0x3d00, 0x0001};
  EXPECT_TRUE(results_agree(dtypes::float16, h.data(), g.data(), 2, 2e-3));
  EXPECT_FALSE(results_agree(dtypes::float16, h.data(), q.data(), 2, 2e-3));
}
}  // namespace
}  // namespace tg
