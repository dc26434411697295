/// \file Sums that the threads of a warp share: by shuffles, run by the interpreter and compiled by the vendors'
/// compilers.
#include <gtest/gtest.h>

#include "offline/run_groups.h"
#include "tinygrad/runtime/amdgpu_compiler.h"
#include "tinygrad/runtime/nvrtc_compiler.h"
#include "unit/kernels.h"
#include "unit/render_helpers.h"

namespace tg {
namespace {
using namespace testing;

struct Reduction {
  int64_t rows, terms;
  bool maximum = false;
};

/// Runs a reduction of rows by the interpreter and compares; the program.
template <class T = float>
std::shared_ptr<Program> check(const Reduction& x, const Target& target, DType d = dtypes::float32,
                               const CodegenOptions& options = {}) {
  const auto p =
      to_program(*reduce_rows(x.rows, x.terms, x.maximum ? Ops::MAX : Ops::ADD, d), *make_renderer(target), options);
  std::vector<T> in(static_cast<size_t>(x.rows * x.terms)), out(static_cast<size_t>(x.rows));
  const T unit = std::is_integral_v<T> && sizeof(T) == 8 ? static_cast<T>(1 + (int64_t{1} << 33)) : T{1};
  for (size_t i = 0; i < in.size(); i++) in[i] = static_cast<T>(static_cast<int>(i * 7919 % 23) - 11) * unit;
  void* buffers[] = {out.data(), in.data()};
  test::run_groups(p, buffers);
  for (int64_t r = 0; r < x.rows; r++) {
    T want = x.maximum ? -100 * unit : 0;
    for (int64_t t = 0; t < x.terms; t++) {
      const T v = in[static_cast<size_t>(r * x.terms + t)];
      want = x.maximum ? std::max(want, v) : want + v;
    }
    EXPECT_EQ(out[static_cast<size_t>(r)], want) << "row " << r << " of " << x.rows << " x " << x.terms << "\n"
                                                 << p->source;
    if (::testing::Test::HasFailure()) break;
  }
  return p;
}
int count(const Program& p, Ops op) {
  ArenaScope scope(*p.arena);
  return static_cast<int>(std::count_if(p.insts.begin(), p.insts.end(), [&](UOp u) { return u.is(op); }));
}

TEST(WarpSums, OfAnyLength) {
  for (const Target& target : {cuda_target("sm_90"), amdgpu_target("gfx942"), amdgpu_target("gfx1100")})
    for (const Reduction& x :
         {Reduction{8, 64}, {3, 1000}, {1, 4096}, {5, 4099}, {300, 17}, {2, 100, true}, {4, 3000, true}}) {
      SCOPED_TRACE(target.arch);
      EXPECT_GT(count(*check(x, target), Ops::CUSTOMI), 0);
    }
}

TEST(WarpSums, OneWarpNeedsNoMemory) {
  for (const Target& target : {cuda_target("sm_90"), amdgpu_target("gfx942")}) {
    const auto p = check({8, 128}, target);
    EXPECT_EQ(count(*p, Ops::BARRIER), 0) << p->source;
    EXPECT_EQ(p->shared_bytes, 0);
    const auto many = check({2, 8192}, target);
    EXPECT_EQ(count(*many, Ops::BARRIER), 1) << many->source;
    int64_t threads = 1;
    for (UOp n : many->local_size)
      if (n) threads *= static_cast<int64_t>(n.const_int());
    EXPECT_EQ(many->shared_bytes, threads / (target.arch == "sm_90" ? 32 : 64) * 4);  // an element of each warp
  }
}

/// A 64-bit integer that is emulated crosses the warp as two words.
TEST(WarpSums, OfEmulatedIntegers) {
  CodegenOptions without;
  without.emulated.add(dtypes::int64);
  for (const Target& target : {cuda_target("sm_90"), amdgpu_target("gfx942")})
    for (const Reduction& x : {Reduction{3, 1000}, {2, 100, true}}) {
      const auto native = check<int64_t>(x, target, dtypes::int64),
                 words = check<int64_t>(x, target, dtypes::int64, without);
      EXPECT_EQ(count(*words, Ops::CUSTOMI), 2 * count(*native, Ops::CUSTOMI));
    }
}

TEST(WarpSums, CompilersTakeThem) {
  const auto cuda = check({8, 4096}, cuda_target("sm_90")), hip = check({8, 4096}, amdgpu_target("gfx942"));
  EXPECT_NE(cuda->source.find("__shfl_xor_sync(0xffffffffu, x, bits)"), std::string::npos) << cuda->source;
  EXPECT_NE(hip->source.find("__builtin_amdgcn_ds_bpermute"), std::string::npos) << hip->source;
  if (nvrtc_missing().empty()) EXPECT_FALSE(make_nvrtc_compiler(cuda_target("sm_90"))->compile(cuda->source).empty());
  if (amdgpu_missing().empty())
    EXPECT_FALSE(make_amdgpu_compiler(amdgpu_target("gfx942"))->compile(hip->source).empty());
}

}  // namespace
}  // namespace tg
