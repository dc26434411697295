/// \file Attention by groups of threads: the values of all its forms by the interpreter.
#include <gtest/gtest.h>

#include "offline/disassembly.h"
#include "offline/run_groups.h"
#include "tinygrad/render/renderers.h"
#include "tinygrad/runtime/amdgpu_compiler.h"
#include "tinygrad/runtime/nvrtc_compiler.h"
#include "tinygrad/runtime/wgsl_compiler.h"
#include "tinygrad/uop/eval.h"
#include "unit/attention_kernels.h"

namespace tg {
namespace {
using namespace testing;

/// A GPU with shuffles, and one without; `threads`: of a group, at most.
Target with_shuffles(int64_t threads = 1024) {
  Target t = cuda_target("sm_90");
  t.group_threads = threads;
  return t;
}
Target without_shuffles() { return wgsl_target(""); }
/// A GPU of Apple's: its matrix instructions do not serve, as the threads of a row are no neighbours.
Target apple() {
  Target t;
  t.renderer = "METAL";
  t.arch = "apple7";
  t.features = {"fp16", "shuffles", "simdgroup"};
  t.vector_bytes = 4;
  return t;
}

/// Compiles and runs a kernel whose memory is random; `change` alters it before.
Memory run(const KernelPtr& k, const Target& target, const CodegenOptions& o = {},
           const std::function<void(Memory&)>& change = nullptr, Memory* before = nullptr) {
  const auto p = to_program(*k, *make_renderer(target), o);
  Memory m = random_memory(*k, 3);
  if (change) change(m);
  if (before) *before = m;
  std::vector<DType> types(m.size(), dtypes::float32);
  {
    const ArenaScope scope(*k->arena);
    for (UOp u : k->sink.toposort())
      if (u.is(Ops::PARAM)) types[static_cast<size_t>(u.arg<ParamArg>().slot)] = u.dtype();
  }
  std::vector<std::vector<uint8_t>> data;
  std::vector<void*> pointers;
  for (size_t s = 0; s < m.size(); s++) {
    const auto item = static_cast<size_t>(types[s].itemsize());
    auto& bytes = data.emplace_back(m[s].size() * item);
    for (size_t i = 0; i < m[s].size(); i++) store_const(&bytes[i * item], m[s][i], types[s]);
  }
  for (auto& d : data) pointers.push_back(d.data());
  test::run_groups(p, pointers.data());
  for (size_t i = 0; i < m[0].size(); i++) m[0][i] = load_const(&data[0][4 * i], dtypes::float32);
  return m;
}

void check(const Sizes& n, const Target& target, const CodegenOptions& o = {},
           const std::function<void(Memory&)>& change = nullptr) {
  Memory before;
  const Memory m = run(attention(n, false, true), target, o, change, &before);
  const double off = n.type == dtypes::bfloat16 ? 1e-4 : 1e-5;  // probabilities have 16 bits there
  const std::vector<double> want = expected(before, n);
  for (size_t i = 0; i < want.size(); i++) {
    const double got = m[0][i].as_double();
    if (std::isnan(want[i])) {
      ASSERT_TRUE(std::isnan(got)) << "element " << i << ": " << got;
    } else if (std::isinf(want[i])) {
      ASSERT_EQ(got, want[i]) << "element " << i;
    } else {
      ASSERT_NEAR(got, want[i], off * (1 + std::abs(want[i]))) << "element " << i;
    }
  }
}

TEST(AttentionGroups, Means) {
  for (const Target& target : {with_shuffles(), with_shuffles(64), with_shuffles(8), without_shuffles()}) {
    SCOPED_TRACE(str(target.arch, ' ', target.group_threads));
    check({1, 32, 64, 3, 16}, target);
    check({2, 32, 192, 5, 48}, target);
    check({1, 96, 128, 8, 64, true}, target);
    check({2, 77, 130, 4, 80}, target);
    check({1, 129, 301, 2, 16, true}, target);
  }
  for (const Target& target : {amdgpu_target("gfx942"), amdgpu_target("gfx1100"), apple()}) {
    SCOPED_TRACE(target.arch);
    check({2, 32, 192, 5, 48}, target);
    check({1, 129, 301, 2, 16, true}, target);
  }
  CodegenOptions alone;
  alone.no_locals = true;
  check({1, 33, 129, 4, 16, true}, with_shuffles(), alone);
  CodegenOptions plain;
  plain.noopt = true;
  check({2, 32, 128, 4, 16, true}, with_shuffles(), plain);
}

/// Any number of rows and keys will do, one query included: threads share its keys then.
TEST(AttentionGroups, FewRows) {
  for (const Target& target : {with_shuffles(), without_shuffles(), amdgpu_target("gfx942"), apple()})
    for (int64_t rows : {1, 2, 7, 8, 31})
      for (int64_t over : {17, 130, 1001}) {
        SCOPED_TRACE(str(target.arch, ' ', rows, ' ', over));
        check({2, rows, over, 8, 24}, target);
        check({1, rows, over, 16, 64, true, over - rows}, target);
      }
}

Sizes in_type(Sizes n, DType d) {
  n.type = d;
  return n;
}
int products_in(const Program& p) {
  return static_cast<int>(std::count_if(p.insts.begin(), p.insts.end(), [](UOp u) { return u.is(Ops::WMMA); }));
}

TEST(AttentionGroups, MatrixInstructions) {
  for (DType d : {dtypes::float16, dtypes::bfloat16})
    for (const Sizes& n : {Sizes{1, 64, 64, 16, 16}, Sizes{2, 128, 192, 32, 48, true}, Sizes{1, 77, 130, 64, 64},
                           Sizes{1, 129, 301, 16, 128, true}, Sizes{1, 16, 40, 48, 8}}) {
      SCOPED_TRACE(str(d, ' ', n.rows, ' ', n.over, ' ', n.inner, ' ', n.columns));
      for (const char* arch : {"sm_90", "sm_75"}) {
        if (arch == std::string("sm_75") && d == dtypes::bfloat16) continue;
        const auto p = to_program(*attention(in_type(n, d), false, true), *make_renderer(cuda_target(arch)), {});
        EXPECT_GT(products_in(*p), 0) << arch;
        check(in_type(n, d), cuda_target(arch));
      }
    }
  // One that is not there for these sizes, and one that is switched off.
  check(in_type({1, 40, 70, 20, 16}, dtypes::float16), with_shuffles());
  CodegenOptions none;
  none.tensor_cores = 0;
  const auto p = to_program(*attention(in_type({1, 64, 64, 16, 16}, dtypes::float16), false, true),
                            *make_renderer(with_shuffles()), none);
  EXPECT_EQ(products_in(*p), 0);
}

/// Instructions whose result no thread holds as a first factor: probabilities pass through the memory of the group.
TEST(AttentionGroups, MatrixInstructionsOfAmd) {
  for (const char* arch : {"gfx90a", "gfx942", "gfx1100", "gfx1201"})
    for (DType d : {dtypes::float16, dtypes::bfloat16})
      for (const Sizes& n : {Sizes{1, 64, 64, 16, 32}, Sizes{2, 128, 192, 32, 64, true}, Sizes{1, 77, 130, 64, 64},
                             Sizes{1, 129, 301, 16, 128, true}}) {
        SCOPED_TRACE(str(arch, ' ', d, ' ', n.rows, ' ', n.over, ' ', n.inner, ' ', n.columns));
        const Target target = amdgpu_target(arch);
        EXPECT_GT(products_in(*to_program(*attention(in_type(n, d), false, true), *make_renderer(target), {})), 0);
        check(in_type(n, d), target);
      }
}

int occurrences(const std::string& text, const std::string& word) {
  int n = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) n++;
  return n;
}

/// Nothing is spilled; of 16-bit operands both products are matrix instructions, fed by matrix loads.
TEST(AttentionGroups, WhatTheVendorsCompilerMakes) {
  if (const std::string missing = nvrtc_missing(); !missing.empty()) GTEST_SKIP() << missing;
  if (find_nvdisasm().empty()) GTEST_SKIP() << "no nvdisasm in PATH, in /usr/local/cuda/bin or next to NVRTC";
  for (const char* arch : {"sm_80", "sm_90"})
    for (DType d : {dtypes::float32, dtypes::float16, dtypes::bfloat16})
      for (int64_t inner : {32, 64, 128})
        for (int64_t rows : {1, 2048}) {
          SCOPED_TRACE(str(arch, ' ', d, ' ', inner, ' ', rows));
          const Target target = cuda_target(arch);
          const auto p = to_program(*attention(in_type({32, rows, 2048, inner, inner, rows > 1}, d), false, true),
                                    *make_renderer(target), {});
          const std::string sass =
              disassembled(find_nvdisasm(), make_nvrtc_compiler(target)->compile_cached(p->source));
          EXPECT_EQ(occurrences(sass, "LDL") + occurrences(sass, "STL"), 0) << "spills";
          const bool matrices = rows > 1 && d != dtypes::float32;
          EXPECT_EQ(occurrences(sass, "HMMA") > 0, matrices);
          // The more sums a thread holds, the fewer rows read the same keys.
          if (matrices) { EXPECT_GE(occurrences(sass, "HMMA"), (inner < 128 ? 2 : 0.7) * occurrences(sass, "LDSM")); }
        }
}

class AttentionOnAmd : public ::testing::TestWithParam<const char*> {};

/// Returns the number that assembly says of a kernel.
std::string number_of(const std::string& code, const std::string& name) {
  const size_t at = code.find(name);
  return at == std::string::npos ? "none" : code.substr(at + name.size(), code.find('\n', at) - at - name.size());
}

/// The same of AMD's.
TEST_P(AttentionOnAmd, WhatClangMakes) {
  if (const std::string missing = amdgpu_missing(); !missing.empty()) GTEST_SKIP() << missing;
  const Target target = amdgpu_target(GetParam());
  for (DType d : {dtypes::float32, dtypes::float16, dtypes::bfloat16})
    for (int64_t inner : {64, 128})
      for (int64_t rows : {1, 2048}) {
        SCOPED_TRACE(str(d, ' ', inner, ' ', rows));
        const auto p = to_program(*attention(in_type({32, rows, 2048, inner, inner, rows > 1}, d), false, true),
                                  *make_renderer(target), {});
        const std::string code = make_amdgpu_compiler(target)->assembly(p->source);
        EXPECT_EQ(number_of(code, ".vgpr_spill_count: "), "0");
        EXPECT_EQ(number_of(code, ".sgpr_spill_count: "), "0");
        EXPECT_EQ(occurrences(code, "v_mfma") + occurrences(code, "v_wmma") > 0, rows > 1 && d != dtypes::float32);
      }
}
INSTANTIATE_TEST_SUITE_P(Offline, AttentionOnAmd, ::testing::Values("gfx90a", "gfx942", "gfx1100", "gfx1201"),
                         [](const auto& info) { return std::string(info.param); });

TEST(AttentionGroups, MasksThatCloseBlocks) {
  for (int64_t shift : {-70, -33, 0, 1, 2, 40, 200, 1000}) {
    SCOPED_TRACE(shift);
    check({1, 160, 576, 3, 16, true, shift}, with_shuffles());
    check({1, 163, 579, 3, 16, true, shift}, without_shuffles());
  }
}

TEST(AttentionGroups, NaNAndInfinity) {
  const Sizes n{1, 32, 512, 2, 16}, causal{1, 32, 512, 2, 16, true, 230};
  for (const Sizes& s : {n, causal, Sizes{1, 71, 333, 2, 16}})
    for (double x : {std::nan(""), kInf, -kInf, 1e30, -1e30})
      for (int slot : {1, 2, 3}) {
        SCOPED_TRACE(str("value ", x, " in ", slot, s.causal ? " causal" : ""));
        check(s, with_shuffles(), {}, [&](Memory& m) { m[static_cast<size_t>(slot)][61] = x; });
        if (HasFatalFailure()) return;
      }
  // Rows of which the first blocks, or all, are -inf.
  for (int64_t most : {256, 300, 512}) {
    SCOPED_TRACE(most);
    check(n, with_shuffles(), {}, [&](Memory& m) {
      for (int64_t i = 0; i < n.rows; i++) m[1][static_cast<size_t>(2 * i)] = 1.0;
      for (int64_t j = 0; j < most; j++) m[2][static_cast<size_t>(2 * j)] = -kInf;
    });
  }
}

TEST(AttentionGroups, Products) {
  for (const Target& target : {with_shuffles(), without_shuffles()}) {
    SCOPED_TRACE(target.arch);
    for (const ProductSizes& n :
         {ProductSizes{1, 32, 64, 3, 16}, ProductSizes{1, 77, 130, 1, 16, 2, 1}, ProductSizes{1, 97, 161, 4, 64, 1, -1},
          ProductSizes{2, 32, 64, 2, 48, 1, 1, 1, false}, ProductSizes{1, 67, 323, 1, 16, 2, 1, -200},
          ProductSizes{1, 67, 323, 1, 16, 2, -1, 40}})
      expect_product(run(product(n), target), n);
  }
}

TEST(AttentionGroups, Totals) {
  for (const Target& target : {with_shuffles(), without_shuffles()})
    for (bool causal : {false, true})
      for (const auto& [heads, rows, over] :
           std::vector<std::array<int64_t, 3>>{{80, 64, 64}, {1, 77, 301}, {2, 160, 576}}) {
        SCOPED_TRACE(str(target.arch, ' ', heads, ' ', rows, ' ', over, causal ? " causal" : ""));
        const TotalSizes n{heads, rows, over, causal};
        expect_total(run(total(n), target), n);
      }
}
}  // namespace
}  // namespace tg
