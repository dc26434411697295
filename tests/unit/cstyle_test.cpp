/// \file What the C renderer does beyond one operation at a time: names, registers, masks of mixed width, whole random
/// kernels; how the text reads.
#include <gtest/gtest.h>

#include "render_helpers.h"
#include "tinygrad/base/context.h"

namespace tg {
namespace {
using namespace test;

class CStyle : public testing::Test {
 protected:
  void SetUp() override {
    if (clang_path().empty()) GTEST_SKIP() << "no clang";
  }
};

Target haswell(const char* renderer = "CLANG") { return target(renderer, "x86_64,haswell"); }
UOp floats(double v) { return UOp::constant(ConstValue(v), dtypes::float32); }
UOp lanes_range(int n, int id = 9) { return range(n, id, AxisType::kVector); }

/// Runs a program both ways on the same memory.
void expect_same(const std::shared_ptr<Program>& p, Memory m, const std::vector<DType>& types,
                 const std::vector<int64_t>& vars = {}, const Target& t = haswell()) {
  Memory expected = m;
  run_interp(p, expected, vars);
  Compiled code = compile(p, t);
  if (!code.kernel) return;
  code(m, vars);
  for (size_t k = 0; k < m.size(); k++) {
    const int64_t at = first_difference(m[k], expected[k], types[k]);
    if (at < 0) continue;
    auto value = [&](const Bytes& x) {
      return load_const(x.data() + static_cast<size_t>(at) * eval_itemsize(types[k]), types[k]).as_double();
    };
    ADD_FAILURE() << "slot " << k << " element " << at << " is " << value(m[k]) << ", expected " << value(expected[k])
                  << "\n"
                  << code.source;
  }
}

/// out[i] = sum over k of relu(a[i, k]) where k < n, a row at a time.
std::shared_ptr<Program> masked_row_sums() {
  auto arena = std::make_shared<Arena>();
  ArenaScope scope(*arena);
  UOp row = range(4, 0, AxisType::kThread), k = range(2, 1, AxisType::kReduce), lane = lanes_range(8, 2);
  UOp n = UOp::variable("n", 1, 16, dtypes::int32);
  UOp at = k * i32(8) + lane, acc = reg(0, dtypes::float32, 8);
  UOp start = acc.index({lane}).store(floats(0)), inside = acc.after({start, row});
  UOp x = param(1, dtypes::float32, 64).index({row * i32(16) + k * i32(8) + lane}).load(floats(0), at.lt(n));
  UOp sum = inside.after({k}).index({lane}).load() + x.maximum(floats(0));
  UOp total = acc.after({end(inside.after({k}).index({lane}).store(sum), k)})
                  .index({lane})
                  .load()
                  .reduce(Ops::ADD, std::vector<UOp>{lane});
  auto p = program_of(arena, end(param(0, dtypes::float32, 4).index({row}).store(total), row), 2, {"n"});
  p->name = "r_4_16";
  return p;
}

TEST_F(CStyle, TextIsReadable) {
  EXPECT_EQ(make_renderer(haswell())->render(*masked_row_sums()),
            R"(#define INLINE static inline __attribute__((always_inline))

typedef int i32x8 __attribute__((ext_vector_type(8)));
typedef float f32x2 __attribute__((ext_vector_type(2)));
typedef float f32x4 __attribute__((ext_vector_type(4)));
typedef float f32x8 __attribute__((ext_vector_type(8)));

INLINE f32x8 load_masked_f32x8(const float* p, i32x8 m, f32x8 r) {
#if __has_builtin(__builtin_ia32_maskloadd256)
  return m ? (f32x8)__builtin_ia32_maskloadd256((const i32x8*)p, m) : r;
#else
  for (int i = 0; i < 8; i++) if (m[i]) r[i] = p[i];
  return r;
#endif
}

INLINE f32x8 max_number_f32x8(f32x8 a, f32x8 b) {
  return a < b ? b : a;
}

INLINE float sum_f32x8(f32x8 a) {
  f32x4 b = a.lo + a.hi;
  f32x2 c = b.lo + b.hi;
  return c.lo + c.hi;
}

INLINE void r_4_16_body(float* restrict data0, const float* restrict data1, const int n, )"
            R"(const long begin, const long end) {
  f32x8 acc0;
  #pragma clang loop vectorize(disable) interleave(disable) unroll(disable)
  for (int tidx0 = begin; tidx0 < end; tidx0++) {
    i32x8 lane0 = (i32x8){0, 1, 2, 3, 4, 5, 6, 7};
    acc0 = (f32x8)0.0f;
    #pragma clang loop vectorize(disable) interleave(disable) unroll(disable)
    for (int ridx1 = 0; ridx1 < 2; ridx1++) {
      int alu0 = ridx1 * 8;
      f32x8 val0 = load_masked_f32x8(data1 + (tidx0 * 16 + alu0), (i32x8)alu0 + lane0 < (i32x8)n, (f32x8)0.0f);
      acc0 = acc0 + max_number_f32x8(val0, (f32x8)0.0f);
    }
    data0[tidx0] = sum_f32x8(acc0);
  }
}

void r_4_16(void* const* buffers, const long* vars, long begin, long end) {
  r_4_16_body(buffers[0], buffers[1], vars[0], begin, end);
}
)");
}

TEST_F(CStyle, EqualProgramsGiveEqualText) {
  const std::string text = make_renderer(haswell())->render(*masked_row_sums());
  auto warm = std::make_shared<Arena>();
  {
    ArenaScope scope(*warm);  // other node ids
    for (int i = 0; i < 100; i++) UOp::range(i32(i + 2), RangeArg{{i}, AxisType::kLoop}, dtypes::int32);
  }
  EXPECT_EQ(text, make_renderer(haswell())->render(*masked_row_sums()));
}

TEST_F(CStyle, MaskedRowSums) {
  auto p = masked_row_sums();
  Memory m{Bytes(16), inputs(dtypes::float32, 64, 1)};
  for (int64_t n : {1, 7, 8, 9, 16}) expect_same(p, m, {dtypes::float32, dtypes::float32}, {n});
}

/// A masked load and a fused multiply-add are one instruction each, accumulators stay in registers.
TEST_F(CStyle, MachineCodeIsVectors) {
  auto arena = std::make_shared<Arena>();
  std::shared_ptr<Program> p;
  {
    ArenaScope scope(*arena);
    UOp k = range(256, 0, AxisType::kReduce), lane = lanes_range(8);
    UOp b = param(2, dtypes::float32, 4096).index({k * i32(8) + lane}).load();
    UOps starts, updates, stores;
    for (int i = 0; i < 6; i++) starts.push_back(reg(i, dtypes::float32, 8).index({lane}).store(floats(0)));
    for (int i = 0; i < 6; i++) {
      UOp acc = reg(i, dtypes::float32, 8), inside = acc.after({starts[static_cast<size_t>(i)], k});
      UOp a = param(1, dtypes::float32, 4096).index({k + i32(i * 256)}).load();
      updates.push_back(inside.index({lane}).store(UOp::alu(Ops::MULACC, {a, b, inside.index({lane}).load()})));
    }
    UOp done = end(group(updates), k);
    UOp gate = param(3, dtypes::int32, 8).index({lane}).load().lt(i32(5));
    for (int i = 0; i < 6; i++) {
      UOp total = reg(i, dtypes::float32, 8).after({done}).index({lane}).load();
      stores.push_back(gated_store(param(0, dtypes::float32, 48).index({lane + i32(i * 8)}), total, gate));
    }
    p = program_of(arena, group(stores), 4);
  }
  expect_same(
      p,
      {Bytes(48 * 4), inputs(dtypes::float32, 4096, 1), inputs(dtypes::float32, 4096, 2), inputs(dtypes::int32, 8, 3)},
      {dtypes::float32, dtypes::float32, dtypes::float32, dtypes::int32});
  const std::string text = compiler(haswell())->assembly(make_renderer(haswell())->render(*p));
  auto count = [&](const std::string& word) {
    int n = 0;
    for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += word.size()) n++;
    return n;
  };
  EXPECT_EQ(count("vfmadd"), 6) << text;
  EXPECT_EQ(count("vpmaskmovd") + count("vmaskmovps"), 6) << text;
  EXPECT_EQ(count("(%rsp)"), 0) << text;
}

/// A register's old value outlives a store to it; a value computed in a loop is used behind it; loops that do not run.
TEST_F(CStyle, RegistersAndLoops) {
  auto arena = std::make_shared<Arena>();
  std::shared_ptr<Program> p;
  {
    ArenaScope scope(*arena);
    // (a, b) = (b, a + b), n times
    UOp n = UOp::variable("n", 0, 20, dtypes::int32),
        k = UOp::range(n, RangeArg{{0}, AxisType::kReduce}, dtypes::int32);
    UOp a = reg(0, dtypes::int32, 1), b = reg(1, dtypes::int32, 1), zero = i32(0);
    UOp start_a = a.index({zero}).store(i32(0)), start_b = b.index({zero}).store(i32(1));
    UOp old_a = a.after({start_a, start_b, k}).index({zero}).load(),
        old_b = b.after({start_a, start_b, k}).index({zero}).load();
    UOp next_a = a.after({old_a, old_b}).index({zero}).store(old_b),
        next_b = b.after({next_a}).index({zero}).store(old_a + old_b);
    UOp twice = n * i32(2);
    UOp done = end(group({next_a, next_b}), k);
    UOp out = param(0, dtypes::int32, 4);
    UOp one = out.index({i32(0)}).store(a.after({done}).index({zero}).load() + twice);
    UOp two = out.index({i32(1)}).store(b.after({done}).index({zero}).load() + twice);
    p = program_of(arena, group({one, two}), 1, {"n"});
    // Put the sum that nothing in the loop needs into it.
    UOps& list = p->insts;
    std::erase(list, twice);
    list.insert(std::find(list.begin(), list.end(), old_a), twice);
  }
  for (int64_t n : {1, 2, 19}) expect_same(p, {Bytes(16)}, {dtypes::int32}, {n});
  Memory m{Bytes(16)};
  run_interp(p, m, {10});
  int32_t values[2];
  std::memcpy(values, m[0].data(), 8);
  EXPECT_EQ(values[0], 55 + 20);
  EXPECT_EQ(values[1], 89 + 20);
}

/// Masks made from doubles, bytes and memory select floats and longs; any and all; registers of bools; lanes that are
/// no power of two.
TEST_F(CStyle, MasksMeet) {
  for (int lanes : {4, 6, 16}) {
    auto arena = std::make_shared<Arena>();
    std::shared_ptr<Program> p;
    const std::vector<DType> types{dtypes::float32, dtypes::int64, dtypes::bool_,   dtypes::bool_, dtypes::float64,
                                   dtypes::int8,    dtypes::bool_, dtypes::float32, dtypes::uint8, dtypes::float32};
    {
      ArenaScope scope(*arena);
      UOp lane = lanes_range(lanes);
      auto in = [&](int slot) { return param(slot, types[static_cast<size_t>(slot)], 16).index({lane}).load(); };
      UOp wide = in(4).lt(UOp::constant(ConstValue(0.5), dtypes::float64)), stored = in(6);
      UOp narrow = in(5).lt(UOp::constant(ConstValue(3), dtypes::int8));
      UOp mixed = (wide & narrow) | stored.logical_not(), x = in(7);
      UOp acc = reg(0, dtypes::bool_, lanes), set = acc.index({lane}).store(mixed),
          kept = acc.after({set}).index({lane}).load();
      UOps stores;
      auto out = [&](int slot, UOp v) {
        stores.push_back(param(slot, types[static_cast<size_t>(slot)], 16).index({lane}).store(v));
      };
      out(0, mixed.where(x, x * floats(2)));
      out(1, kept.where(narrow.cast(dtypes::int64),
                        wide.cast(dtypes::int64) + UOp::constant(ConstValue(5), dtypes::int64)));
      out(2, wide.where(narrow, stored) ^ mixed);
      stores.push_back(
          param(3, dtypes::bool_, 16).index({i32(0)}).store(mixed.reduce(Ops::ADD, std::vector<UOp>{lane})));
      stores.push_back(
          param(3, dtypes::bool_, 16).index({i32(1)}).store(mixed.reduce(Ops::MUL, std::vector<UOp>{lane})));
      stores.push_back(param(8, dtypes::uint8, 16)
                           .index({i32(2)})
                           .store(in(5).bitcast(dtypes::uint8).reduce(Ops::MAX, std::vector<UOp>{lane})));
      stores.push_back(param(9, dtypes::float32, 16).index({i32(0)}).store(x.reduce(Ops::ADD, std::vector<UOp>{lane})));
      p = program_of(arena, group(stores), 10);
    }
    for (uint32_t seed : {1u, 2u, 3u}) {
      Memory m;
      for (DType d : types) m.push_back(inputs(d, 16, seed++));
      expect_same(p, m, types);
    }
  }
}

/// Variables called like words of C or like our own names; one parameter seen as two types; the extreme literals of
/// every type.
TEST_F(CStyle, NamesViewsLiterals) {
  auto arena = std::make_shared<Arena>();
  std::shared_ptr<Program> p;
  std::vector<DType> types{dtypes::int32, dtypes::float32};
  const std::vector<std::string> names{"int", "val0", "data0", "a b", "a_b", "f32x4", "n", "begin"};
  {
    ArenaScope scope(*arena);
    UOp sum = i32(0), lane = lanes_range(4);
    for (size_t i = 0; i < names.size(); i++) sum = sum * i32(3) + UOp::variable(names[i], 0, 100, dtypes::int32);
    UOps stores{param(0, dtypes::int32, 4).index({i32(0)}).store(sum)};
    // Written as integers, read as floats.
    UOp bits = param(1, dtypes::uint32, 8).index({lane}).store(UOp::constant(ConstValue(0x40490fdb), dtypes::uint32));
    UOp read = param(1, dtypes::float32, 8).after({bits}).index({lane}).load();
    stores.push_back(param(1, dtypes::float32, 8).after({read}).index({lane + i32(4)}).store(read * floats(-2)));
    int slot = 2;
    for (DType d : all_types()) {
      if (d.is_bool()) continue;
      std::vector<ConstValue> values;
      if (d.is_float())
        values = {lowest_float(d), highest_float(d), std::nan(""), 0.1, -0.0, 1e-7, 65504.0, -3.0, 5e-324, 1e300};
      else values = {int_min(d), int_max(d), int_min(d) + 1, int128(0), int128(100)};
      int64_t at = 0;
      for (const ConstValue& v : values) {
        UOp c = UOp::constant(v, d), x = param(slot + 1, d, 4).index({i32(0)}).load();
        stores.push_back(param(slot, d, 64).index({i32(at++)}).store(c));
        stores.push_back(param(slot, d, 64).index({i32(at++)}).store(x + c));
        stores.push_back(param(slot, d, 64).index({i32(at) + lane}).store(c));
        at += 4;
      }
      types.push_back(d);
      types.push_back(d);
      slot += 2;
    }
    p = program_of(arena, group(stores), slot, names);
  }
  Memory m{Bytes(16), Bytes(32)};
  for (size_t k = 2; k < types.size(); k++)
    m.push_back(k % 2 ? inputs(types[k], 4, 1) : Bytes(64 * eval_itemsize(types[k])));
  expect_same(p, m, types, {1, 2, 3, 4, 5, 6, 7, 8});
}

/// C may keep more precision within an expression, and functions of float16 return a type that does.
TEST_F(CStyle, HalfRoundsAfterEachOperation) {
  for (int lanes : {1, 8}) {
    auto arena = std::make_shared<Arena>();
    std::shared_ptr<Program> p;
    {
      ArenaScope scope(*arena);
      UOp loop = range(64 / lanes, 0), at = loop * i32(lanes);
      if (lanes > 1) at = at + lanes_range(lanes);
      auto in = [&](int slot) { return param(slot, dtypes::float16, 64).index({at}).load(); };
      UOp a = in(1), b = in(2), c = in(3);
      UOp v = UOp::alu(Ops::FDIV, {a + b, UOp::alu(Ops::FDIV, {UOp::alu(Ops::TRUNC, {c}), b})}) +
              UOp::alu(Ops::SQRT, {a}) * c;
      p = program_of(arena, end(param(0, dtypes::float16, 64).index({at}).store(v), loop), 4);
    }
    Memory m{Bytes(128)};
    std::mt19937 random(1);
    for (int k = 0; k < 3; k++) {
      m.emplace_back(128);
      for (size_t i = 0; i < 64; i++)
        store_const(&m.back()[i * 2], ConstValue(std::ldexp(static_cast<double>(random() % 4096 + 1), -5)),
                    dtypes::float16);
    }
    expect_same(p, m, std::vector<DType>(4, dtypes::float16));
  }
}

/// Kernels of random operations on values of all types.
struct RandomKernel {
  static constexpr int64_t kCount = 64;
  std::mt19937 random;
  std::vector<DType> types;  // by slot
  std::shared_ptr<Program> program;
  size_t below(size_t n) { return random() % n; }

  RandomKernel(uint32_t seed, int lanes, bool half) : random(seed) {
    using enum Ops;
    auto arena = std::make_shared<Arena>();
    ArenaScope scope(*arena);
    std::vector<DType> kinds;
    for (DType d : all_types())
      if (half || d != dtypes::float16) kinds.push_back(d);
    UOp loop = range(kCount / lanes, 0), at = loop * i32(lanes);
    if (lanes > 1) at = at + range(lanes, 1, AxisType::kVector);
    UOps pool, stores;
    for (DType d : kinds)
      for (UOp index : {at, loop}) {
        types.push_back(d);
        pool.push_back(param(static_cast<int>(types.size()) - 1, d, kCount).index({index}).load());
      }
    auto pick = [&](auto&& fits) {
      for (;;)
        if (UOp u = pool[below(pool.size())]; fits(u.dtype())) return u;
    };
    for (int i = 0; i < 70; i++) {
      UOp a = pool[below(pool.size())];
      const DType d = a.dtype();
      UOp b = pick([&](DType x) { return x == d; }), c = pick([&](DType x) { return x == d; }),
          cond = pick([](DType x) { return x.is_bool(); });
      static const Ops kFloat[] = {ADD, SUB, MUL, CMPLT, CMPNE, CMPEQ, NEG, TRUNC, WHERE, CAST, FDIV, MULACC};
      static const Ops kInt[] = {ADD,  SUB, MUL, CMPLT, CMPNE, CMPEQ, NEG,  MAX,  WHERE,
                                 CAST, AND, OR,  XOR,   SHL,   SHR,   CDIV, CMOD, MULACC};
      static const Ops kBool[] = {ADD, MUL, CMPLT, CMPNE, CMPEQ, WHERE, CAST, AND, OR, XOR, MAX};
      const Ops op = d.is_float()  ? kFloat[below(std::size(kFloat))]
                     : d.is_bool() ? kBool[below(std::size(kBool))]
                                   : kInt[below(std::size(kInt))];
      UOp v;
      if (op == CAST) v = a.cast(kinds[below(kinds.size())]);
      else if (op == WHERE) v = cond.where(a, b);
      else if (op == MULACC && d == dtypes::float16) continue;
      else if (op == MULACC) v = UOp::alu(op, {a, b, c});
      else if (groups::kUnary.has(op)) v = UOp::alu(op, {a});
      else v = UOp::alu(op, {a, below(5) ? b : UOp::constant(ConstValue(static_cast<int>(below(9))), d)});
      pool.push_back(v);
    }
    UOp gate = pick([](DType x) { return x.is_bool(); });
    for (size_t i = pool.size() - 30; i < pool.size(); i++) {
      types.push_back(pool[i].dtype());
      UOp index = param(static_cast<int>(types.size()) - 1, pool[i].dtype(), kCount).index({at});
      stores.push_back(i % 3 ? index.store(pool[i]) : gated_store(index, pool[i], gate));
    }
    program = program_of(arena, end(group(stores), loop), static_cast<int>(types.size()));
  }
  Memory memory() {
    Memory m;
    for (DType d : types) m.push_back(inputs(d, kCount, static_cast<uint32_t>(random())));
    return m;
  }
};

TEST_F(CStyle, RandomKernels) {
  constexpr int kRounds = 2;
  uint32_t seed = 1;
  for (int lanes : {1, 4, 8, 16}) {
    for (int i = 0; i < kRounds; i++) {
      RandomKernel k(seed++, lanes, true);
      SCOPED_TRACE(str("seed ", seed - 1, ", ", lanes, " lanes"));
      Memory m = k.memory();
      expect_same(k.program, m, k.types, {}, haswell());
      if (llvm_plugin_missing().empty()) expect_same(k.program, m, k.types, {}, haswell("LLVM"));
    }
  }
}

/// Nothing in the text is x86's alone.
TEST_F(CStyle, CompilesForArm) {
  for (int lanes : {1, 4}) {
    RandomKernel k(static_cast<uint32_t>(200 + lanes), lanes, true);
    EXPECT_FALSE(compile(k.program, target("CLANG", "arm64")).source.empty());
  }
  const std::string text =
      compiler(target("CLANG", "arm64"))->assembly(make_renderer(target("CLANG", "arm64"))->render(*masked_row_sums()));
  EXPECT_NE(text.find("fadd\tv"), std::string::npos) << text;
}

/// The text needs no newer clang than Debian's, but for float16.
TEST_F(CStyle, OlderClang) {
  Context context{{"CC", "clang-14"}};
  if (clang_path().empty()) GTEST_SKIP() << "no clang-14";
  for (int lanes : {1, 8}) {
    RandomKernel k(static_cast<uint32_t>(100 + lanes), lanes, false);
    expect_same(k.program, k.memory(), k.types);
  }
  auto p = masked_row_sums();
  expect_same(p, {Bytes(16), inputs(dtypes::float32, 64, 1)}, {dtypes::float32, dtypes::float32}, {11});
}

}  // namespace
}  // namespace tg
