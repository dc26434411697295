/// \file Opts as text and as bytes; operands by number beyond 32.
#include "tinygrad/uop/opt.h"

#include "kernels.h"
#include "tinygrad/base/binary.h"
#include "tinygrad/codegen/opt/kernel_axes.h"
#include "tinygrad/codegen/scratch/stage.h"
#include "tinygrad/uop/arg.h"

namespace tg {
namespace {
using namespace testing;

Opts one_of_each() {
  Opts opts;
  for (int op = 0; op < kOptOpCount; op++) opts.push_back({static_cast<OptOp>(op), op - 1, int64_t{1} << (3 * op)});
  return opts;
}

TEST(Opt, TextComesBack) {
  EXPECT_EQ(to_text({{OptOp::kUpcast, 0, 4}, {OptOp::kStageWindow, -1, 33}}), "UPCAST(0, 4) STAGEWINDOW(-1, 33)");
  EXPECT_EQ(opts_from_text(to_text(one_of_each())), one_of_each());
  EXPECT_EQ(opts_from_text(""), Opts{});
}

TEST(Opt, OtherTextIsRefused) {
  for (const char* text : {"1 0 3 4", "UPCAST", "UPCAST(0, 4", "UPCAST(0; 4)", "UPCAST(a, 4)", "UPCASTS(0, 4)",
                           "UPCAST(0, 4) UNROLL", "(0, 4)"})
    EXPECT_FALSE(opts_from_text(text)) << text;
}

TEST(Opt, BytesComeBack) {
  ByteWriter w;
  write_opts(w, one_of_each());
  ByteReader r(w.bytes, "opts");
  EXPECT_EQ(read_opts(r), one_of_each());
  w.bytes[8] = kOptOpCount;  // the first operation, behind the count
  ByteReader damaged(w.bytes, "opts");
  EXPECT_THROW(read_opts(damaged), FormatError);
}

TEST(Opt, HashTellsOptsApart) {
  auto hash = [](const Opts& opts) {
    Hash128 h;
    add_to_hash(h, opts);
    return h;
  };
  EXPECT_NE(hash({{OptOp::kStage, 0, 1}}), hash({{OptOp::kStageWindow, 0, 1}}));
  EXPECT_NE(hash({{OptOp::kStage, 0, 1}}), hash({{OptOp::kStage, 1, 0}}));
}

/// The sum of 17 products of matrices: 34 operands.
KernelPtr many_products(int64_t n, int64_t m, int64_t inner) {
  KernelMaker k;
  UOp out = k.param(0, n * m), i = k.loop(n), j = k.loop(m), sum;
  for (int q = 0; q < 17; q++) {
    UOp a = k.param(1 + 2 * q, n * inner), b = k.param(2 + 2 * q, inner * m), r = k.red(inner);
    UOp product = (a.index({i * inner + r}).load() * b.index({r * m + j}).load()).reduce(Ops::ADD, UOps{r});
    sum = sum ? sum + product : product;
  }
  return k.finish(out.index({i * m + j}).store(sum).end(UOps{i, j}));
}

TEST(Opt, OperandsBeyond32) {
  const KernelPtr k = many_products(4, 8, 3);
  {
    ArenaScope scope(*k->arena);
    EXPECT_EQ(stageable(k->sink).size(), 34u);
  }
  CodegenOptions o;
  for (int64_t operand : {0, 31, 32, 33}) {
    o.opts = Opts{{OptOp::kStage, -1, operand}};
    const auto p = check_kernel(k, TestRenderer(16), o);
    EXPECT_EQ(p->applied_opts, *o.opts);
  }
  o.opts = Opts{{OptOp::kStage, -1, 34}};
  EXPECT_THROW(to_program(*k, TestRenderer(16), o), KernelOptError);
  check_kernel(many_products(64, 64, 64), TestRenderer(64), {});  // the heuristic
}

}  // namespace
}  // namespace tg
