/// \file A language like C of one's own, as docs/new_backend.md describes it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels.h"
#include "tinygrad/render/cstyle/cstyle.h"

namespace tg {
namespace {
using namespace testing;
using ::testing::HasSubstr;
using ::testing::Not;

CStyle mine() {
  CStyle s;
  const auto type = [&](DTypeId d, std::string_view name) { s.types[static_cast<size_t>(d)] = name; };
  type(DTypeId::kBool, "bool");
  type(DTypeId::kInt32, "int");
  type(DTypeId::kUInt16, "unsigned short");
  type(DTypeId::kUInt32, "unsigned");
  type(DTypeId::kInt64, "long");
  type(DTypeId::kUInt64, "unsigned long");
  type(DTypeId::kFloat32, "float");
  s.prologue = "#include <mine.h>\n";
  s.byte = "unsigned char";
  s.function = "mine_kernel void ";
  s.helper = "static ";
  s.pointer = "mine_global ";
  s.variable = "long $v";
  s.restrict_word = "restrict ";
  s.scratch = "mine_shared ";
  s.barrier = "mine_barrier();";
  s.group_index = {"group_x()", "group_y()", "group_z()"};
  s.local_index = {"item_x()", "item_y()", "item_z()"};
  s.inf[0] = "INFINITY";
  s.nan[0] = "NAN";
  s.math_prefix = "mine_";
  s.math_suffix[1] = "f";
  s.bits = "  $t r;\n  memcpy(&r, &x, sizeof r);\n  return r;\n";
  return s;
}

std::string text_of(const CStyle& style, DType d, UOp (*f)(UOp)) {
  Target t;
  t.device = t.renderer = "MINE";
  t.group_threads = 64;
  t.shared_bytes = 16 << 10;
  KernelMaker k;
  UOp o = k.param(0, 8, d), a = k.param(1, 8, d), i = k.loop(8);
  const KernelPtr kernel = k.finish(o.index({i}).store(f(a.index({i}).load())).end(UOps{i}));
  return to_program(*kernel, GridRenderer(t, style))->source;
}

TEST(OwnStyle, FunctionsOfTheDeviceAreCalled) {
  CStyle s = mine();
  const auto exp2 = [](UOp x) { return UOp::alu(Ops::EXP2, {x}); };
  EXPECT_THAT(text_of(s, dtypes::float32, exp2), Not(HasSubstr("exp2"))) << "computed from products";
  s.exp2 = "mine_exp2f";
  s.log2 = "mine_log2f";
  s.sin = "mine_sinf";
  EXPECT_THAT(text_of(s, dtypes::float32, exp2), HasSubstr("mine_exp2f("));
  EXPECT_THAT(text_of(s, dtypes::float32, [](UOp x) { return UOp::alu(Ops::LOG2, {x}); }), HasSubstr("mine_log2f("));
  EXPECT_THAT(text_of(s, dtypes::float32, [](UOp x) { return UOp::alu(Ops::SIN, {x}); }), HasSubstr("mine_sinf("));
  EXPECT_THAT(text_of(s, dtypes::bfloat16, exp2), HasSubstr("mine_exp2f(")) << "emulated in float32";
}

TEST(OwnStyle, DoublesThatItLacksAreRefused) {
  try {
    text_of(mine(), dtypes::float64, [](UOp x) { return x + x; });
    ADD_FAILURE() << "no error";
  } catch (const DTypeError& e) {
    EXPECT_STREQ(e.what(), "[compile] got a value of float64, which MINE does not compute in: cast it to float32");
  }
}

}  // namespace
}  // namespace tg
