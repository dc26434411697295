/// \file Products by matrix instructions that threads share: what the interpreter computes from the table's layouts,
/// thread by thread, and that the vendors' compilers take the instructions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "helpers/error_text.h"
#include "offline/run_groups.h"
#include "tinygrad/base/context.h"
#include "tinygrad/codegen/plan/matrix_plan.h"
#include "tinygrad/runtime/amdgpu_compiler.h"
#include "tinygrad/runtime/nvrtc_compiler.h"
#include "tinygrad/uop/barriers.h"
#include "unit/kernels.h"
#include "unit/render_helpers.h"

namespace tg {
namespace {
using namespace testing;

Target target_of(const std::string& name) {
  if (name.starts_with("sm_")) return cuda_target(name);
  if (name.starts_with("gfx")) return amdgpu_target(name);
  Target t;
  t.renderer = "METAL";
  t.arch = name;
  t.features = {"simdgroup"};
  t.vector_bytes = 4;
  return t;
}

LaunchSize size_of(const Program& p) {
  LaunchSize s;
  for (int i = 0; i < 3; i++) {
    if (p.global_size[i]) s.global[i] = static_cast<int64_t>(p.global_size[i].const_int());
    if (p.local_size[i]) s.local[i] = static_cast<int64_t>(p.local_size[i].const_int());
  }
  return s;
}

const TensorCore* used(const Program& p) {
  for (const Opt& o : p.applied_opts)
    if (o.op == OptOp::kTc) return &tensor_core_table().at(static_cast<size_t>(o.arg));
  return nullptr;
}

/// A product of matrices: n rows, m columns, l terms.
struct Product {
  int64_t n, m, l;
  bool ta = false, tb = false;
  KernelPtr kernel(const TensorCore& t) const {
    if (t.a.itemsize() == 4) return matmul(n, m, l, ta, tb);
    return narrow_matmul(n, m, l, t.a, t.b, t.out, ta, tb);
  }
};

/// Runs the kernel by the interpreter on numbers whose sums are exact in any order, and compares.
std::shared_ptr<Program> check(const Product& x, const TensorCore& t, const Target& target, CodegenOptions o = {}) {
  o.tensor_cores = 3;
  if (o.tensor_core < 0) o.tensor_core = static_cast<int>(&t - tensor_core_table().data());
  const KernelPtr k = x.kernel(t);
  auto p = to_program(*k, *make_renderer(target), o);
  std::mt19937 random(3);
  std::vector<double> value[2];
  test::Memory memory{test::Bytes(static_cast<size_t>(x.n * x.m) * 4)};
  for (size_t s = 0; s < 2; s++) {
    const DType d = s ? t.b : t.a;
    const double choices[] = {0, 1, 2, d.is_float() ? -0.5 : 3.0, d.is_unsigned() ? 5.0 : -2.0};
    test::Bytes& bytes = memory.emplace_back(static_cast<size_t>((s ? x.m : x.n) * x.l * d.itemsize()));
    for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(d.itemsize())) {
      value[s].push_back(choices[random() % 5]);
      store_const(&bytes[at],
                  d.is_float() ? ConstValue(value[s].back()) : ConstValue(static_cast<int>(value[s].back())), d);
    }
  }
  const LaunchSize size = size_of(*p);
  Interpreter(p).run_groups(test::pointers(memory).data(), nullptr, size, 0,
                            size.global[0] * size.global[1] * size.global[2]);
  for (int64_t i = 0; i < x.n; i++)
    for (int64_t j = 0; j < x.m; j++) {
      double want = 0;
      for (int64_t r = 0; r < x.l; r++)
        want += value[0][static_cast<size_t>(x.ta ? r * x.n + i : i * x.l + r)] *
                value[1][static_cast<size_t>(x.tb ? j * x.l + r : r * x.m + j)];
      const ConstValue got = load_const(&memory[0][static_cast<size_t>(i * x.m + j) * 4], t.out);
      if (got.as_double() != want) {
        ADD_FAILURE() << t.name << ": " << i << ", " << j << ": " << got.as_double() << ", expected " << want << "\n"
                      << to_text(p->applied_opts) << "\n"
                      << p->source.substr(0, 6000);
        return p;
      }
    }
  return p;
}

class MatrixInstructions : public ::testing::TestWithParam<const char*> {};

TEST_P(MatrixInstructions, EveryInstructionOfTheTargetComputesProducts) {
  const Target target = target_of(GetParam());
  const auto cores = tensor_cores_of(target);
  EXPECT_FALSE(cores.empty());
  for (const TensorCore* t : cores)
    for (const Product& x : {Product{64, 64, 64, false, true}, Product{64, 32, 64}, Product{33, 70, 45, true, false},
                             Product{96, 40, 130, false, true}, Product{256, 128, 64, true, false}}) {
      SCOPED_TRACE(str(t->name, " ", x.n, " x ", x.m, " x ", x.l, x.ta ? " ta" : "", x.tb ? " tb" : ""));
      const auto p = check(x, *t, target);
      EXPECT_EQ(used(*p), t);
      if (HasFailure()) return;
    }
}
INSTANTIATE_TEST_SUITE_P(Offline, MatrixInstructions,
                         ::testing::Values("sm_75", "sm_80", "sm_90", "gfx90a", "gfx942", "gfx1100", "gfx1201",
                                           "apple"),
                         [](const auto& info) { return std::string(info.param); });

/// Instructions of whole warpgroups, with both operands along the sum and across it, of tiles that are padded, and in
/// products whose steps are no loop.
TEST(MatrixKernels, WarpgroupsMultiplyWhatIsInMemory) {
  const Target target = cuda_target("sm_90a");
  for (const TensorCore* t : tensor_cores_of(target)) {
    if (!t->reads_memory()) continue;
    const int64_t step = 128 / t->a.itemsize();  // elements of a row in memory
    for (const Product& x : {Product{128, 256, 2 * step, false, true}, Product{64, 256, 3 * step},
                             Product{256, 128, 4 * step, true, false}, Product{100, 200, 2 * step, false, true},
                             Product{90, 130, 2 * step}}) {
      if (t->n > 2 * x.m) continue;  // half of the columns would be none
      SCOPED_TRACE(str(t->name, " ", x.n, " x ", x.m, " x ", x.l, x.ta ? " ta" : "", x.tb ? " tb" : ""));
      const auto p = check(x, *t, target);
      EXPECT_EQ(used(*p), t);
      EXPECT_NE(p->source.find(t->text), std::string::npos) << p->source;
      if (HasFailure()) return;
    }
  }
}

/// Copies go two steps ahead, and products one step behind; the interpreter sees who waits too little.
TEST(MatrixKernels, CopiesAreAheadOfProducts) {
  const Target target = cuda_target("sm_90a");
  const TensorCore* core = find_tensor_core("wgmma_m64n128k16_bf16");
  for (const Product& x : {Product{128, 128, 64 * 7, false, true}, Product{128, 128, 64 * 4, true, false}}) {
    const auto p = check(x, *core, target);
    EXPECT_EQ(p->shared_bytes % 4, 0);
    EXPECT_NE(p->source.find("cp.async.wait_group 1;"), std::string::npos) << p->source;
    EXPECT_NE(p->source.find("wgmma.wait_group.sync.aligned 1;"), std::string::npos);
    EXPECT_NE(p->source.find("wgmma.wait_group.sync.aligned 0;"), std::string::npos);
  }
  const auto p = check({128, 128, 64 * 8, false, true}, *core, target);
  const auto runs_with = [&](bool products, Arg arg) {
    auto changed = std::make_shared<Program>(*p);
    const ArenaScope scope(*p->arena);
    for (UOp& u : changed->insts)
      if (u.is(Ops::BARRIER) && (products ? is_wait_for_products(u) : copies_under_way(u) >= 0)) u = u.with_arg(arg);
    test::Memory memory{test::Bytes(128 * 128 * 4), test::Bytes(128 * 512 * 2), test::Bytes(128 * 512 * 2)};
    test::run_groups(changed, test::pointers(memory).data());
  };
  runs_with(true, Arg(1));
  runs_with(false, Arg("1"));
  EXPECT_THAT(test::error_text<InternalError>([&] { runs_with(true, Arg(2)); }),
              ::testing::HasSubstr("is stored while a product may read it"));
  EXPECT_THAT(test::error_text<InternalError>([&] { runs_with(false, Arg("2")); }),
              ::testing::HasSubstr("is read while copies to it may be under way"));
}

/// Elements of 16 bits that memory has across the sum are copied as they lie, 16 bytes at a time: matrices that are
/// multiplied as `x @ w`, or transposed first.
TEST(MatrixKernels, OperandsAcrossTheSumAreCopiedAsTheyLie) {
  for (const char* arch : {"sm_75", "sm_90", "gfx942", "gfx1100"})
    for (DType type : {dtypes::float16, dtypes::bfloat16})
      for (const bool ta : {false, true}) {
        const Target target = target_of(arch);
        const auto cores = tensor_cores_of(target);
        const auto core = std::find_if(cores.begin(), cores.end(), [&](const TensorCore* t) { return t->a == type; });
        if (core == cores.end()) continue;  // bfloat16 on sm_75
        SCOPED_TRACE(str(arch, " ", type, ta ? " transposed" : ""));
        const std::string text = check({256, 256, 128, ta, false}, **core, target)->source;
        if (arch[0] == 's') {
          EXPECT_EQ(text.find(".shared.b16 {%0, %1, %2, %3}, [%4]") != std::string::npos, (*core)->k == 16) << text;
          EXPECT_NE(text.find(".trans.shared.b16"), std::string::npos) << text;
          EXPECT_EQ(text.find("[%1+%2], 16") != std::string::npos, target.has("async_copy")) << text;
        }
        EXPECT_NE(text.find(arch[0] == 's' ? "copy_u16<" : "copy_"), std::string::npos) << text;
      }
}

TEST(MatrixKernels, Float32IsRoundedWhereThatIsAllowed) {
  const Target target = cuda_target("sm_90");
  const auto plan = [&] { return to_program(*matmul(64, 64, 64), *make_renderer(target), CodegenOptions::from_env()); };
  EXPECT_EQ(used(*plan()), nullptr);
  const Context context{{"ALLOW_TF32", 1}};
  const auto p = plan();
  ASSERT_NE(used(*p), nullptr);
  EXPECT_STREQ(used(*p)->name, "mma_m16n8k8_tf32");
}

}  // namespace
}  // namespace tg
