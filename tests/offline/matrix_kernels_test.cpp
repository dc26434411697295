/// \file Products by matrix instructions that threads share: what the interpreter computes from the table's layouts,
/// thread by thread, and that the vendors' compilers take the instructions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "helpers/error_text.h"
#include "offline/run_groups.h"
#include "tinygrad/base/context.h"
#include "tinygrad/codegen/plan/matrix_plan.h"
#include "tinygrad/render/program_view.h"
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

/// Copies go two steps ahead, and products one step behind; the interpreter sees who waits too little. Rows that begin
/// at no multiple of 16 bytes, or that a tile does not divide, are copied by threads.
TEST(MatrixKernels, CopiesAreAheadOfProducts) {
  Target target = cuda_target("sm_90a");
  std::erase(target.features, "tensor_maps");
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

bool has_text(const Program& p, const std::string& text) { return p.source.find(text) != std::string::npos; }
constexpr const char *kBox = "cp.async.bulk.tensor.2d", *kToAll = ".multicast::cluster", *kPair = "__cluster_dims__(2";

/// Operands are brought by the copy engine in boxes, along the sum and across it, of every type; groups that have an
/// operand in common are a cluster.
TEST(MatrixKernels, BoxesBringWhatWarpgroupsMultiply) {
  const Target target = cuda_target("sm_90a");
  for (const TensorCore* t : tensor_cores_of(target)) {
    if (!t->reads_memory() || (t->n == 256 && t->a.itemsize() != 2)) continue;
    const int64_t step = 128 / t->a.itemsize();
    std::vector<Product> products{{64, 2 * t->n, 4 * step, false, true}, {128, t->n, 5 * step, false, true}};
    if (t->a.itemsize() == 2) products = {{64, 2 * t->n, 4 * step}, {128, t->n, 5 * step, true, false}};
    for (const Product& x : products) {
      SCOPED_TRACE(str(t->name, " ", x.n, " x ", x.m, " x ", x.l, x.ta ? " ta" : "", x.tb ? " tb" : ""));
      const auto p = check(x, *t, target);
      EXPECT_EQ(used(*p), t);
      EXPECT_TRUE(has_text(*p, kBox)) << p->source;
      EXPECT_EQ(tensor_maps(p->insts).size(), 2u);
      EXPECT_EQ(has_text(*p, kToAll), has_text(*p, kPair));
      // The number of a group in its cluster lies above the address, where a descriptor has other fields.
      EXPECT_TRUE(has_text(*p, " / 16 & 16383 | ")) << p->source;
      for (const Opt& opt : p->applied_opts)
        if (opt.op == OptOp::kSplit) EXPECT_TRUE(has_text(*p, kPair)) << "what the plan counts on";
      if (HasFailure()) return;
    }
  }
}

/// Elements of 8 and of 32 bits across the sum are packed by threads.
TEST(MatrixKernels, WordsAcrossTheSumAreNoBoxes) {
  CodegenOptions o;
  o.tensor_cores = 3;
  for (const char* name : {"wgmma_m64n128k32_s8", "wgmma_m64n128k8_tf32"}) {
    const TensorCore* t = find_tensor_core(name);
    ASSERT_NE(t, nullptr) << name;
    o.tensor_core = static_cast<int>(t - tensor_core_table().data());
    const auto p =
        to_program(*Product{256, 256, 512 / t->a.itemsize()}.kernel(*t), *make_renderer(cuda_target("sm_90a")), o);
    EXPECT_EQ(used(*p), t);
    EXPECT_FALSE(has_text(*p, kBox));
    EXPECT_TRUE(tensor_maps(p->insts).empty());
  }
}

TEST(MatrixKernels, TheVendorsCompilerTakesBoxes) {
  if (const std::string missing = nvrtc_missing(); !missing.empty()) GTEST_SKIP() << missing;
  const Target target = cuda_target("sm_90a");
  CodegenOptions o;
  o.tensor_cores = 3;
  for (const TensorCore* t : tensor_cores_of(target)) {
    if (!t->reads_memory() || t->n != 128) continue;
    o.tensor_core = static_cast<int>(t - tensor_core_table().data());
    const auto p =
        to_program(*Product{256, 256, 512 / t->a.itemsize(), false, true}.kernel(*t), *make_renderer(target), o);
    EXPECT_TRUE(has_text(*p, kBox) && has_text(*p, kToAll)) << t->name;
    const std::vector<uint8_t> cubin = make_nvrtc_compiler(target)->compile_cached(p->source);
    EXPECT_EQ(maps_of_image(cubin), tensor_maps(p->insts)) << "what the runtime looks for";
  }
}

/// Runs a program of a cluster whose instructions were changed.
std::string text_of_run(const std::shared_ptr<Program>& p, const std::function<UOp(UOp)>& change) {
  auto changed = std::make_shared<Program>(*p);
  return test::error_text<InternalError>([&] {
    {
      const ArenaScope scope(*p->arena);
      for (UOp& u : changed->insts) u = change(u);
    }
    test::Memory memory{test::Bytes(512 * 512 * 4), test::Bytes(512 * 512 * 2), test::Bytes(512 * 512 * 2)};
    test::run_groups(changed, test::pointers(memory).data());
  });
}

/// The interpreter sees reads of what may not have come, copies to what is still read, and threads that wait for ever.
TEST(MatrixKernels, GroupsOfAClusterWaitForEachOther) {
  const Target target = cuda_target("sm_90a");
  const auto p = check({512, 512, 64 * 8, false, true}, *find_tensor_core("wgmma_m64n256k16_bf16"), target);
  ASSERT_TRUE(has_text(*p, kPair)) << to_text(p->applied_opts) << p->source;
  const auto left_out = [](UOp) { return UOp::make(Ops::NOOP, dtypes::void_, {}); };
  EXPECT_EQ(text_of_run(p, [](UOp u) { return u; }), "no error");
  EXPECT_THAT(text_of_run(p, [&](UOp u) { return awaits_room(u) ? left_out(u) : u; }),
              ::testing::HasSubstr("a box is copied to byte"));
  EXPECT_THAT(text_of_run(p, [&](UOp u) { return awaits_boxes(u) ? left_out(u) : u; }),
              ::testing::HasSubstr("is read while a box may be copied there"));
  EXPECT_THAT(text_of_run(p, [&](UOp u) { return is_wait_for_products(u) ? u.with_arg(Arg(2)) : u; }),
              ::testing::HasSubstr("while a product may read it"));
  const char* never = "threads wait for each other for ever";
  EXPECT_THAT(text_of_run(p, [&](UOp u) { return releases_room(u) ? left_out(u) : u; }), ::testing::HasSubstr(never));
  EXPECT_THAT(text_of_run(p, [&](UOp u) { return expects_boxes(u) ? u.with_arg(Arg("expect 1024")) : u; }),
              ::testing::HasSubstr(never));
  EXPECT_THAT(text_of_run(p, [&](UOp u) { return is_box(u) ? left_out(u) : u; }), ::testing::HasSubstr(never));
  EXPECT_THAT(text_of_run(p, [&](UOp u) { return begins_barriers(u) ? left_out(u) : u; }),
              ::testing::HasSubstr("a barrier in memory that was not begun"));
}

/// Rows and columns beyond the end are 0 in boxes, or those that follow in memory: nothing of them is stored.
TEST(MatrixKernels, BoxesReachBeyondTheEnd) {
  const Target target = cuda_target("sm_90a");
  const TensorCore* core = find_tensor_core("wgmma_m64n128k16_bf16");
  for (const Product& x : {Product{100, 256, 64 * 4, false, true}, Product{200, 250, 64 * 5, false, true},
                           Product{130, 384, 64 * 4}, Product{65, 129, 64 * 6, false, true}}) {
    SCOPED_TRACE(str(x.n, " x ", x.m, " x ", x.l));
    EXPECT_TRUE(has_text(*check(x, *core, target), kBox));
  }
  for (const TensorCore* t : tensor_cores_of(target))
    if (t->reads_memory() && t->n < 256) {
      SCOPED_TRACE(t->name);
      EXPECT_TRUE(has_text(*check({70, t->n + 3, 512 / t->a.itemsize(), false, true}, *t, target), kBox));
    }
  const auto p = check({256, 256, 64 * 4, false, true}, *core, target);
  auto outside = std::make_shared<Program>(*p);
  test::Memory memory{test::Bytes(256 * 256 * 4), test::Bytes(256 * 256 * 2), test::Bytes(256 * 256 * 2)};
  for (size_t s : {1, 2})
    for (size_t at = 0; at < memory[s].size(); at += 2) store_const(&memory[s][at], ConstValue(1.0), dtypes::bfloat16);
  {
    const ArenaScope scope(*p->arena);
    for (UOp& u : outside->insts) {
      if (!is_box(u)) continue;
      UOps src(u.srcs().begin(), u.srcs().end());
      src[5] = UOp::constant(256 - 32, dtypes::int32);  // of 64 rows and more
      u = u.with_srcs(src);
    }
  }
  test::run_groups(outside, test::pointers(memory).data());
  for (int64_t i : {0, 31, 32, 63})
    EXPECT_EQ(load_const(&memory[0][static_cast<size_t>(i * 256) * 4], dtypes::float32).as_double(), i < 32 ? 256 : 0);
}

/// Products side by side, whose matrices follow each other: their rows are those of one long matrix.
TEST(MatrixKernels, BoxesOfSeveralMatrices) {
  const int64_t batch = 3, n = 128, m = 512, l = 64 * 4;
  CodegenOptions o;
  o.tensor_cores = 2;
  o.tensor_core = static_cast<int>(find_tensor_core("wgmma_m64n256k16_bf16") - tensor_core_table().data());
  for (const bool across : {false, true}) {
    KernelMaker k;
    UOp a = k.param(1, batch * n * l, dtypes::bfloat16), b = k.param(2, batch * m * l, dtypes::bfloat16),
        out = k.param(0, batch * n * m);
    UOp z = k.loop(batch), i = k.loop(n), j = k.loop(m), r = k.red(l);
    UOp sum = (a.index({(z * n + i) * l + r}).load().cast(dtypes::float32) *
               b.index({across ? (z * l + r) * m + j : (z * m + j) * l + r}).load().cast(dtypes::float32))
                  .reduce(Ops::ADD, UOps{r});
    const KernelPtr kernel = k.finish(out.index({(z * n + i) * m + j}).store(sum).end(UOps{z, i, j}));
    const auto p = to_program(*kernel, *make_renderer(cuda_target("sm_90a")), o);
    EXPECT_TRUE(has_text(*p, kBox) && has_text(*p, kPair)) << to_text(p->applied_opts);
    test::Memory memory{test::Bytes(static_cast<size_t>(batch * n * m) * 4),
                        test::Bytes(static_cast<size_t>(batch * n * l) * 2),
                        test::Bytes(static_cast<size_t>(batch * m * l) * 2)};
    for (size_t s : {1, 2})
      for (size_t at = 0; at * 2 < memory[s].size(); at++)
        store_const(&memory[s][2 * at], ConstValue(static_cast<double>(at * 11 % 7) - 3), dtypes::bfloat16);
    test::run_groups(p, test::pointers(memory).data());
    const auto value = [&](size_t s, int64_t at) {
      return load_const(&memory[s][static_cast<size_t>(2 * at)], dtypes::bfloat16).as_double();
    };
    for (int64_t row = 0; row < batch * n; row += 19)
      for (int64_t column = 0; column < m; column += 3) {
        const int64_t of = row / n;
        double want = 0;
        for (int64_t t = 0; t < l; t++)
          want += value(1, row * l + t) * value(2, across ? (of * l + t) * m + column : (of * m + column) * l + t);
        ASSERT_EQ(load_const(&memory[0][static_cast<size_t>(row * m + column) * 4], dtypes::float32).as_double(), want)
            << row << ", " << column;
      }
  }
}

/// Rows and columns of larger matrices: boxes where rows begin at multiples of 16 bytes, whatever the first element.
TEST(MatrixKernels, BoxesOfPartsOfMatrices) {
  const Target target = cuda_target("sm_90a");
  const int64_t n = 128, m = 256, l = 64 * 4;
  CodegenOptions inexact;
  inexact.tensor_cores = 2;
  inexact.tensor_core = static_cast<int>(find_tensor_core("wgmma_m64n256k16_bf16") - tensor_core_table().data());
  for (const auto& [wide, first, boxes] : {std::tuple<int64_t, int64_t, bool>{l + 64, 0, true},
                                           {l + 64, 24, true},
                                           {l + 8, 8, true},
                                           {l + 8, 9 * (l + 8), true},
                                           {l + 2, 2, false},
                                           {l + 8, 16, false}}) {
    SCOPED_TRACE(str(wide, " ", first));
    KernelMaker k;
    const int64_t all = (n + 10) * wide + first;
    UOp a = k.param(1, all, dtypes::bfloat16), b = k.param(2, m * l, dtypes::bfloat16), out = k.param(0, n * m);
    UOp i = k.loop(n), j = k.loop(m), r = k.red(l);
    UOp sum = (a.index({i * wide + r + first}).load().cast(dtypes::float32) *
               b.index({j * l + r}).load().cast(dtypes::float32))
                  .reduce(Ops::ADD, UOps{r});
    const KernelPtr kernel = k.finish(out.index({i * m + j}).store(sum).end(UOps{i, j}));
    const auto p = to_program(*kernel, *make_renderer(target), inexact);
    EXPECT_EQ(has_text(*p, kBox), boxes) << to_text(p->applied_opts);
    test::Memory memory{test::Bytes(static_cast<size_t>(n * m) * 4), test::Bytes(static_cast<size_t>(all) * 2),
                        test::Bytes(static_cast<size_t>(m * l) * 2)};
    for (size_t s : {1, 2})
      for (size_t at = 0; at * 2 < memory[s].size(); at++)
        store_const(&memory[s][2 * at], ConstValue(static_cast<double>(at * 7 % 5) - 2), dtypes::bfloat16);
    test::run_groups(p, test::pointers(memory).data());
    const auto value = [&](size_t s, int64_t at) {
      return load_const(&memory[s][static_cast<size_t>(2 * at)], dtypes::bfloat16).as_double();
    };
    for (int64_t row = 0; row < n; row += 9)
      for (int64_t column = 0; column < m; column++) {
        double want = 0;
        for (int64_t t = 0; t < l; t++) want += value(1, row * wide + t + first) * value(2, column * l + t);
        ASSERT_EQ(load_const(&memory[0][static_cast<size_t>(row * m + column) * 4], dtypes::float32).as_double(), want)
            << row << ", " << column;
      }
  }
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
  const auto exact = plan();
  ASSERT_NE(used(*exact), nullptr);
  EXPECT_TRUE(used(*exact)->multiply_adds()) << used(*exact)->name;
  EXPECT_NE(exact->source.find("fmaf("), std::string::npos);
  EXPECT_EQ(exact->source.find("mma.sync"), std::string::npos);
  const Context context{{"ALLOW_TF32", 1}};
  const auto p = plan();
  ASSERT_NE(used(*p), nullptr);
  EXPECT_STREQ(used(*p)->name, "mma_m16n8k8_tf32");
}

}  // namespace
}  // namespace tg
