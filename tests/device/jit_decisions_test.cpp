/// \file Captured functions that decide by values they read on the host: JitCore::decide.
#include <gtest/gtest.h>

#include "helpers/error_text.h"
#include "several_devices.h"
#include "tinygrad/base/env.h"
#include "tinygrad/tensor/jit/jit.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {

using Floats = std::vector<float>;
Tensor stored(float v) { return Tensor({v, 1.f}).contiguous().realize(); }

/// Returns whether the first element of `t` is positive.
bool positive(const Tensor& t) {
  const Tensor condition = t[0].gt(Tensor(0.f));
  const JitCore::Decision read =
      JitCore::decide(condition, [&] { return std::make_shared<const bool>(condition.item<bool>()); });
  return *std::static_pointer_cast<const bool>(read);
}

struct Branches {
  int runs = 0;
  Tensor operator()(const Tensor& x) {
    runs++;
    return positive(x) ? x * 2 : x - 10;
  }
};

/// Whether functions are captured: otherwise each call runs them.
bool captures() { return env::JIT && !env::CHECK_INDEX; }

TEST(JitDecisions, EachWayIsCaptured) {
  Branches branches;
  auto f = jit([&](const Tensor& x) { return branches(x); });
  for (const float v : {1.f, 2.f, -1.f, -2.f, 3.f, -3.f, 4.f, 4.f, -3.f, 1.f}) {
    const Floats expected{v > 0 ? v * 2 : v - 10, v > 0 ? 2.f : -9.f};
    EXPECT_EQ(f(stored(v)).to_vector<float>(), expected) << v;
  }
}

TEST(JitDecisions, EqualContentsReplay) {
  Branches branches;
  auto f = jit([&](const Tensor& x) { return branches(x); });
  for (int i = 0; i < 6; i++) EXPECT_EQ(f(stored(3)).to_vector<float>(), (Floats{6, 2}));
  EXPECT_EQ(branches.runs, captures() ? 2 : 6);
}

TEST(JitDecisions, ACaptureTakesWhatTheRunBeforeHasReadOfEqualArguments) {
  Branches branches;
  auto f = jit([&](const Tensor& x) { return branches(x); });
  f(stored(1));
  EXPECT_EQ(f(stored(-1)).to_vector<float>(), (Floats{-11, -9}));  // not captured with what the first call has read
  EXPECT_EQ(f(stored(-1)).to_vector<float>(), (Floats{-11, -9}));
  EXPECT_EQ(f(stored(1)).to_vector<float>(), (Floats{2, 2}));
}

TEST(JitDecisions, OtherArgumentsDoNotMatter) {
  int runs = 0;
  auto f = jit([&](const Tensor& x, const Tensor& y) {
    runs++;
    return positive(x) ? y * 2 : y;
  });
  for (int i = 0; i < 5; i++) {
    const float k = static_cast<float>(i);
    EXPECT_EQ(f(stored(1), stored(k)).to_vector<float>(), (Floats{k * 2, 2}));
  }
  EXPECT_EQ(runs, captures() ? 2 : 5);
}

TEST(JitDecisions, SmallStorageOutsideIsCompared) {
  const Tensor state = stored(1);
  auto f = jit([&](const Tensor& y) { return positive(state) ? y * 2 : y; });
  for (int i = 0; i < 3; i++) EXPECT_EQ(f(stored(5)).to_vector<float>(), (Floats{10, 2}));
  Tensor(state).assign(stored(-1)).realize();
  for (int i = 0; i < 3; i++) EXPECT_EQ(f(stored(5)).to_vector<float>(), (Floats{5, 1}));
  Tensor(state).assign(stored(2));  // pending
  for (int i = 0; i < 3; i++) EXPECT_EQ(f(stored(5)).to_vector<float>(), (Floats{10, 2}));
  Tensor(state).assign(stored(-2));
  EXPECT_EQ(f(stored(5)).to_vector<float>(), (Floats{5, 1}));
}

TEST(JitDecisions, AnotherTensorInThePlaceOfStorageOutsideIsRead) {
  Tensor state = stored(1);
  auto f = jit([&](const Tensor& y) { return positive(state) ? y * 2 : y; });
  for (int i = 0; i < 3; i++) EXPECT_EQ(f(stored(5)).to_vector<float>(), (Floats{10, 2}));
  state = stored(-1);
  for (int i = 0; i < 3; i++) EXPECT_EQ(f(stored(5)).to_vector<float>(), (Floats{5, 1}));
}

TEST(JitDecisions, StorageOfReadValuesIsNotTakenForOther) {
  // Each round frees what it has read, and makes storage that may get its place.
  auto f = jit([&](const Tensor& x, const Tensor& y) {
    Tensor out = y;
    for (int i = 0; i < 4; i++) out = positive(x - static_cast<float>(i)) ? out * 2 : out + 1;
    return out;
  });
  for (const float v : {0.5f, 0.5f, 2.5f, 2.5f, 0.5f, 9.f, 9.f, -1.f, 2.5f}) {
    float expected = 3;
    for (int i = 0; i < 4; i++) expected = v > static_cast<float>(i) ? expected * 2 : expected + 1;
    EXPECT_EQ(f(stored(v), stored(3)).to_vector<float>()[0], expected) << v;
  }
}

TEST(JitDecisions, ArgumentsOnSeveralDevices) {
  if (const std::string missing = several_devices_missing(2); !missing.empty()) GTEST_SKIP() << missing;
  const std::string device = Device::default_name();
  auto f = jit([&](const Tensor& x, const Tensor& y) { return positive(x) ? y * 2 : y; });
  for (const float v : {1.f, 1.f, -1.f, -1.f, 1.f, -1.f, 1.f}) {
    const Tensor y = Tensor({3.f, 4.f}).contiguous().realize().shard({device, device + ":1"}, 0).realize();
    const float factor = v > 0 ? 2 : 1;
    EXPECT_EQ(f(stored(v), y).to_vector<float>(), (Floats{3 * factor, 4 * factor})) << v;
  }
}

TEST(JitDecisions, ConstantsAndTypesChooseWhatIsRead) {
  auto f = jit([&](const Tensor& x, const Tensor& y, int which) { return positive(which ? y : x) ? x * 2 : x * 10; });
  for (const int w : {0, 1, 1, 1, 0, 0, 1})
    EXPECT_EQ(f(stored(1), stored(-1), w).to_vector<float>()[0], w ? 10 : 2) << w;
  auto g = jit(
      [&](const Tensor& x) { return positive(x.cast(dtypes::float64) - 3) ? x.to_float() * 0 : x.to_float() * 0 + 1; });
  const Tensor large = Tensor(std::vector<int32_t>{0x40000000, 0}).contiguous().realize();
  g(large);
  const Tensor two = large.bitcast(dtypes::float32).clone().realize();  // the same bytes
  for (int i = 0; i < 3; i++) EXPECT_EQ(g(two).to_vector<float>()[0], 1);
}

TEST(JitDecisions, VariablesDecide) {
  auto f = jit([&](const Tensor& x, const BoundVariable& v) {
    const Tensor c = Tensor::from_uop(v.uop()).gt(Tensor(3));
    const JitCore::Decision read = JitCore::decide(c, [&] { return std::make_shared<const bool>(c.item<bool>()); });
    return *std::static_pointer_cast<const bool>(read) ? x * 2 : x * 10;
  });
  const Variable n("n", 1, 8);
  for (const int k : {2, 2, 2, 5, 5, 8, 2, 1, 3, 4, 6, 7, 5})
    EXPECT_EQ(f(stored(1), n.bind(k)).to_vector<float>()[0], k > 3 ? 2 : 10) << k;
}

TEST(JitDecisions, SizesOfArgumentsDecide) {
  auto f = jit([&](const Tensor& x) {
    const Tensor c = Tensor::from_uop(x.shape()[0].uop()).gt(Tensor(3));
    const JitCore::Decision read = JitCore::decide(c, [&] { return std::make_shared<const bool>(c.item<bool>()); });
    return (*std::static_pointer_cast<const bool>(read) ? x * 2 : x * 10).sum();
  });
  const Tensor all = Tensor::ones(8).contiguous().realize();
  const Variable n("n", 1, 8);
  for (const int k : {2, 2, 2, 5, 5, 8, 2, 4})
    EXPECT_EQ(f(all.shrink({{0, n.bind(k)}})).item<float>(), static_cast<float>(k > 3 ? 2 * k : 10 * k)) << k;
}

TEST(JitDecisions, StorageThatAnArgumentShowsInPart) {
  const Tensor whole = Tensor({1.f, 1.f, 1.f, 1.f}).contiguous().realize();
  auto f = jit([&](const Tensor& a) { return positive(whole.slice(0, 2, 4)) ? a * 2 : a * 10; });
  for (int i = 0; i < 8; i++) {
    if (i == 4) Tensor(whole).assign(Tensor({1.f, 1.f, -1.f, 1.f})).realize();
    EXPECT_EQ(f(whole.slice(0, 0, 2)).to_vector<float>()[0], i < 4 ? 2 : 10) << i;
  }
}

TEST(JitDecisions, AlternatingContentsReplay) {
  Branches branches;
  auto f = jit([&](const Tensor& x) { return branches(x); });
  for (int i = 0; i < 3; i++) f(stored(1));
  for (int i = 0; i < 10; i++) {
    EXPECT_EQ(f(stored(-1)).to_vector<float>(), (Floats{-11, -9}));
    EXPECT_EQ(f(stored(1)).to_vector<float>(), (Floats{2, 2}));
  }
  EXPECT_EQ(branches.runs, captures() ? 4 : 23);
}

TEST(JitDecisions, ErrorsLeaveRoomForCaptures) {
  int runs = 0;
  auto f = jit([&](const Tensor& x) {
    runs++;
    TG_CHECK(ValueError, positive(x), "no");
    return x * 2;
  });
  for (int round = 0; round < 10; round++) {
    EXPECT_THROW(f(stored(-1)), ValueError);
    for (int i = 0; i < 3; i++) EXPECT_EQ(f(stored(1)).to_vector<float>(), (Floats{2, 2}));
  }
  const int before = runs;
  for (int i = 0; i < 5; i++) EXPECT_EQ(f(stored(3)).to_vector<float>(), (Floats{6, 2}));
  EXPECT_EQ(runs - before, captures() ? 2 : 5);
}

TEST(JitDecisions, OfAFunctionInsideOfACapturedOne) {
  auto inner = jit([&](const Tensor& x) { return positive(x) ? x * 2 : x * 10; });
  for (int i = 0; i < 3; i++) inner(stored(1));
  auto f = jit([&](const Tensor& x) { return inner(x) + 1; });
  for (const float v : {1.f, 1.f, 1.f, -1.f, -1.f, -1.f, 1.f})
    EXPECT_EQ(f(stored(v)).to_vector<float>()[0], v > 0 ? v * 2 + 1 : v * 10 + 1) << v;
  for (const float v : {1.f, -1.f, 1.f}) EXPECT_EQ(inner(stored(v)).to_vector<float>()[0], v > 0 ? 2 : -10) << v;
}

TEST(JitDecisions, WhatCannotBeComparedIsAnError) {
  if (!captures()) return;  // there is nothing to compare
  const auto text = [](auto&& f, const Tensor& x) {
    return test::error_text<JitError>([&] {
      for (int i = 0; i < 3; i++) f(x);
    });
  };
  auto large = jit([](const Tensor& x) { return positive(x) ? x * 2 : x; });
  EXPECT_NE(text(large, Tensor::ones({2000}).contiguous().realize()).find("decides by the contents of "),
            std::string::npos);
  if (env::EAGER) return;  // computed tensors keep their expressions there, which show the arguments
  auto realized = jit([](const Tensor& x) {
    const Tensor y = (x + 1).realize();
    return positive(y) ? y * 2 : y;
  });
  EXPECT_NE(text(realized, stored(1)).find("decides by a value that it has realized or assigned"), std::string::npos);
}

}  // namespace
}  // namespace tg
