/// \file Functions of four bits as tables: what is one, its values, and the code of processors with and without a
/// permutation of sixteen floats.
#include "tinygrad/render/tables.h"

#include <gtest/gtest.h>

#include "render_helpers.h"

namespace tg {
namespace {
using namespace test;

UOp k(double v, DType d) {
  return UOp::constant(d.is_float() ? ConstValue(v) : ConstValue(static_cast<int64_t>(v)), d);
}
UOp op(Ops o, UOp a, double b) { return UOp::alu(o, {a, k(b, a.dtype())}); }
UOp low(UOp x) { return op(Ops::AND, x, 15); }
UOp high(UOp x) { return op(Ops::SHR, x, 4); }

const Table16* table(Tables& t, UOp u) {
  const Table16* last = nullptr;
  for (UOp s : u.toposort()) last = t.add(s);
  return last;
}

TEST(Tables, Values) {
  GraphScope g;
  Tables t;
  UOp x = param(0, dtypes::uint8, 64).index({i32(0)}).load(), w = param(1, dtypes::uint32, 64).index({i32(0)}).load();
  const Table16* a = table(t, op(Ops::ADD, low(x).cast(dtypes::float32), -8));
  ASSERT_TRUE(a);
  EXPECT_EQ(a->source, x);
  EXPECT_EQ(a->shift, 0);
  EXPECT_EQ(a->ops, 3);
  for (size_t i = 0; i < 16; i++) EXPECT_EQ(a->values[i].as_double(), static_cast<double>(i) - 8);
  const Table16* b = table(t, high(x).cast(dtypes::float32));
  ASSERT_TRUE(b);
  EXPECT_EQ(b->source, x);
  EXPECT_EQ(b->shift, 4);
  EXPECT_EQ(b->values[7].as_double(), 7);
  // Bits out of the middle; a mask of fewer; both sides of an operation.
  UOp middle = op(Ops::AND, op(Ops::SHR, w, 13), 5);
  const Table16* c = table(t, middle.cast(dtypes::float32) * middle.cast(dtypes::float32));
  ASSERT_TRUE(c);
  EXPECT_EQ(c->source, w);
  EXPECT_EQ(c->shift, 13);
  EXPECT_EQ(c->values[15].as_double(), 25);
  EXPECT_EQ(c->values[10].as_double(), 0);
  const Table16* d = table(t, op(Ops::CMPLT, low(x), 8).where(low(x).cast(dtypes::float32), k(-1, dtypes::float32)));
  ASSERT_TRUE(d);
  EXPECT_EQ(d->values[3].as_double(), 3);
  EXPECT_EQ(d->values[9].as_double(), -1);
}

TEST(Tables, BitsOfFourBits) {
  // An exponent of two bits, a mantissa of one: parts of one nibble, not other bits.
  GraphScope g;
  Tables t;
  UOp x = param(0, dtypes::uint8, 64).index({i32(0)}).load(), q = high(x);
  UOp e = op(Ops::AND, op(Ops::SHR, q, 1), 3), m = op(Ops::AND, q, 1);
  const Table16* a = table(t, e.cast(dtypes::float32) * op(Ops::MUL, m.cast(dtypes::float32), 0.5));
  ASSERT_TRUE(a);
  EXPECT_EQ(a->source, x);
  EXPECT_EQ(a->shift, 4);
  EXPECT_EQ(a->values[7].as_double(), 1.5);
  EXPECT_EQ(a->values[6].as_double(), 0);
}

TEST(Tables, NotOfFourBits) {
  GraphScope g;
  Tables t;
  UOp x = param(0, dtypes::uint8, 64).index({i32(0)}).load(), s = param(1, dtypes::int8, 64).index({i32(0)}).load();
  EXPECT_FALSE(table(t, x.cast(dtypes::float32)));
  EXPECT_FALSE(table(t, op(Ops::AND, x, 16)));
  EXPECT_FALSE(table(t, op(Ops::AND, x, 31).cast(dtypes::float32)));
  EXPECT_FALSE(table(t, op(Ops::SHR, x, 3)));
  EXPECT_FALSE(table(t, op(Ops::SHR, s, 4))) << "negative, too";
  EXPECT_FALSE(table(t, low(x) + high(x))) << "eight bits";
  EXPECT_FALSE(table(t, low(x).cast(dtypes::float32) + x.cast(dtypes::float32)));
}

TEST(Tables, Code) {
  if (!llvm_plugin_missing().empty()) GTEST_SKIP() << llvm_plugin_missing();
  for (const std::string& arch : processors())
    for (DType d : {dtypes::uint8, dtypes::int8, dtypes::uint16, dtypes::int32, dtypes::uint32, dtypes::int64}) {
      SCOPED_TRACE(str(arch, " ", d));
      ArenaRef arena = std::make_shared<Arena>();
      std::shared_ptr<Program> p;
      {
        ArenaScope scope(*arena);
        UOp at = range(4, 0) * i32(16) + range(16, 1, AxisType::kVector), x = param(0, d, 64).index({at}).load();
        UOps stores;
        auto out = [&](UOp v) {
          stores.push_back(param(static_cast<int>(stores.size()) + 1, dtypes::float32, 64)
                               .index({at})
                               .store(v.cast(dtypes::float32)));
        };
        out(op(Ops::ADD, low(x).cast(dtypes::float32), -8));
        out(op(Ops::MUL, low(high(x)).cast(dtypes::float32), 0.5));
        out(op(Ops::ADD, op(Ops::AND, op(Ops::SHR, x, 6), 7).cast(dtypes::float32), 0.25));
        p = program_of(arena, end(group(stores), at.src(0).src(0)), 4);
      }
      const Target t = target("LLVM", arch);
      Memory want(4, Bytes(256));
      want[0].resize(static_cast<size_t>(64 * d.itemsize()));
      std::mt19937 rng(5);
      for (uint8_t& b : want[0]) b = static_cast<uint8_t>(rng());
      Memory got = want;
      run_interp(p, want);
      const Compiled c = compile(p, t);
      EXPECT_EQ(c.source.find("permvar") != std::string::npos, t.has("avx512f") && d.itemsize() <= 4) << c.source;
      if (!c.kernel) continue;  // another processor
      c(got);
      EXPECT_EQ(got, want);
    }
}

}  // namespace
}  // namespace tg
