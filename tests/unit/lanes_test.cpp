/// \file Loads whose lanes are at known places near each other: one load and a shuffle instead of a gather.
#include <gtest/gtest.h>

#include "render_helpers.h"
#include "tinygrad/render/program_view.h"

namespace tg {
namespace {
using namespace test;

TEST(Lanes, KnownOffsets) {
  ArenaRef arena = std::make_shared<Arena>();
  ArenaScope scope(*arena);
  UOp row = range(4, 0), lane = range(16, 1, AxisType::kVector), in = param(0, dtypes::uint8, 256);
  UOp eighth = UOp::alu(Ops::SHR, {lane, i32(3)}), fold = UOp::alu(Ops::AND, {lane * i32(3), i32(7)}),
      back = i32(40) - UOp::alu(Ops::CDIV, {lane, i32(5)});
  UOps stores;
  for (UOp at : {row * i32(22) + eighth, row + fold, row * i32(16) + back, row * row + lane})
    stores.push_back(param(static_cast<int>(stores.size()) + 1, dtypes::uint8, 64)
                         .index({row * i32(16) + lane})
                         .store(in.index({at}).load()));
  const auto p = program_of(arena, end(group(stores), row), 5);
  const ProgramView view(*p);
  EXPECT_EQ(view.of(eighth).offsets, (std::vector<int64_t>{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(view.of(eighth).first, 0);
  EXPECT_EQ(view.of(back).offsets.back(), -3);
  EXPECT_EQ(view.of(back).first, 40);
  const Inst& sum = view.of(stores[0].src(1).src(0).src(1));
  EXPECT_EQ(sum.offsets, view.of(eighth).offsets);
  EXPECT_FALSE(sum.first) << "the row is not known";
  EXPECT_TRUE(view.of(stores[3].src(1).src(0).src(1)).affine);
}

TEST(Lanes, NearLoads) {
  if (!llvm_plugin_missing().empty()) GTEST_SKIP() << llvm_plugin_missing();
  std::mt19937 rng(9);
  for (const std::string& arch : processors())
    for (int lanes : {4, 8, 16})
      for (int round = 0; round < 12; round++) {
        // base + ((lane * a + b) op c), the last rounds with lanes too far apart for a vector.
        const int64_t a = round < 9 ? 1 + static_cast<int64_t>(rng() % 3) : 40, b = static_cast<int64_t>(rng() % 4),
                      c = 2 + static_cast<int64_t>(rng() % 6);
        ArenaRef arena = std::make_shared<Arena>();
        std::shared_ptr<Program> p;
        {
          ArenaScope scope(*arena);
          UOp row = range(4, 0), lane = range(lanes, 1, AxisType::kVector), x = lane * i32(a) + i32(b);
          UOp at = round % 3 == 0   ? UOp::alu(Ops::CDIV, {x, i32(c)})
                   : round % 3 == 1 ? UOp::alu(Ops::CMOD, {x, i32(c)})
                                    : i32(400) - UOp::alu(Ops::SHR, {x, i32(c % 3 + 1)});
          UOps stores;
          for (DType d : {dtypes::uint8, dtypes::float32, dtypes::bool_, dtypes::int64})
            stores.push_back(
                param(static_cast<int>(stores.size()) + 4, d, 64)
                    .index({row * i32(lanes) + lane})
                    .store(param(static_cast<int>(stores.size()), d, 1024).index({row * i32(22) + at}).load()));
          p = program_of(arena, end(group(stores), row), 8);
        }
        const Target t = target("LLVM", arch);
        Memory want(8);
        for (size_t k = 0; k < 8; k++) want[k].resize(8 * 1024);
        for (size_t k = 0; k < 4; k++)
          for (uint8_t& v : want[k]) v = static_cast<uint8_t>(rng() % (k == 2 ? 2 : 100));
        Memory got = want;
        run_interp(p, want);
        const Compiled compiled = compile(p, t);
        int64_t low = 0, high = 0;
        for (int64_t l = 0; l < lanes; l++) {
          const auto at = [&](int64_t x) {
            return round % 3 == 0 ? x / c : round % 3 == 1 ? x % c : -(x >> (c % 3 + 1));
          };
          low = std::min(low, at(l * a + b) - at(b));
          high = std::max(high, at(l * a + b) - at(b));
        }
        if (high - low < lanes) EXPECT_EQ(compiled.source.find("gather"), std::string::npos) << compiled.source;
        if (!compiled.kernel) continue;
        compiled(got);
        EXPECT_EQ(got, want) << compiled.source;
      }
}

}  // namespace
}  // namespace tg
