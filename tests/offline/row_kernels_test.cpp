/// \file What vendors' compilers make of kernels bound by memory: accesses of 16 bytes, rows in registers, no spills.
#include <gtest/gtest.h>

#include <cmath>

#include "offline/disassembly.h"
#include "offline/run_groups.h"
#include "tinygrad/runtime/amdgpu_compiler.h"
#include "tinygrad/runtime/nvrtc_compiler.h"
#include "unit/kernels.h"
#include "unit/render_helpers.h"

namespace tg {
namespace {
using namespace testing;

int occurrences(const std::string& text, const std::string& word) {
  int n = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) n++;
  return n;
}
std::string sass_of(const Program& p) {
  return disassembled(find_nvdisasm(), make_nvrtc_compiler(cuda_target("sm_90"))->compile_cached(p.source));
}
#define TG_NEEDS_SASS()                                                                       \
  if (const std::string missing = nvrtc_missing(); !missing.empty()) GTEST_SKIP() << missing; \
  if (find_nvdisasm().empty()) GTEST_SKIP() << "no nvdisasm in PATH, in /usr/local/cuda/bin or next to NVRTC"

/// c = a + b.
KernelPtr sum_of_two(int64_t n, DType d) {
  KernelMaker k;
  UOp a = k.param(1, n, d), b = k.param(2, n, d), o = k.param(0, n, d), i = k.loop(n);
  return k.finish(o.index({i}).store(a.index({i}).load() + b.index({i}).load()).end(UOps{i}));
}
/// Rows times a vector.
KernelPtr matvec(int64_t rows, int64_t terms) {
  KernelMaker k;
  UOp a = k.param(1, rows * terms, dtypes::float16), x = k.param(2, terms), o = k.param(0, rows), i = k.loop(rows),
      j = k.red(terms);
  UOp product = a.index({i * terms + j}).load().cast(dtypes::float32) * x.index({j}).load();
  return k.finish(o.index({i}).store(product.reduce(Ops::ADD, UOps{j})).end(UOps{i}));
}
/// exp2(x - maximum of the row) / sum of the row.
KernelPtr row_softmax(int64_t rows, int64_t columns) {
  KernelMaker k;
  UOp a = k.param(1, rows * columns), o = k.param(0, rows * columns), i = k.loop(rows), j = k.loop(columns),
      m = k.red(columns), s = k.red(columns);
  const auto at = [&](UOp c) { return a.index({i * columns + c}).load(); };
  const UOp most = at(m).reduce(Ops::MAX, UOps{m});
  const auto power = [&](UOp c) { return UOp::alu(Ops::EXP2, {at(c) - most}); };
  const UOp sum = power(s).reduce(Ops::ADD, UOps{s});
  return k.finish(o.index({i * columns + j}).store(power(j) / sum).end(UOps{i, j}));
}
std::shared_ptr<Program> compiled(const KernelPtr& k, const Target& t) { return to_program(*k, *make_renderer(t), {}); }

TEST(RowKernels, ElementsOfSixteenBytesAtOnce) {
  TG_NEEDS_SASS();
  for (DType d : {dtypes::float32, dtypes::float16, dtypes::int8}) {
    const std::string sass = sass_of(*compiled(sum_of_two(1 << 22, d), cuda_target("sm_90")));
    SCOPED_TRACE(str(d));
    EXPECT_EQ(occurrences(sass, "LDG.E.128"), 2) << sass;
    EXPECT_EQ(occurrences(sass, "STG.E.128"), 1) << sass;
  }
  // Where nothing divides the length, the threads of the last group do not begin at multiples of 16 bytes.
  const std::string odd = sass_of(*compiled(sum_of_two((1 << 22) + 3, dtypes::float32), cuda_target("sm_90")));
  EXPECT_EQ(occurrences(odd, "LDG.E.128"), 2) << odd;
}

TEST(RowKernels, ElementsOfSixteenBytesAtOnceOnAmd) {
  if (const std::string missing = amdgpu_missing(); !missing.empty()) GTEST_SKIP() << missing;
  for (DType d : {dtypes::float32, dtypes::float16}) {
    const auto p = compiled(sum_of_two(1 << 22, d), amdgpu_target("gfx942"));
    const std::string assembly = make_amdgpu_compiler(amdgpu_target("gfx942"))->assembly(p->source);
    EXPECT_EQ(occurrences(assembly, "load_dwordx4 v"), 2) << assembly;
    EXPECT_EQ(occurrences(assembly, "store_dwordx4 v"), 1) << assembly;
  }
}

TEST(RowKernels, MatvecReadsItsRowsOnce) {
  TG_NEEDS_SASS();
  const auto p = compiled(matvec(4096, 4096), cuda_target("sm_90"));
  const std::string sass = sass_of(*p);
  EXPECT_GT(occurrences(sass, "LDG.E.128"), 2) << sass;
  EXPECT_EQ(occurrences(sass, "LDL") + occurrences(sass, "STL"), 0) << "spills";
  EXPECT_GT(occurrences(sass, "SHFL.BFLY"), 0);
}

/// Runs by the interpreter, with the shuffles of a warp, and compares with float64.
void expect_softmax(int64_t rows, int64_t columns, const Target& target) {
  const auto p = compiled(row_softmax(rows, columns), target);
  std::vector<float> in(static_cast<size_t>(rows * columns)), out(in.size());
  for (size_t i = 0; i < in.size(); i++) in[i] = static_cast<float>(static_cast<int>(i * 7919 % 2003) - 1000) * 0.01f;
  void* buffers[] = {out.data(), in.data()};
  test::run_groups(p, buffers);
  for (int64_t r = 0; r < rows; r++) {
    double sum = 0, most = -1e30;
    for (int64_t c = 0; c < columns; c++) most = std::max<double>(most, in[static_cast<size_t>(r * columns + c)]);
    for (int64_t c = 0; c < columns; c++) sum += std::exp2(in[static_cast<size_t>(r * columns + c)] - most);
    for (int64_t c = 0; c < columns; c++) {
      const double want = std::exp2(in[static_cast<size_t>(r * columns + c)] - most) / sum;
      ASSERT_NEAR(out[static_cast<size_t>(r * columns + c)], want, 1e-6 + 1e-5 * want) << r << ", " << c << p->source;
    }
  }
}

TEST(RowKernels, TeamsOfWarpsComputeSoftmax) {
  for (const Target& target : {cuda_target("sm_90"), amdgpu_target("gfx942")})
    for (const auto& [rows, columns] : {std::pair{16, 64}, {3, 100}, {5, 1000}, {2, 1001}, {1, 4096}, {1, 40001}}) {
      SCOPED_TRACE(target.arch + " " + std::to_string(columns));
      expect_softmax(rows, columns, target);
    }
}

/// What a group reads it reads once: for a thread, elements / threads of a row in words of 16 bytes.
TEST(RowKernels, SoftmaxKeepsItsRowInRegisters) {
  for (const auto& [columns, words] : {std::pair{1024, 4}, {4096, 4}, {16384, 4}}) {
    SCOPED_TRACE(columns);
    const auto p = compiled(row_softmax(4096, columns), cuda_target("sm_90"));
    EXPECT_EQ(occurrences(p->source, "= load_run_f32x4(data1"), 2 * words) << p->source;  // aligned or not
    if (!nvrtc_missing().empty() || find_nvdisasm().empty()) continue;
    const std::string sass = sass_of(*p);
    EXPECT_EQ(occurrences(sass, "LDG.E.128"), words) << sass;
    EXPECT_EQ(occurrences(sass, "STG.E.128"), words);
    EXPECT_EQ(occurrences(sass, "LDL") + occurrences(sass, "STL"), 0) << "spills";
  }
}
}  // namespace
}  // namespace tg
