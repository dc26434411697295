/// \file 4-bit packed dot products: words as lanes.
#include "tinygrad/codegen/opt/packed4.h"

#include "kernels.h"
#include "render_helpers.h"
#include "tinygrad/runtime/host_compilers.h"

namespace tg {
namespace {
using namespace testing;

/// A matrix in blocks of `bytes` bytes with two numbers each, `step` bytes from block to block, times a vector.
struct Blocks {
  int64_t rows, blocks, bytes, step, first;
  bool halves = false;  ///< the scale of a block is its first two bytes
  bool offset = false;  ///< and its offset the next two
  int64_t vectors = 1;
};
KernelPtr product(const Blocks& s, bool whole_bytes = false) {
  KernelMaker k;
  UOp q = k.param(1, s.rows * s.blocks * s.step, dtypes::uint8), x = k.param(2, s.vectors * s.blocks * s.bytes * 2),
      scale = k.param(3, s.rows * s.blocks), o = k.param(0, s.vectors * s.rows);
  UOp vector = k.loop(s.vectors), row = k.loop(s.rows), block = k.red(s.blocks), half = k.red(2), j = k.red(s.bytes),
      at = row * s.blocks + block;
  UOp byte = q.index({at * s.step + j + s.first}).load(), four = UOp::constant(4, dtypes::uint8),
      low = UOp::constant(15, dtypes::uint8);
  UOp number =
      (half < 1).where(whole_bytes ? byte : byte & low, UOp::alu(Ops::SHR, {byte, four})).cast(dtypes::float32);
  auto wide = [&](int64_t i) { return q.index({at * s.step + i}).load().cast(dtypes::uint16); };
  auto half_at = [&](int64_t i) {
    return UOp::alu(Ops::OR, {wide(i), UOp::alu(Ops::SHL, {wide(i + 1), UOp::constant(8, dtypes::uint16)})})
        .bitcast(dtypes::float16)
        .cast(dtypes::float32);
  };
  UOp by = s.halves ? half_at(0) : scale.index({at}).load();
  UOp value = s.offset ? number * by + half_at(2) : (number + UOp::constant(-8.0, dtypes::float32)) * by;
  UOp v = value * x.index({(vector * s.blocks + block) * (2 * s.bytes) + half * s.bytes + j}).load();
  return k.finish(
      o.index({vector * s.rows + row}).store(v.reduce(Ops::ADD, UOps{block, half, j})).end(UOps{vector, row}));
}

std::unique_ptr<Renderer> renderer(const std::string& name, const std::string& arch) {
  return make_renderer(test::target(name, arch));
}
bool is_packed4(const Program& p) { return !p.applied_opts.empty() && p.applied_opts[0].op == OptOp::kPacked4; }

constexpr char kWide[] = "x86_64,skylake-avx512";

TEST(Packed4, EveryBlockFillsRegisters) {
  for (const Blocks& s : {Blocks{260, 4, 16, 18, 2},
                          {256, 8, 8, 10, 2},
                          {300, 2, 32, 36, 4},
                          {257, 2, 64, 66, 0},
                          {256, 2, 32, 32, 0},
                          {256, 1, 128, 130, 2},
                          {260, 16, 16, 18, 2, true},
                          {256, 8, 16, 18, 2, true},
                          {257, 24, 16, 20, 4, true},
                          {256, 32, 8, 10, 2, true},
                          {256, 8, 32, 34, 2, true},
                          {256, 6, 16, 18, 2},
                          {260, 18, 16, 20, 4, true},
                          {257, 15, 8, 10, 2, true},
                          {256, 5, 32, 34, 2, true},
                          {257, 24, 16, 20, 4, true, true},
                          {260, 18, 16, 20, 4, true, true},
                          {256, 128, 16, 20, 4, true, true},
                          {130, 6, 16, 20, 4, true, true, 16},
                          {132, 4, 16, 18, 2, true, false, 8},
                          {128, 8, 8, 10, 2, false, false, 3}}) {
    SCOPED_TRACE(
        str(s.bytes, " bytes, ", s.step, " apart, ", s.vectors, " vectors", s.halves ? ", scales in the blocks" : ""));
    const KernelPtr k = product(s);
    const auto r = renderer("LLVM", kWide);
    const auto p = to_program(*k, *r, {});
    ASSERT_TRUE(is_packed4(*p));
    EXPECT_EQ(p->source.find("gather"), std::string::npos) << p->source;
    Memory want = random_memory(*k, 1);
    for (size_t i = 0; i < want[1].size(); i++)
      want[1][i] = ConstValue(static_cast<int64_t>(i * 2654435761u >> 13 & 255));
    for (size_t i = 0; s.halves && i < want[1].size(); i += static_cast<size_t>(s.step))
      for (size_t high : {i + 1, i + 3})
        if (high == i + 1 || s.offset) want[1][high] = ConstValue((want[1][high].i & 131) | 44);
    Memory got = want;
    {
      ArenaScope scope(*k->arena);
      AstEval(want, {}).run(k->sink);
    }
    {
      ArenaScope scope(*p->arena);
      LinearEval(got, {}).run(p->insts);
    }
    for (size_t i = 0; i < want[0].size(); i++)
      ASSERT_NEAR(got[0][i].as_double(), want[0][i].as_double(), 1e-3) << "row " << i;
    // The machine code of it.
    if (!llvm_plugin_missing().empty()) continue;
    const test::Compiled c = test::compile(p, test::target("LLVM", kWide));
    if (!c.kernel) continue;
    std::vector<float> out(want[0].size()), x, scale;
    std::vector<uint8_t> q;
    for (const ConstValue& v : want[1]) q.push_back(static_cast<uint8_t>(v.i));
    for (const ConstValue& v : want[2]) x.push_back(static_cast<float>(v.as_double()));
    for (size_t i = 0; want.size() > 3 && i < want[3].size(); i++)
      scale.push_back(static_cast<float>(want[3][i].as_double()));
    void* buffers[] = {out.data(), q.data(), x.data(), scale.data()};
    ArenaScope scope(*p->arena);
    c.kernel(buffers, nullptr, 0, p->thread_extent ? static_cast<int64_t>(p->thread_extent.const_int()) : 1);
    for (size_t i = 0; i < out.size(); i++) ASSERT_NEAR(out[i], want[0][i].as_double(), 1e-3) << "row " << i;
  }
}

size_t count(const std::string& in, const std::string& what) {
  size_t n = 0;
  for (size_t at = in.find(what); at != std::string::npos; at = in.find(what, at + 1)) n++;
  return n;
}

TEST(Packed4, SharedRegistersAreComputedOnce) {
  const auto r = renderer("LLVM", kWide);
  const KernelPtr k = product({260, 256, 16, 18, 2, true});
  const auto p = to_program(*k, *r, {});
  ASSERT_TRUE(is_packed4(*p));
  if (!llvm_plugin_missing().empty()) GTEST_SKIP() << llvm_plugin_missing();
  const std::string code = make_llvm_compiler(test::target("LLVM", kWide))->assembly(p->source);
  EXPECT_EQ(count(code, "vcvtph2ps"), 2u) << "sixteen scales each: of two registers of four rows\n" << code;
  // Eight groups of four bits in each word: half of them are looked up in the high halves, with no shift of their own.
  EXPECT_EQ(count(code, "vpsrld"), 24u) << code;
  EXPECT_EQ(count(code, "{z}"), 32u) << code;
}

TEST(Packed4, ScaleAndOffsetOnceForALane) {
  const auto r = renderer("LLVM", kWide);
  const KernelPtr k = product({260, 18, 16, 20, 4, true, true});
  const auto p = to_program(*k, *r, {});
  ASSERT_TRUE(is_packed4(*p));
  size_t prefetches = 0;
  {
    ArenaScope scope(*p->arena);
    for (UOp u : p->insts) prefetches += u.is(Ops::CUSTOM);
  }
  EXPECT_EQ(prefetches, 6u) << "a row of 360 bytes";
  if (!llvm_plugin_missing().empty()) GTEST_SKIP() << llvm_plugin_missing();
  const std::string code = make_llvm_compiler(test::target("LLVM", kWide))->assembly(p->source);
  EXPECT_EQ(count(code, "vcvtph2ps"), 5u) << "scales and offsets of a register together\n" << code;
  // Five registers: eight products with values, one with the scale and one with the offset.
  const size_t loop = code.rfind(".LBB");
  EXPECT_LE(count(code, "vfmadd") + count(code, "vmulps"), 5u * 10 + 5) << code.substr(0, loop);
}

TEST(Packed4, VectorsShareTheValuesOfARow) {
  const auto r = renderer("LLVM", kWide);
  const KernelPtr k = product({260, 18, 16, 20, 4, true, true, 16});
  const auto p = to_program(*k, *r, {});
  ASSERT_TRUE(is_packed4(*p));
  if (!llvm_plugin_missing().empty()) GTEST_SKIP() << llvm_plugin_missing();
  const std::string code = make_llvm_compiler(test::target("LLVM", kWide))->assembly(p->source);
  // Two rows of five registers, eight values a lane: each is unpacked once, then multiplied by eight vectors in a loop.
  EXPECT_LE(count(code, "vcvtph2ps"), 10u) << code;
  EXPECT_LE(count(code, "vfmadd") + count(code, "vmulps"), 2u * 5 * 8 * (1 + 8)) << code;
  EXPECT_EQ(count(code, "vaddps"), 15u) << "the sums over the lanes of sixteen registers, halved four times\n" << code;
}

TEST(Packed4, OnlyWhereItPays) {
  const Blocks s{260, 8, 16, 18, 2};
  auto taken = [](const KernelPtr& k, const Renderer& r) { return is_packed4(*to_program(*k, r, {})); };
  const auto wide = renderer("LLVM", kWide);
  EXPECT_TRUE(taken(product(s), *wide));
  EXPECT_TRUE(taken(product({130, 8, 16, 18, 2}), *wide));
  EXPECT_FALSE(taken(product({260, 8, 16, 18, 2, false, false, 17}), *wide)) << "many vectors: a matrix pays";
  EXPECT_FALSE(taken(product({12, 8, 16, 18, 2}), *wide)) << "few rows: the vector is put in order for each of them";
  EXPECT_FALSE(taken(product(s, true), *wide)) << "a byte is used as it is";
  EXPECT_FALSE(taken(product({260, 8, 16, 17, 1}), *wide)) << "words would begin at odd places";
  EXPECT_FALSE(taken(product({260, 8, 16, 80, 2}), *wide)) << "more than two registers";
  EXPECT_FALSE(taken(product({260, 3, 16, 18, 2}), *wide)) << "blocks do not fill one register";
  EXPECT_FALSE(taken(product({260, 90, 16, 18, 2}), *wide)) << "too many registers to unroll, and the last is not full";
  EXPECT_FALSE(taken(product(s), *renderer("LLVM", "x86_64,haswell")));
  EXPECT_FALSE(taken(product(s), *renderer("CLANG", kWide)));
}

}  // namespace
}  // namespace tg
