/// \file Blocks of a transposed matrix: rows of memory and shuffles instead of gathers and scatters.
#include "tinygrad/render/blocks.h"

#include <gtest/gtest.h>

#include "render_helpers.h"

namespace tg {
namespace {
using namespace test;

/// A program that copies `columns` vectors, which lie side by side across rows, into vectors that lie after each other,
/// or back. `mask`: lanes from there on are closed.
std::shared_ptr<Program> copy(ArenaRef arena, DType d, int lanes, int columns, int64_t stride, bool load,
                              int mask = -1) {
  ArenaScope scope(*arena);
  UOp row = range(3, 0), lane = range(lanes, 1, AxisType::kVector), in = param(0, d, 8192), out = param(1, d, 8192);
  UOp gate = mask >= 0 ? UOp::alu(Ops::CMPLT, {lane + row, i32(mask)}) : UOp();
  UOps stores;
  for (int i = 0; i < columns; i++) {
    const int c = columns - 1 - i;
    UOp block = row * i32(lanes * stride) + i32(c + 7) + lane * i32(stride),
        line = (row * i32(columns) + i32(c)) * i32(lanes) + lane;
    if (load) {
      UOp v = gate ? in.index({block}).load(UOp::constant(d.is_bool() ? ConstValue(true) : ConstValue(1), d), gate)
                   : in.index({block}).load();
      stores.push_back(out.index({line}).store(v));
    } else {
      UOp v = in.index({line}).load();
      stores.push_back(gate ? gated_store(out.index({block}), v, gate) : out.index({block}).store(v));
    }
  }
  return program_of(arena, end(group(stores), row), 2);
}

TEST(Blocks, EveryTypeAndSize) {
  if (!llvm_plugin_missing().empty()) GTEST_SKIP() << llvm_plugin_missing();
  for (const std::string& arch : processors())
    for (DType d : {dtypes::uint8, dtypes::bool_, dtypes::float16, dtypes::float32, dtypes::int64})
      for (auto [lanes, columns] : {std::pair{16, 16}, {8, 8}, {16, 5}, {4, 13}, {2, 3}})
        for (bool load : {true, false})
          for (int mask : {-1, lanes - 1}) {
            if (mask >= 0 && columns != 16 && columns != 5) continue;
            ArenaRef arena = std::make_shared<Arena>();
            const auto p = copy(arena, d, lanes, columns, 37, load, mask);
            const Compiled compiled = compile(p, target("LLVM", arch));
            if (mask < 0) {
              EXPECT_EQ(compiled.source.find("gather"), std::string::npos) << compiled.source;
              EXPECT_EQ(compiled.source.find("scatter"), std::string::npos) << compiled.source;
            }
            if (!compiled.kernel) continue;
            Memory want{inputs(d, 8192, 5), Bytes(8192 * eval_itemsize(d), 0)};
            if (d.is_bool())
              for (uint8_t& b : want[0]) b &= 1;
            Memory got = want;
            run_interp(p, want);
            compiled(got);
            EXPECT_EQ(got, want) << d << " " << lanes << " lanes, " << columns << " columns\n" << compiled.source;
          }
}

TEST(Blocks, ColumnsThatFillMemoryAreInterleaved) {
  if (!llvm_plugin_missing().empty()) GTEST_SKIP() << llvm_plugin_missing();
  for (const std::string& arch : processors())
    for (DType d : {dtypes::uint8, dtypes::bool_, dtypes::float16, dtypes::float32, dtypes::int64})
      for (auto [lanes, columns] : {std::pair{16, 2}, {8, 3}, {4, 4}, {16, 3}, {2, 2}})
        for (int mask : {-1, lanes - 1}) {
          ArenaRef arena = std::make_shared<Arena>();
          const auto p = copy(arena, d, lanes, columns, columns, false, mask);
          const Compiled compiled = compile(p, target("LLVM", arch));
          EXPECT_EQ(compiled.source.find("scatter"), std::string::npos) << compiled.source;
          if (!compiled.kernel) continue;
          Memory want{inputs(d, 8192, 5), Bytes(8192 * eval_itemsize(d), 0)};
          if (d.is_bool())
            for (uint8_t& b : want[0]) b &= 1;
          Memory got = want;
          run_interp(p, want);
          compiled(got);
          EXPECT_EQ(got, want) << d << " " << lanes << " lanes, " << columns << " columns\n" << compiled.source;
        }
  // With places left between them they are none.
  ArenaRef arena = std::make_shared<Arena>();
  EXPECT_NE(
      compile(copy(arena, dtypes::float32, 16, 2, 3, false), target("LLVM", "x86_64,x86-64-v4")).source.find("scatter"),
      std::string::npos);
}

TEST(Blocks, WhatMayChangeBetweenIsNoBlock) {
  ArenaRef arena = std::make_shared<Arena>();
  ArenaScope scope(*arena);
  UOp lane = range(8, 1, AxisType::kVector), in = param(0, dtypes::float32, 4096),
      out = param(1, dtypes::float32, 4096);
  auto column = [&](UOp buffer, int c) { return buffer.index({i32(c) + lane * i32(33)}); };
  // Two loads, a store into what they read, two more.
  UOp a = column(in, 0).load(), b = column(in, 1).load(), first = in.index({lane + i32(2000)}).store(a + b),
      later = in.after({first});
  UOp c = column(later, 2).load(), d = column(later, 3).load();
  const auto p = program_of(arena, out.index({lane}).store(c + d), 2);
  const ProgramView view(*p);
  const LaneBlocks blocks(view, 4);
  ASSERT_TRUE(blocks.of(a) && blocks.of(c));
  EXPECT_EQ(blocks.of(a), blocks.of(b));
  EXPECT_EQ(blocks.of(c), blocks.of(d));
  EXPECT_NE(blocks.of(a), blocks.of(c));
  EXPECT_EQ(blocks.of(a)->members, (UOps{a, b}));
  const LaneBlocks near(view, 40);
  EXPECT_EQ(near.of(a), nullptr);
}

TEST(Blocks, PartsCoverTheColumns) {
  using Parts = std::vector<std::pair<int, int>>;
  EXPECT_EQ(block_parts(16, 16), (Parts{{0, 16}}));
  EXPECT_EQ(block_parts(16, 8), (Parts{{0, 8}, {8, 8}}));
  EXPECT_EQ(block_parts(11, 16), (Parts{{0, 8}, {7, 4}}));
  EXPECT_EQ(block_parts(3, 16), (Parts{{0, 2}, {1, 2}}));
}

TEST(Blocks, StepsTranspose) {
  for (int itemsize : {1, 2, 4, 8})
    for (int lanes : {2, 4, 8, 16, 32})
      for (int n = 2; n <= lanes; n *= 2) {
        // Element e of register r has the number r * lanes + e.
        std::vector<std::vector<int64_t>> v;
        for (int r = 0; r < n; r++) {
          v.emplace_back();
          for (int e = 0; e < lanes; e++) v.back().push_back(r * lanes + e);
        }
        for (const ExchangeStep& s : exchange_steps(n, lanes, itemsize))
          for (int i = 0; i < n; i++) {
            if (i & s.bit) continue;
            std::vector<int64_t> both = v[static_cast<size_t>(i)];
            const std::vector<int64_t>& other = v[static_cast<size_t>(i | s.bit)];
            both.insert(both.end(), other.begin(), other.end());
            for (size_t e = 0; e < static_cast<size_t>(lanes); e++) {
              v[static_cast<size_t>(i)][e] = both[static_cast<size_t>(s.low[e])];
              v[static_cast<size_t>(i | s.bit)][e] = both[static_cast<size_t>(s.high[e])];
            }
          }
        for (int r = 0; r < n; r++)
          for (int e = 0; e < lanes; e++)
            EXPECT_EQ(v[static_cast<size_t>(exchanged_register(r, n, itemsize))][static_cast<size_t>(e)],
                      e % n * lanes + e / n * n + r)
                << itemsize << " " << lanes << " " << n;
      }
}

}  // namespace
}  // namespace tg
