/// \file Indices that name no element: those the host knows are errors at once, others with CHECK_INDEX=1.
#include <gtest/gtest.h>

#include <limits>

#include "error/expect_error.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
using V = std::vector<int>;

Tensor table() { return Tensor::arange(6).reshape({2, 3}).contiguous().realize(); }
/// Returns integers whose values the host does not know.
Tensor computed(const Tensor& t) { return t.to_float().cast(dtypes::int32); }

TEST(IndexRange, Lists) {
  expect<IndexError>([] { table()(Tensor({0, 2})); }, "index",
                     "index 2 at (1,) for axis 0 of shape (2, 3), which is out of bounds, expected -2 to 1");
  expect<IndexError>([] { table()(Slice(), std::vector<int>{-4}); }, "index", "index -4 at (0,) for axis 1");
  expect<IndexError>([] { table()(Tensor({{0, 1}, {1, 9}}, {.dtype = dtypes::uint8})); }, "index", "index 9 at (1, 1)");
  expect<IndexError>([] { table()(Tensor::full({2}, 5)); }, "index", "index 5 at (0,)");
  expect<IndexError>([] { table().at(Tensor({3})) = 1; }, "setitem", "index 3 at (0,) for axis 0");
  expect<IndexError>([] { table().index_put({Tensor({-3})}, 1); }, "index_put", "index -3 at (0,) for axis 0");
  expect<IndexError>([] { table().gather(1, Tensor({{0}, {-1}})); }, "gather", "index -1 at (1, 0) for axis 1");
  expect<IndexError>([] { table().gather(0, Tensor({{2, 0, 0}})); }, "gather", "expected 0 to 1");
  expect<IndexError>([] { table().scatter(1, Tensor({{3}}), 9); }, "scatter", "index 3 at (0, 0) for axis 1");
  expect<IndexError>([] { table().scatter_add(1, Tensor({{3}}), 9); }, "scatter_add", "index 3");
  expect<IndexError>([] { table().scatter_reduce(1, Tensor({{-1}}), Tensor({{9}}), ScatterReduce::kMax); },
                     "scatter_reduce", "index -1");
  expect<IndexError>([] { Tensor({0, -1}).one_hot(3); }, "one_hot", "-1 at (1,) for 3 classes");
  expect<IndexError>([] { Tensor({0, 3}).one_hot(3); }, "one_hot", "expected 0 to 2");
  expect<IndexError>([] { nn::Embedding(4, 2)(Tensor({1, 4})); }, "Embedding", "index 4 at (1,) for axis 0");
  expect<IndexError>([] { nn::Embedding(4, 2)(Tensor({-1})); }, "Embedding", "expected 0 to 3");
  expect<IndexError>([] { Tensor::zeros(0, 3)(Tensor({0})); }, "index", "expected none, as the axis is empty");
  EXPECT_EQ(table()(Tensor({-1, 0}), 0).to_vector<int>(), (V{3, 0}));
}

TEST(IndexRange, ViewsOfLists) {
  const Tensor list({{0, 5}});
  expect<IndexError>([&] { table()(list.reshape({2, 1})); }, "index", "index 5 at (1, 0)");
  expect<IndexError>([&] { table()(list.flip(1).to_long()); }, "index", "index 5 at (0, 0)");
  expect<IndexError>([&] { table().gather(1, list.expand(2, 2)); }, "gather", "index 5 at (0, 1)");
  // A part of a list may leave the wrong ones out, and a narrower type may have other values.
  EXPECT_EQ(table()(list(0, Slice(0, 1)), 1).to_vector<int>(), (V{1}));
  EXPECT_EQ(Tensor({257}).cast(dtypes::uint8).one_hot(3).to_vector<int>(), (V{0, 1, 0}));
}

TEST(IndexRange, ListsThatAreWrittenAreComputed) {
  Tensor list({0, 5});
  list.assign(Tensor({1, 0}).realize()).realize();
  EXPECT_EQ(table()(list, 0).to_vector<int>(), (V{3, 0}));
  Tensor part({5, 5});
  part.at(Slice()) = 1;
  EXPECT_EQ(table()(part, 0).to_vector<int>(), (V{3, 3}));
}

TEST(IndexRange, InsideOfACapture) {
  auto f = jit([](const Tensor& x) { return (x(Tensor({0, 2})) + 1).realize(); });
  expect<IndexError>([&] { f(table()); }, "index", "index 2");
  const Tensor list = Tensor({7});
  bool wrong = false;
  auto g = jit([&](const Tensor& x) { return (wrong ? x(list) : x + 1).realize(); });
  g(table());
  wrong = true;
  expect<IndexError>([&] { g(table()); }, "index", "index 7 for axis 0");
}

TEST(IndexRange, ComputedOnesAreZerosOrChecked) {
  const Tensor list = computed(Tensor({0, 2}));
  const auto use_all = [&](const auto& use) {
    use([&] { return table()(list, 0); }, "index", "index 2 at (1,) for axis 0", V{0, 0});
    use([&] { return table().gather(1, computed(Tensor({{1, -1}}))); }, "gather", "index -1 at (0, 1)", V{1, 0});
    use([&] { return table().scatter(1, computed(Tensor({{3}})), 9); }, "scatter", "index 3", V{0, 1, 2, 3, 4, 5});
    use([&] { return list.one_hot(2); }, "one_hot", "2 at (1,) for 2 classes", V{1, 0, 0, 0});
    use([&] { return nn::embedding(table(), list); }, "Embedding", "index 2 at (1,)", V{0, 1, 2, 0, 0, 0});
    use(
        [&] {
          Tensor x = table();
          x.at(list) = 7;
          return x;
        },
        "setitem", "index 2 at (1,)", V{7, 7, 7, 3, 4, 5});
  };
  use_all([](const auto& f, const char* op, const char*, const V& want) {
    EXPECT_EQ(f().template to_vector<int>(), want) << op;
  });
  const Context checked{{"CHECK_INDEX", 1}};
  use_all([](const auto& f, const char* op, const char* part, const V&) { expect<IndexError>(f, op, part); });
}

TEST(IndexRange, CapturedFunctionsAreCheckedInEveryCall) {
  auto f = jit([](const Tensor& x, const Tensor& i) { return (x(i) + 1).realize(); });
  const Tensor fine = computed(Tensor({0})).realize(), wrong = computed(Tensor({4})).realize();
  for (int i = 0; i < 3; i++) f(table(), fine);
  EXPECT_EQ(f(table(), wrong).to_vector<int>(), (V{1, 1, 1}));
  const Context checked{{"CHECK_INDEX", 1}};
  EXPECT_EQ(f(table(), fine).to_vector<int>(), (V{1, 2, 3}));
  expect<IndexError>([&] { f(table(), wrong); }, "index", "index 4 at (0,)");
}

TEST(IndexRange, ShiftsAndWeights) {
  expect<ValueError>([] { Tensor({1}) << -1; }, "lshift", "a shift by -1, expected 0 or more");
  expect<ValueError>([] { Tensor({1}) >> Tensor({2, -3}); }, "rshift", "a shift by -3");
  expect<ValueError>([] { Tensor({1}, dtypes::uint8) << -1; }, "lshift", "a shift by -1");
  const auto draw = [](const Tensor& weights) { return [=] { weights.multinomial(1); }; };
  expect<ValueError>(draw(Tensor({-1.f, 2.f})), "multinomial", "the weight -1 at 0");
  expect<ValueError>(draw(Tensor({1.f, std::numeric_limits<float>::infinity()})), "multinomial", "the weight inf at 1");
  expect<ValueError>(draw(Tensor({1.f, std::numeric_limits<float>::quiet_NaN()})), "multinomial", "at 1");
  expect<ValueError>(draw(Tensor({{1.f, 2.f}, {0.f, 0.f}})), "multinomial", "all 0 in row 1");
  EXPECT_EQ(Tensor({0.f, 2.f}).multinomial(1).to_vector<int>(), V{1});
  const Tensor none = Tensor({1.f, -1.f}).realize() * 2;
  none.multinomial(1);
  const Context checked{{"CHECK_INDEX", 1}};
  expect<ValueError>(draw(none), "multinomial", "the weight -2 at 1");
}

}  // namespace
}  // namespace tg
