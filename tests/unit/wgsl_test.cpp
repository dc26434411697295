/// \file WGSL: how kernels read, narrow elements, what compilers must not see through, and the first line of a kernel.
#include "tinygrad/render/wgsl/wgsl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "helpers/error_text.h"
#include "kernels.h"
#include "tinygrad/render/renderers.h"
#include "tinygrad/runtime/wgsl_compiler.h"

namespace tg {
namespace {
using namespace testing;
using ::testing::HasSubstr;
using ::testing::Not;

std::string wgsl(const KernelPtr& k, std::vector<Opt> opts, Vars vars = {}) {
  CodegenOptions o;
  o.opts = std::move(opts);
  return check_kernel(k, *make_renderer(wgsl_target("")), o, std::move(vars))->source;
}
/// The program of a kernel as it is, which nothing evaluates.
std::string wgsl(const KernelPtr& k) {
  CodegenOptions o;
  o.noopt = true;
  return to_program(*k, *make_renderer(wgsl_target("")), o)->source;
}
/// o[i] = f(a[i], b[i]) for eight elements.
template <class F> KernelPtr of_two(DType in, DType out, F&& f) {
  KernelMaker k;
  UOp o = k.param(0, 8, out), a = k.param(1, 8, in), b = k.param(2, 8, in), i = k.loop(8);
  return k.finish(o.index({i}).store(f(a.index({i}).load(), b.index({i}).load())).end(UOps{i}));
}

TEST(Wgsl, Grid) {
  EXPECT_EQ(wgsl(reduce_rows(6, 8), {{OptOp::kGroup, 1, 4}}), R"(// r_2_4 buffers 24 192 variables 0
struct Given {
  zero: u32,
  offset0: i32,
  offset1: i32,
}
@group(0) @binding(0) var<uniform> given: Given;
@group(0) @binding(1) var<storage, read_write> data0: array<f32>;
@group(0) @binding(2) var<storage, read_write> data1: array<f32>;
var<workgroup> buf0: array<f32, 4>;

@compute @workgroup_size(4, 1, 1)
fn main(@builtin(workgroup_id) gid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
  let begin0 = given.offset0 / 4;
  let begin1 = given.offset1 / 4;
  var acc0: f32;
  var acc1: f32;
  let gidx0 = i32(gid.x);
  acc0 = 0.0f;
  let lidx0 = i32(lid.x);
  acc1 = 0.0f;
  let alu0 = (gidx0 * 8i) + lidx0;
  for (var ridx1: i32 = 0; ridx1 < 2i; ridx1++) {
    let val0 = data1[begin1 + (alu0 + (ridx1 * 4i))];
    acc1 = acc1 + val0;
  }
  buf0[lidx0] = acc1;
  workgroupBarrier();
  for (var ridx6: i32 = 0; ridx6 < 4i; ridx6++) {
    let val1 = buf0[ridx6];
    acc0 = acc0 + val1;
  }
  if (lidx0 < 1i) { data0[begin0 + gidx0] = acc0; }
}
)");
}

/// A thread changes its bytes of a word and no others.
TEST(Wgsl, NarrowElementsArePartsOfWords) {
  const std::string s =
      wgsl(of_two(dtypes::int8, dtypes::uint16, [](UOp a, UOp b) { return (a + b).cast(dtypes::uint16); }));
  EXPECT_THAT(s, HasSubstr("// E_1 buffers 16 8 8 variables 0"));
  EXPECT_THAT(s, HasSubstr("var<storage, read_write> data0: array<atomic<u32>>;"));
  EXPECT_THAT(s, HasSubstr("var<storage, read_write> data1: array<u32>;"));
  EXPECT_THAT(s, HasSubstr("extractBits(bitcast<i32>(data1[u32(i) >> 2u]), (u32(i) & 3u) * 8u, 8u)"));
  EXPECT_THAT(s, HasSubstr("atomicXor(&data0[word], ((old ^ u32(v)) & 0xffffu) << place);"));
  EXPECT_THAT(s, HasSubstr("let begin0 = given.offset0 / 2;"));
  EXPECT_THAT(s, HasSubstr("extractBits(val0 + val1, 0u, 8u)"));  // int8 wraps
}

TEST(Wgsl, BoolsAreBytes) {
  const std::string s = wgsl(of_two(dtypes::float32, dtypes::bool_, [](UOp a, UOp b) { return a < b; }));
  EXPECT_THAT(s, HasSubstr("fn store0_bool(i: i32, v: bool)"));
  EXPECT_THAT(s, HasSubstr("// E_1 buffers 8 32 32 variables 0"));
}

/// What a compiler that takes sums for associative would compute differently is hidden from it.
TEST(Wgsl, NothingIsTakenForGranted) {
  auto of = [](auto f) { return wgsl(of_two(dtypes::float32, dtypes::float32, f)); };
  EXPECT_THAT(of([](UOp a, UOp) { return (a + ConstValue(12582912.0)) + ConstValue(-12582912.0); }),
              HasSubstr("exact(val0 + 12582912.0f)"));
  EXPECT_THAT(of([](UOp a, UOp b) { return (a + b) - a; }), HasSubstr("exact(val0 + val1)"));
  EXPECT_THAT(of([](UOp a, UOp b) { return a * b + a * a; }), HasSubstr("exact("));
  EXPECT_THAT(of([](UOp a, UOp b) { return (a + b) * b; }), Not(HasSubstr("exact(")));
  EXPECT_THAT(of([](UOp a, UOp b) { return a.ne(a).where(b, a); }), HasSubstr("is_nan(val0)"));
  EXPECT_THAT(of([](UOp a, UOp b) { return a.ne(b).where(b, a); }), HasSubstr("!(val0 == val1)"));
  EXPECT_THAT(of([](UOp a, UOp b) { return (a < b).where(a, a.const_like(INFINITY)); }),
              HasSubstr("from_bits(0x7f800000u)"));
  // 0 times what is no number is no number.
  EXPECT_THAT(of([](UOp a, UOp b) { return a * a.const_like(0.0) + b; }), HasSubstr("val0 * from_bits(0u)"));
  EXPECT_THAT(of([](UOp a, UOp b) { return a * a.const_like(-0.0) + b; }), HasSubstr("val0 * from_bits(0x80000000u)"));
}

TEST(Wgsl, VariablesAreTwoWords) {
  KernelMaker k;
  UOp n = UOp::variable("half", 1, 8), a = k.param(1, 8), o = k.param(0, 8),
      i = UOp::range(n, RangeArg{{0}, AxisType::kLoop});
  const std::string s = wgsl(k.finish(o.index({i}).store(a.index({i}).load()).end(UOps{i})));
  EXPECT_THAT(s, HasSubstr("  var0_half: i32,\n  var0_half_high: i32,\n"));
  EXPECT_THAT(s, HasSubstr("buffers 32 32 variables 1"));
}

/// 64-bit integers are two words, in memory and in a launch.
TEST(Wgsl, LongsAreTwoWords) {
  KernelMaker k;
  UOp n = UOp::variable("seed", INT64_MIN, INT64_MAX), a = k.param(1, 8, dtypes::int64),
      o = k.param(0, 8, dtypes::int64), i = k.loop(8);
  const std::string s = wgsl(k.finish(o.index({i}).store(a.index({i}).load() + n.cast(dtypes::int64)).end(UOps{i})));
  EXPECT_THAT(s, HasSubstr("array<u32>"));
  EXPECT_THAT(s, HasSubstr("given.var0_seed_high"));
  EXPECT_THAT(s, HasSubstr("buffers 64 64 variables 1"));
}

/// An index that depends on data may need 64 bits on the way, and fits 32 in the end.
TEST(Wgsl, IndicesBeyondAWordAreEmulated) {
  KernelMaker k;
  UOp o = k.param(0, 8), at = k.param(1, 8, dtypes::int32), a = k.param(2, 1 << 20), i = k.loop(8);
  const KernelPtr kernel = k.finish(
      o.index({i}).store(a.index({at.index({i}).load().cast(dtypes::weakint) * ConstValue(1024)}).load()).end(UOps{i}));
  EXPECT_THAT(wgsl(kernel), HasSubstr("data2["));
  KernelMaker large;
  UOp o2 = large.param(0, 8), at2 = large.param(1, 8, dtypes::int32),
      a2 = large.param(2, int64_t{1} << 33, dtypes::uint8), j = large.loop(8);
  const KernelPtr beyond = large.finish(
      o2.index({j})
          .store(
              a2.index({at2.index({j}).load().cast(dtypes::weakint) * ConstValue(1024)}).load().cast(dtypes::float32))
          .end(UOps{j}));
  EXPECT_THAT(test::error_text<DTypeError>([&] { wgsl(beyond); }),
              HasSubstr("got a buffer of 8589934592 elements, an index of 32 bits reaches 2147483647"));
}

/// A driver that stops long loops without an error never sees them.
TEST(Wgsl, LoopsThatADriverStopsAreRefused) {
  Target t = wgsl_target("");
  t.cpu = "llvmpipe";
  t.features = {kBoundedLoops, "workgroups"};
  CodegenOptions o;
  o.noopt = true;
  auto source = [&](int64_t n) { return to_program(*reduce_rows(1, n), *make_renderer(t), o)->source; };
  EXPECT_THAT(source(65535), HasSubstr("65535i"));
  EXPECT_THAT(test::error_text<CompileError>([&] { source(65536); }),
              HasSubstr("has 65536 iterations of loops in a thread, llvmpipe stops after 65535"));
}

TEST(Wgsl, DoublesAreRefused) {
  EXPECT_THAT(test::error_text<DTypeError>(
                  [] { wgsl(of_two(dtypes::float64, dtypes::float64, [](UOp a, UOp b) { return a + b; })); }),
              HasSubstr("got a value of float64, which "));
  const auto r = make_renderer(wgsl_target(""));
  EXPECT_FALSE(r->supports(dtypes::int64));
  EXPECT_FALSE(r->supports(dtypes::float16));
  EXPECT_TRUE(r->supports(dtypes::uint8));
  EXPECT_EQ(r->max_lanes(dtypes::float32), 1);
}

TEST(Wgsl, FirstLine) {
  const WgslHeader h = WgslHeader::parse("// r_2_4 buffers 24 0 192 variables 2\nrest");
  EXPECT_EQ(h.name, "r_2_4");
  EXPECT_EQ(h.buffer_bytes, (std::vector<int64_t>{24, 0, 192}));
  EXPECT_EQ(h.variables, 2);
  EXPECT_EQ(h.argument_words(), 1u + 3 + 4);
  EXPECT_EQ(h.line(), "// r_2_4 buffers 24 0 192 variables 2\n");
  auto refused = [](const char* text) { return test::error_text<FormatError>([&] { WgslHeader::parse(text); }); };
  EXPECT_THAT(refused("fn main() {}"), HasSubstr("got bytes that are no kernel"));
  EXPECT_THAT(refused(""), HasSubstr("got bytes that are no kernel"));
  EXPECT_THAT(refused("// k buffers 4 -1 variables 0"), HasSubstr("a buffer of '-1' bytes"));
  EXPECT_THAT(refused("// k buffers 4x variables 0"), HasSubstr("a buffer of '4x' bytes"));
  EXPECT_THAT(refused("// k buffers 4"), HasSubstr("does not say how many variables"));
  EXPECT_THAT(refused("// k buffers 4 variables many"), HasSubstr("does not say how many variables"));
}

TEST(Wgsl, CompilerWithoutADevice) {
  const auto compiler = make_wgsl_compiler(wgsl_target(""));
  const std::string source = wgsl(reduce_rows(6, 8), {});
  EXPECT_EQ(compiler->compile(source).size(), source.size());
  EXPECT_THROW(compiler->compile("nonsense"), FormatError);
  EXPECT_THAT(test::error_text<DeviceError>([] { wgsl_target("sm_90"); }), HasSubstr("expected nothing behind WGSL"));
}
}  // namespace
}  // namespace tg
