/// \file Decompositions against uop/eval: integer division, threefry, EXP2, LOG2, SIN, POW, narrow floats, index types.
/// Accuracy in units in the last place.
#include "tinygrad/codegen/decomp/decomp.h"

#include <gtest/gtest.h>

#include <bit>
#include <map>

#include "render_helpers.h"

namespace tg {
namespace {
using namespace test;

/// What a renderer of these ops and types would get. Programs it makes run on the interpreter.
class TestRenderer final : public Renderer {
 public:
  TestRenderer(OpSet ops, std::vector<DType> missing, bool denormals = true)
      : Renderer(Target{}), ops_(ops), missing_(std::move(missing)), denormals_(denormals) {}
  bool has_denormals() const override { return denormals_; }
  OpSet ops() const override { return ops_; }
  bool supports(DType d) const override { return std::find(missing_.begin(), missing_.end(), d) == missing_.end(); }
  std::string render(const Program&) const override { return ""; }

 private:
  OpSet ops_;
  std::vector<DType> missing_;
  bool denormals_;
};
OpSet plain_ops(bool fma) {
  using enum Ops;
  OpSet s = ADD | MUL | SUB | NEG | FDIV | SHL | SHR | CDIV | CMOD | MAX | CMPLT | CMPNE | CMPEQ | XOR | OR | AND |
            WHERE | SQRT | TRUNC;
  return fma ? s | MULACC : s;
}

/// f applied to arrays of values: out[i] = f(in_0[i], ...), lowered for the renderer, then executed by the interpreter
/// or, given a target, as compiled code.
class Function {
 public:
  Function(std::vector<DType> in, const std::function<UOp(const UOps&)>& f, const Renderer& r,
           const Target* native = nullptr)
      : in_(std::move(in)) {
    ArenaScope scope(*arena_);
    UOp loop = UOp::range(UOp::variable("n", 0, kMost), RangeArg{{0}, AxisType::kLoop});
    UOp lane = UOp::range(kLanes, 1, AxisType::kVector);
    UOp index = loop * UOp::constant(int64_t{kLanes}) + lane;
    UOps args;
    for (size_t i = 0; i < in_.size(); i++)
      args.push_back(param(static_cast<int>(i) + 1, in_[i], kMost * kLanes).index({index}).load());
    UOp v = f(args);
    out_ = v.dtype();
    UOp sink = UOp::sink(std::vector<UOp>{end(param(0, out_, kMost * kLanes).index({index}).store(v), loop)});
    sink = lower_to_target(sink, r);
    for (UOp u : sink.toposort()) {
      if (u.in(groups::kAlu)) EXPECT_TRUE(r.ops().has(u.op())) << u;
      if (!u.is(Ops::STACK) && !u.is_const()) EXPECT_FALSE(u.dtype().is_weak()) << u;
      if (!u.dtype().is_void()) EXPECT_TRUE(r.supports(u.dtype())) << u;
      nodes_ += u.in(groups::kElementwise);
    }
    program_ = program_of(arena_, sink.src(0), static_cast<int>(in_.size()) + 1, {"n"});
    if (native) code_ = compile(program_, *native);
  }
  Bytes operator()(const std::vector<Bytes>& in) const {
    const size_t n = in[0].size() / eval_itemsize(in_[0]), blocks = (n + kLanes - 1) / kLanes;
    Memory m(1);
    m[0].resize(blocks * kLanes * eval_itemsize(out_));
    for (size_t i = 0; i < in.size(); i++) {
      m.push_back(in[i]);
      m.back().resize(blocks * kLanes * eval_itemsize(in_[i]));
    }
    if (code_.kernel) code_(m, {static_cast<int64_t>(blocks)});
    else run_interp(program_, m, {static_cast<int64_t>(blocks)});
    m[0].resize(n * eval_itemsize(out_));
    return m[0];
  }
  bool native() const { return code_.kernel != nullptr; }
  int nodes() const { return nodes_; }
  DType out() const { return out_; }

 private:
  static constexpr int kLanes = 16;
  static constexpr int64_t kMost = int64_t{1} << 20;
  ArenaRef arena_ = std::make_shared<Arena>();
  std::vector<DType> in_;
  DType out_;
  std::shared_ptr<Program> program_;
  Compiled code_;
  int nodes_ = 0;
};

template <class T> Bytes bytes_of(const std::vector<T>& v) {
  Bytes b(v.size() * sizeof(T));
  std::memcpy(b.data(), v.data(), b.size());
  return b;
}
template <class T> std::vector<T> values_of(const Bytes& b) {
  std::vector<T> v(b.size() / sizeof(T));
  std::memcpy(v.data(), b.data(), b.size());
  return v;
}

// ---- integers ----
Bytes eval_binary(Ops op, DType d, const Bytes& a, const Bytes& b) {
  Bytes out(a.size());
  const void* in[2] = {a.data(), b.data()};
  alu_loop(op, d)(out.data(), in, a.size() / eval_itemsize(d));
  return out;
}
const std::vector<DType> kIntegers = {dtypes::int8,  dtypes::uint8,  dtypes::int16, dtypes::uint16,
                                      dtypes::int32, dtypes::uint32, dtypes::int64, dtypes::uint64};

TEST(Decomp, FloorDivisionByValues) {
  TestRenderer r(plain_ops(false), {});
  for (DType d : kIntegers)
    for (Ops op : {Ops::FLOORDIV, Ops::FLOORMOD}) {
      Function f({d, d}, [&](const UOps& a) { return UOp::alu(op, {a[0], a[1]}); }, r);
      Bytes a = inputs(d, 4096, 1), b = inputs(d, 4096, 2);
      EXPECT_EQ(f({a, b}), eval_binary(op, d, a, b)) << op << " of " << d;
    }
}
TEST(Decomp, DivisionByLiterals) {
  TestRenderer r(plain_ops(false), {});
  for (DType d : kIntegers)
    for (Ops op : {Ops::FLOORDIV, Ops::FLOORMOD, Ops::CDIV, Ops::CMOD})
      for (int64_t c : {1, 2, 3, 7, 16, 64, 100, -1, -2, -5}) {
        if (c < 0 && d.is_unsigned()) continue;
        Function f({d}, [&](const UOps& a) { return UOp::alu(op, {a[0], a[0].const_like(c)}); }, r);
        Bytes a = inputs(d, 512, 3), b(a.size());
        for (size_t i = 0; i < 512; i++) store_const(&b[i * eval_itemsize(d)], ConstValue(c), d);
        EXPECT_EQ(f({a}), eval_binary(op, d, a, b)) << op << " of " << d << " by " << c;
      }
}
TEST(Decomp, BoundedDivisionNeedsNoSign) {
  TestRenderer r(plain_ops(false), {});
  // (i - 5) // 7 for i in 0..99: one shift into the non-negative numbers.
  auto arena = std::make_shared<Arena>();
  ArenaScope scope(*arena);
  UOp i = UOp::range(UOp::constant(int64_t{100}), RangeArg{{0}, AxisType::kLoop});
  for (Ops op : {Ops::FLOORDIV, Ops::FLOORMOD}) {
    UOp v = UOp::alu(op, {i + UOp::constant(int64_t{-5}), UOp::constant(int64_t{7})});
    UOp sink = lower_to_target(
        UOp::sink(std::vector<UOp>{end(param(0, dtypes::int32, 100).index({i}).store(v.cast(dtypes::int32)), i)}), r);
    for (UOp u : sink.toposort()) EXPECT_FALSE(u.in(Ops::WHERE | Ops::CMPLT)) << u;
    Memory m{Bytes(400)};
    run_interp(program_of(arena, sink.src(0), 1), m);
    auto out = values_of<int32_t>(m[0]);
    for (int k = 0; k < 100; k++)
      EXPECT_EQ(out[static_cast<size_t>(k)],
                op == Ops::FLOORDIV ? static_cast<int>(std::floor((k - 5) / 7.0)) : ((k - 5) % 7 + 7) % 7);
  }
}
TEST(Decomp, Threefry) {
  TestRenderer r(plain_ops(false), {});
  Function f({dtypes::uint64, dtypes::uint64}, [](const UOps& a) { return UOp::alu(Ops::THREEFRY, {a[0], a[1]}); }, r);
  Bytes a = inputs(dtypes::uint64, 1000, 4), b = inputs(dtypes::uint64, 1000, 5);
  EXPECT_EQ(f({a, b}), eval_binary(Ops::THREEFRY, dtypes::uint64, a, b));
}

// ---- index types ----
TEST(Decomp, IndexTypesFollowBounds) {
  Arena arena;
  ArenaScope scope(arena);
  auto lowered = [](UOp index) {
    return lower_index_dtype(UOp::sink(std::vector<UOp>{param(0, dtypes::float32, 4).index({index}).load()}))
        .src(0)
        .src(0)
        .src(1);
  };
  UOp small = UOp::range(int64_t{1} << 20, 0), big = UOp::range(int64_t{1} << 20, 1);
  EXPECT_EQ(lowered(small).dtype(), dtypes::int32);
  EXPECT_EQ(lowered(small).src(0).dtype(), dtypes::int32);
  UOp product = lowered(small * UOp::constant(int64_t{1} << 20) + big);
  EXPECT_EQ(product.dtype(), dtypes::int64);
  for (UOp u : product.toposort()) EXPECT_FALSE(u.dtype().is_weak()) << u;
  EXPECT_EQ(lowered(UOp::variable("n", 0, int64_t{1} << 40)).dtype(), dtypes::int64);
  EXPECT_EQ(lowered(UOp::range(int64_t{1} << 31, 2)).dtype(), dtypes::int64) << "the end must fit too";
  // The result is small but an operand is not.
  UOp folded = lowered((small * UOp::constant(int64_t{1} << 20)) / UOp::constant(int64_t{1} << 30));
  for (UOp u : folded.toposort())
    if (u.is(Ops::MUL)) EXPECT_EQ(u.dtype(), dtypes::int64);
  UOp gathered = lowered(param(1, dtypes::uint32, 4).index({small}).load().cast(dtypes::weakint));
  EXPECT_EQ(gathered.dtype(), dtypes::int64);
}

// ---- late forms ----
TEST(Decomp, LateForms) {
  Arena arena;
  ArenaScope scope(arena);
  auto load = [](int slot, DType d = dtypes::float32) { return param(slot, d, 1).index({i32(0)}).load(); };
  UOp a = load(0), b = load(1), c = load(2);
  const OpSet ops = plain_ops(true);
  auto late = [&](UOp u) { return late_patterns(UOp::sink(std::vector<UOp>{u}), ops).src(0); };
  EXPECT_EQ(late(a - b), UOp::alu(Ops::SUB, {a, b}));
  EXPECT_EQ(late(a.neg()), UOp::alu(Ops::NEG, {a}));
  EXPECT_EQ(late(a.eq(b)), UOp::alu(Ops::CMPEQ, {a, b}));
  EXPECT_EQ(late(a / b), UOp::alu(Ops::FDIV, {a, b}));
  const UOp inverse = UOp::alu(Ops::RECIPROCAL, {b});
  EXPECT_EQ(late(a * inverse), a * inverse) << "rounds twice, as it does for a literal";
  EXPECT_EQ(late(a * b + c), a * b + c) << "only accumulators fuse";
  UOp acc = reg(0, dtypes::float32, 1).index({i32(0)}).load();
  EXPECT_EQ(late(acc + a * b), UOp::alu(Ops::MULACC, {a, b, acc}));
  EXPECT_EQ(late(a * b + acc), UOp::alu(Ops::MULACC, {a, b, acc}));
  EXPECT_EQ(late((acc + a * b) + b * c), UOp::alu(Ops::MULACC, {b, c, UOp::alu(Ops::MULACC, {a, b, acc})}));
  EXPECT_EQ(late_patterns(UOp::sink(std::vector<UOp>{acc + a * b}), plain_ops(false)).src(0), acc + a * b);
}

/// A product that needs no rounding is fused with the sum: the result is the same.
TEST(Decomp, ExactProductsFuse) {
  Arena arena;
  ArenaScope scope(arena);
  auto load = [](int slot, DType d) { return param(slot, d, 1).index({i32(0)}).load(); };
  UOp half = load(0, dtypes::float16).cast(dtypes::float32), byte = load(1, dtypes::uint8).cast(dtypes::float32),
      word = load(2, dtypes::int16).cast(dtypes::float32), any = load(3, dtypes::float32),
      narrow = load(4, dtypes::bfloat16).cast(dtypes::float32);
  const UOp eight = UOp::constant(8.0, dtypes::float32), tenth = UOp::constant(0.1, dtypes::float32);
  const OpSet ops = plain_ops(true);
  auto fuses = [&](UOp a, UOp b) {
    return late_patterns(UOp::sink(std::vector<UOp>{a * b + any}), ops).src(0).is(Ops::MULACC);
  };
  EXPECT_TRUE(fuses(half, byte));                             // 11 + 8 bits
  EXPECT_TRUE(fuses(half, half));                             // 22
  EXPECT_TRUE(fuses(half, byte + eight * ConstValue(-1.0)));  // 9 bits
  EXPECT_TRUE(fuses(word, byte));                             // 16 + 8
  EXPECT_FALSE(fuses(half, word)) << "27 bits";
  EXPECT_FALSE(fuses(half * half, byte)) << "30 bits";
  EXPECT_FALSE(fuses(any, byte));
  EXPECT_FALSE(fuses(byte, tenth)) << "24 bits of its own";
  EXPECT_FALSE(fuses(narrow, byte)) << "may overflow";
  EXPECT_FALSE(late_patterns(UOp::sink(std::vector<UOp>{half * byte + any}), plain_ops(false)).src(0).is(Ops::MULACC));
}

// ---- functions ----
struct Worst {
  double ulps = 0, at = 0, got = 0, expected = 0;
};
template <class T> double ulp_error(T got, long double expected) {
  const T nearest = static_cast<T>(expected);
  if (std::isnan(nearest)) return std::isnan(got) ? 0 : INFINITY;
  if (nearest == got) return nearest == 0 && std::signbit(nearest) != std::signbit(got) ? INFINITY : 0;
  if (std::isinf(nearest)) return std::isfinite(got) && std::fabs(got) == std::numeric_limits<T>::max() ? 1 : INFINITY;
  if (!std::isfinite(got)) return INFINITY;
  int e;
  std::frexp(expected, &e);
  const int digits = std::numeric_limits<T>::digits, least = std::numeric_limits<T>::min_exponent - digits;
  return static_cast<double>(std::fabs(static_cast<long double>(got) - expected) /
                             std::ldexp(1.0L, std::max(e - digits, least)));
}
using Reference = long double (*)(long double);
long double reference(Ops op, long double x) {
  return op == Ops::EXP2 ? exp2l(x) : op == Ops::LOG2 ? log2l(x) : sinl(x);
}

/// All of float32's exponents and signs, then special values.
std::vector<float> sample_floats(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> v = {0.f,
                          -0.f,
                          INFINITY,
                          -INFINITY,
                          NAN,
                          1.f,
                          -1.f,
                          2.f,
                          128.f,
                          127.99999f,
                          -149.f,
                          -150.f,
                          -151.f,
                          -126.5f,
                          1e-40f,
                          1.4e-45f,
                          3.1415927f,
                          6.2831855f,
                          16367173.f * 4722366482869645213696.f,
                          3.4028235e38f,
                          -3.4028235e38f,
                          1.1754944e-38f,
                          0.99999994f,
                          1.0000001f,
                          0.70710677f,
                          0.70710683f};
  while (v.size() < n) {
    if (random() % 2) v.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
    else v.push_back(static_cast<float>(static_cast<int32_t>(random())) * 1e-7f);  // +-214
  }
  return v;
}
std::vector<double> sample_doubles(size_t n, uint32_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> v = {0.,
                           -0.,
                           INFINITY,
                           -INFINITY,
                           NAN,
                           1.,
                           -1.,
                           1024.,
                           1023.9999,
                           -1074.,
                           -1075.,
                           -1076.,
                           -1022.5,
                           5e-324,
                           2.2e-308,
                           3.141592653589793,
                           6.283185307179586,
                           6381956970095103. * 0x1p797,
                           1.7976931348623157e308,
                           0x1.6a09e667f3bcdp-1,
                           0x1.6a09e667f3bcep-1};
  while (v.size() < n) {
    if (random() % 2) v.push_back(std::bit_cast<double>(static_cast<uint64_t>(random())));
    else v.push_back(static_cast<double>(static_cast<int64_t>(random())) * 1e-16);  // +-922
  }
  return v;
}

const Target& native_target(bool fma) {
  static const Target with = target("LLVM", "native"), without = target("LLVM", "x86_64");
  return fma && with.has("fma") ? with : without;
}

template <class T> Worst worst_error(Ops op, const std::vector<T>& in, bool fma) {
  TestRenderer r(plain_ops(fma), {});
  static std::map<std::tuple<Ops, size_t, bool>, std::unique_ptr<Function>> functions;
  auto& f = functions[{op, sizeof(T), fma}];
  if (!f)
    f = std::make_unique<Function>(
        std::vector<DType>{dtype_of_v<T>}, [&](const UOps& a) { return UOp::alu(op, {a[0]}); }, r, &native_target(fma));
  EXPECT_TRUE(f->native());
  const std::vector<T> out = values_of<T>((*f)({bytes_of(in)}));
  Worst w;
  for (size_t i = 0; i < in.size(); i++) {
    const long double expected = reference(op, in[i]);
    const double e = ulp_error<T>(out[i], expected);
    if (e > w.ulps) w = {e, static_cast<double>(in[i]), static_cast<double>(out[i]), static_cast<double>(expected)};
  }
  return w;
}
std::ostream& operator<<(std::ostream& os, const Worst& w) {
  return os << w.ulps << " ulp at " << std::hexfloat << w.at << ": " << w.got << ", expected " << w.expected
            << std::defaultfloat;
}

TEST(Decomp, FunctionsOfFloat32) {
  const size_t n = 1000000;
  for (bool fma : {false, true})
    for (Ops op : {Ops::EXP2, Ops::LOG2, Ops::SIN}) {
      const Worst w = worst_error(op, sample_floats(n, 11), fma);
      EXPECT_LE(w.ulps, op == Ops::SIN ? 0.51 : op == Ops::EXP2 ? 1.25 : 1.4) << op << (fma ? " fused: " : ": ") << w;
      RecordProperty(str(op, fma ? "_fma" : ""), str(w.ulps));
    }
}
TEST(Decomp, FunctionsOfFloat64) {
  for (bool fma : {false, true})
    for (Ops op : {Ops::EXP2, Ops::LOG2, Ops::SIN}) {
      const Worst w = worst_error(op, sample_doubles(200000, 12), fma);
      EXPECT_LE(w.ulps, op == Ops::SIN ? 2.0 : op == Ops::EXP2 ? 1.25 : 1.0) << op << (fma ? " fused: " : ": ") << w;
      RecordProperty(str(op, "_f64", fma ? "_fma" : ""), str(w.ulps));
    }
}
/// Neighbourhoods of multiples of pi, where what is left of the argument is tiny.
TEST(Decomp, SineNearMultiplesOfPi) {
  std::vector<float> in;
  std::vector<double> wide;
  for (int e = 0; e < 120; e++)
    for (int k = 1; k <= 40; k++) {
      const long double x =
          std::nearbyint(static_cast<double>(k) * std::ldexp(1.0, e)) * 3.14159265358979323846264338327950288L;
      for (int side : {-1, 0, 1}) {
        in.push_back(std::bit_cast<float>(
            static_cast<uint32_t>(static_cast<int32_t>(std::bit_cast<uint32_t>(static_cast<float>(x))) + side)));
        wide.push_back(
            std::bit_cast<double>(static_cast<int64_t>(std::bit_cast<uint64_t>(static_cast<double>(x))) + side));
      }
    }
  for (bool fma : {false, true}) {
    const Worst w = worst_error(Ops::SIN, in, fma), v = worst_error(Ops::SIN, wide, fma);
    EXPECT_LE(w.ulps, 1.0) << w;
    EXPECT_LE(v.ulps, 2.0) << v;
  }
}
/// Mostly near arguments, mostly far ones, both in the lanes of one vector; sines and cosines, zeros of both signs, NaN
/// and infinities.
TEST(Decomp, NearSines) {
  if (!native_target(true).has("fma")) GTEST_SKIP() << "needs fused multiply-adds";
  TestRenderer r(plain_ops(true), {});
  std::vector<float> in = sample_floats(1000000, 13);
  for (float bound : {131072.f, 131071.99f, -131072.f, 131073.f}) in.push_back(bound);
  std::mt19937 random(14);
  for (int i = 0; i < 1000000; i++) in.push_back(static_cast<float>(static_cast<int32_t>(random())) * 0x1p-14f);
  for (int k = -100000; k < 100000; k++) in.push_back(static_cast<float>(k * 1.5707963267948966));
  for (bool cosine : {false, true}) {
    Function f(
        {dtypes::float32},
        [&](const UOps& a) {
          return decompose_near_sin(cosine ? a[0] * ConstValue(-1.0) + a[0].const_like(static_cast<double>(1.57079637f))
                                           : a[0]);
        },
        r, &native_target(true));
    const std::vector<float> out = values_of<float>(f({bytes_of(in)}));
    Worst w;
    for (size_t i = 0; i < in.size(); i++) {
      const long double expected = cosine ? cosl(in[i]) : sinl(in[i]);
      const double e = ulp_error<float>(out[i], expected);
      if (e > w.ulps) w = {e, in[i], out[i], static_cast<double>(expected)};
    }
    EXPECT_LE(w.ulps, 1.6) << (cosine ? "cosine " : "sine ") << w;
  }
}
TEST(Decomp, ExactPoints) {
  std::vector<float> powers, exponents;
  for (int e = -149; e < 128; e++) {
    powers.push_back(std::ldexp(1.0f, e));
    exponents.push_back(static_cast<float>(e));
  }
  for (bool fma : {false, true}) {
    EXPECT_EQ(worst_error(Ops::LOG2, powers, fma).ulps, 0);
    EXPECT_EQ(worst_error(Ops::EXP2, exponents, fma).ulps, 0);
  }
}
TEST(Decomp, FunctionsOfAllFloat16) {
  TestRenderer r(plain_ops(true), {});
  std::vector<uint16_t> in(65536);
  for (size_t i = 0; i < in.size(); i++) in[i] = static_cast<uint16_t>(i);
  for (Ops op : {Ops::EXP2, Ops::LOG2, Ops::SIN}) {
    Function f({dtypes::float16}, [&](const UOps& a) { return UOp::alu(op, {a[0]}); }, r, &native_target(true));
    const auto out = values_of<uint16_t>(f({bytes_of(in)}));
    int off = 0;
    for (size_t i = 0; i < in.size(); i++) {
      const double expected = static_cast<double>(reference(op, half_to_float(in[i])));
      const uint16_t nearest = float_to_half(static_cast<float>(expected));
      if (expected != expected) {
        EXPECT_TRUE(std::isnan(half_to_float(out[i]))) << op << " " << i;
        continue;
      }
      EXPECT_LE(std::abs(nearest - out[i]), 1) << op << " of " << half_to_float(in[i]);
      off += nearest != out[i];
    }
    EXPECT_LE(off, 20) << op << ": rounded the other way";
  }
}
/// Bases and exponents: special ones with each other, then random ones.
std::pair<std::vector<float>, std::vector<float>> sample_powers() {
  const float special[] = {0.f,  -0.f,  1.f,  -1.f,  INFINITY,   -INFINITY,   NAN,        2.f,    -2.f,    3.f,  -3.f,
                           0.5f, -0.5f, 1.5f, -1.5f, 16777215.f, -16777215.f, 16777216.f, 1e-40f, -1e-40f, 3e38f};
  std::vector<float> x, y;
  for (float a : special)
    for (float b : special) {
      x.push_back(a);
      y.push_back(b);
    }
  std::mt19937 random(1);
  for (int i = 0; i < 100000; i++) {
    x.push_back(
        std::ldexp(1.f + static_cast<float>(random() % 8388608) / 8388608.f, static_cast<int>(random() % 40) - 20) *
        (random() % 4 ? 1.f : -1.f));
    y.push_back(random() % 2 ? static_cast<float>(static_cast<int>(random() % 21) - 10)
                             : static_cast<float>(static_cast<int32_t>(random())) * 2e-9f);
  }
  return {x, y};
}

TEST(Decomp, PowersOfFloat32) {
  TestRenderer r(plain_ops(true), {});
  Function f(
      {dtypes::float32, dtypes::float32}, [](const UOps& a) { return UOp::alu(Ops::POW, {a[0], a[1]}); }, r,
      &native_target(true));
  const auto [x, y] = sample_powers();
  const auto out = values_of<float>(f({bytes_of(x), bytes_of(y)}));
  for (size_t i = 0; i < x.size(); i++)
    EXPECT_LE(ulp_error<float>(out[i], powl(x[i], y[i])), 1.0) << x[i] << " ^ " << y[i] << " = " << out[i];
}
/// Targets without float64 compute in pairs of float32, and in words.
TEST(Decomp, SinesWithoutDoubles) {
  const std::vector<float> in = sample_floats(3000000, 5);
  for (bool fma : {false, true})
    for (bool cosine : {false, true}) {
      TestRenderer r(plain_ops(fma), {dtypes::float64});
      Function f(
          {dtypes::float32},
          [&](const UOps& a) {
            const UOp turned = a[0] * ConstValue(-1.0) + a[0].const_like(static_cast<double>(1.57079637f));
            return UOp::alu(Ops::SIN, {cosine ? turned : a[0]});
          },
          r, &native_target(fma));
      const auto out = values_of<float>(f({bytes_of(in)}));
      for (size_t i = 0; i < in.size(); i++) {
        const long double expected = cosine ? cosl(in[i]) : sinl(in[i]);
        ASSERT_LE(ulp_error<float>(out[i], expected), 1.6) << (cosine ? "cos " : "sin ") << in[i] << " = " << out[i];
      }
    }
}
TEST(Decomp, PowersWithoutDoubles) {
  for (bool fma : {false, true}) {
    TestRenderer r(plain_ops(fma), {dtypes::float64});
    Function f(
        {dtypes::float32, dtypes::float32}, [](const UOps& a) { return UOp::alu(Ops::POW, {a[0], a[1]}); }, r,
        &native_target(fma));
    const auto [x, y] = sample_powers();
    const auto out = values_of<float>(f({bytes_of(x), bytes_of(y)}));
    for (size_t i = 0; i < x.size(); i++)
      ASSERT_LE(ulp_error<float>(out[i], powl(x[i], y[i])), 1.5) << x[i] << " ^ " << y[i] << " = " << out[i];
  }
}
TEST(Decomp, PowersOfFloat64) {
  const double special[] = {0.,  -0., 1.,   -1., INFINITY, -INFINITY,         NAN,   2.,     -2.,    3.,
                            -3., 0.5, -0.5, 1.5, -1.5,     9007199254740991., 1e308, 1e-310, -1e-310};
  std::vector<double> x, y;
  for (double a : special)
    for (double b : special) {
      x.push_back(a);
      y.push_back(b);
    }
  std::mt19937_64 random(1);
  for (int i = 0; i < 100000; i++) {
    const int range = random() % 2 ? 40 : 1;  // near 1 the exponents are large
    x.push_back(std::ldexp(1. + static_cast<double>(random() >> 12) * 0x1p-52,
                           static_cast<int>(random() % static_cast<uint64_t>(range)) - range / 2));
    const double most = 1020 / std::max(1e-3, std::fabs(std::log2(x.back())));
    y.push_back(random() % 2 ? static_cast<double>(static_cast<int>(random() % 21) - 10)
                             : static_cast<double>(static_cast<int64_t>(random())) * 0x1p-63 * most);
  }
  for (bool fma : {false, true}) {
    TestRenderer r(plain_ops(fma), {});
    Function f(
        {dtypes::float64, dtypes::float64}, [](const UOps& a) { return UOp::alu(Ops::POW, {a[0], a[1]}); }, r,
        &native_target(fma));
    const auto out = values_of<double>(f({bytes_of(x), bytes_of(y)}));
    for (size_t i = 0; i < x.size(); i++)
      EXPECT_LE(ulp_error<double>(out[i], powl(x[i], y[i])), 1.5)
          << std::hexfloat << x[i] << " ^ " << y[i] << " = " << out[i];
  }
}
TEST(Decomp, SimpleOperationsWithoutNativeOnes) {
  using enum Ops;
  TestRenderer r(ADD | MUL | RECIPROCAL | CMPLT | CMPNE | WHERE | AND | OR | XOR | SHL | SHR | CDIV | CMOD | SQRT, {});
  for (Ops op : {MAX, MULACC})
    for (DType d : {dtypes::int32, dtypes::uint8, dtypes::float32, dtypes::float64}) {
      Function f(
          {d, d}, [&](const UOps& a) { return op == MAX ? a[0].maximum(a[1]) : UOp::alu(op, {a[0], a[1], a[0]}); }, r);
      Bytes a = inputs(d, 2048, 6), b = inputs(d, 2048, 7), expected(a.size());
      const void* in[3] = {a.data(), b.data(), a.data()};
      if (op == MULACC && d.is_float()) {
        Bytes product(a.size());
        alu_loop(MUL, d)(product.data(), in, 2048);
        const void* sum[2] = {product.data(), a.data()};
        alu_loop(ADD, d)(expected.data(), sum, 2048);
      } else {
        alu_loop(op, d)(expected.data(), in, 2048);
      }
      EXPECT_LT(first_difference(f({a, b}), expected, d, true), 0) << op << " of " << d;
    }
  for (DType d : {dtypes::float32, dtypes::float64, dtypes::float16}) {
    Function f({d}, [&](const UOps& a) { return UOp::alu(TRUNC, {a[0]}); }, r);
    Bytes a = inputs(d, 2048, 8), expected(a.size());
    const void* in[1] = {a.data()};
    alu_loop(TRUNC, d)(expected.data(), in, 2048);
    EXPECT_LT(first_difference(f({a}), expected, d), 0) << "TRUNC of " << d;
  }
}

TEST(Decomp, SoftwareOnRequest) {
  Arena arena;
  ArenaScope scope(arena);
  TestRenderer r(groups::kAlu, {});
  UOp sink = UOp::sink(std::vector<UOp>{UOp::alu(Ops::EXP2, {param(0, dtypes::float32, 1).index({i32(0)}).load()})});
  EXPECT_EQ(lower_to_target(sink, r), sink);
  for (UOp u : lower_to_target(sink, r, r.ops().without(Ops::EXP2)).toposort()) EXPECT_FALSE(u.is(Ops::EXP2));
}

// ---- narrow floats ----
const std::vector<DType> kNarrow = {dtypes::bfloat16, dtypes::float16,     dtypes::fp8e4m3,
                                    dtypes::fp8e5m2,  dtypes::fp8e4m3fnuz, dtypes::fp8e5m2fnuz};

class NarrowCodes : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Denormals, NarrowCodes, testing::Bool());
TEST_P(NarrowCodes, AreAllDecoded) {
  TestRenderer r(plain_ops(false), kNarrow, /*denormals=*/GetParam());
  for (DType d : kNarrow) {
    Function f({d}, [](const UOps& a) { return a[0].cast(dtypes::float32); }, r);
    const size_t n = d.itemsize() == 1 ? 256 : 65536;
    Bytes in(n * static_cast<size_t>(d.itemsize())), expected(n * 4);
    for (size_t i = 0; i < n; i++)
      std::memcpy(&in[i * static_cast<size_t>(d.itemsize())], &i, static_cast<size_t>(d.itemsize()));
    const void* p[1] = {in.data()};
    cast_loop(d, dtypes::float32)(expected.data(), p, n);
    EXPECT_LT(first_difference(f({in}), expected, dtypes::float32), 0) << d;
    Function same({d}, [](const UOps& a) { return a[0]; }, r);
    EXPECT_LT(first_difference(same({in}), in, d), 0) << d;
  }
}
TEST(Decomp, NarrowFloatsRoundOnce) {
  TestRenderer r(plain_ops(false), kNarrow);
  std::vector<float> in = sample_floats(100000, 21);
  std::mt19937 random(22);
  for (int i = 0; i < 100000; i++)  // ties and their neighbours
    in.push_back(std::bit_cast<float>((static_cast<uint32_t>(random()) & 0xfff80000u) +
                                      static_cast<uint32_t>(random() % 3) - 1));
  std::vector<double> wide(in.begin(), in.end());
  for (size_t i = 0; i < wide.size(); i++)
    wide[i] = std::bit_cast<double>(std::bit_cast<uint64_t>(wide[i]) + random() % 3 - 1);
  for (DType d : kNarrow) {
    Function f(
        {dtypes::float32}, [&](const UOps& a) { return a[0].cast(d); }, r),
        g({dtypes::float64}, [&](const UOps& a) { return a[0].cast(d); }, r);
    auto expect = [&](const Bytes& from, DType type, const Bytes& got) {
      Bytes expected(got.size());
      const void* p[1] = {from.data()};
      cast_loop(type, d)(expected.data(), p, in.size());
      const int64_t at = first_difference(got, expected, d);
      EXPECT_LT(at, 0) << type << " to " << d << ": " << std::hexfloat
                       << in[static_cast<size_t>(std::max<int64_t>(at, 0))];
    };
    expect(bytes_of(in), dtypes::float32, f({bytes_of(in)}));
    expect(bytes_of(wide), dtypes::float64, g({bytes_of(wide)}));
  }
}
TEST(Decomp, NarrowFloatsRoundAfterEveryOperation) {
  using enum Ops;
  TestRenderer r(plain_ops(false), kNarrow);
  for (DType d : kNarrow)
    for (Ops op : {ADD, MUL, MAX, CMPLT, CMPNE}) {
      Function f({d, d}, [&](const UOps& a) { return UOp::alu(op, {a[0], a[1]}); }, r);
      Bytes a = inputs(d, 4096, 31), b = inputs(d, 4096, 32), expected(4096 * eval_itemsize(f.out()));
      const void* p[2] = {a.data(), b.data()};
      alu_loop(op, d)(expected.data(), p, 4096);
      EXPECT_LT(first_difference(f({a, b}), expected, f.out(), op == MAX), 0) << op << " of " << d;
    }
}
TEST(Decomp, NarrowFloatsInRegistersMasksAndBitcasts) {
  const DType bf = dtypes::bfloat16;
  TestRenderer r(plain_ops(false), {bf});
  auto arena = std::make_shared<Arena>();
  ArenaScope scope(*arena);
  UOp i = UOp::range(4, 0);
  UOp acc = reg(0, bf, 1), zero = i32(0);
  UOp init = acc.index({zero}).store(UOp::constant(ConstValue(1.5), bf));
  UOp v = acc.after({init}).index({zero}).load() +
          param(1, bf, 4).index({i}).load(UOp::constant(ConstValue(2.0), bf), i < UOp::constant(int64_t{3}));
  UOp bits = param(1, bf, 4).index({i}).load().bitcast(dtypes::int16);
  UOp sink = UOp::sink(std::vector<UOp>{
      end(group({param(0, bf, 4).index({i}).store(v), param(2, dtypes::int16, 4).index({i}).store(bits)}), i)});
  sink = lower_to_target(sink, r);
  for (UOp u : sink.toposort()) EXPECT_NE(u.dtype(), bf) << u;
  Memory m{Bytes(8), bytes_of(std::vector<uint16_t>{0x3f80, 0x4000, 0xbf80, 0x7f80}), Bytes(8)};
  run_interp(program_of(arena, sink.src(0), 3), m);
  EXPECT_EQ(values_of<uint16_t>(m[0]), (std::vector<uint16_t>{0x4020, 0x4060, 0x3f00, 0x4060}));
  EXPECT_EQ(m[2], m[1]);
}

// ---- 64-bit integers in two words ----
const std::vector<DType> kLongs = {dtypes::int64, dtypes::uint64};

TEST(Decomp, LongsInTwoHalves) {
  using enum Ops;
  TestRenderer r(plain_ops(false), kLongs);
  for (DType d : kLongs)
    for (Ops op : {ADD, MUL, AND, OR, XOR, MAX, SHL, SHR, CDIV, CMOD, FLOORDIV, FLOORMOD}) {
      Function f({d, d}, [&](const UOps& a) { return UOp::alu(op, {a[0], a[1]}); }, r);
      Bytes a = inputs(d, 2048, 1), b = inputs(d, 2048, 2);
      EXPECT_LT(first_difference(f({a, b}), eval_binary(op, d, a, b), d), 0) << op << " of " << d;
    }
  for (DType d : kLongs)
    for (Ops op : {CMPLT, CMPNE}) {
      Function f({d, d}, [&](const UOps& a) { return UOp::alu(op, {a[0], a[1]}); }, r);
      Bytes a = inputs(d, 2048, 3), b = inputs(d, 2048, 4), expected(2048);
      const void* in[2] = {a.data(), b.data()};
      alu_loop(op, d)(expected.data(), in, 2048);
      EXPECT_EQ(f({a, b}), expected) << op << " of " << d;
    }
}
TEST(Decomp, LongsByLiterals) {
  TestRenderer r(plain_ops(false), kLongs);
  for (DType d : kLongs)
    for (Ops op : {Ops::SHL, Ops::SHR, Ops::FLOORDIV, Ops::FLOORMOD, Ops::CDIV, Ops::CMOD, Ops::MUL})
      for (int64_t c : {0, 1, 5, 31, 32, 62, 63, 64, -1}) {
        if (c < 0 && d.is_unsigned()) continue;
        Function f({d}, [&](const UOps& a) { return UOp::alu(op, {a[0], a[0].const_like(c)}); }, r);
        Bytes a = inputs(d, 256, 5), b(a.size());
        for (size_t i = 0; i < 256; i++) store_const(&b[i * 8], ConstValue(c), d);
        EXPECT_LT(first_difference(f({a}), eval_binary(op, d, a, b), d), 0) << op << " of " << d << " by " << c;
      }
}
TEST(Decomp, LongsAreCast) {
  TestRenderer r(plain_ops(false), kLongs);
  const std::vector<DType> others = {dtypes::bool_,   dtypes::int8,    dtypes::uint8,  dtypes::int16,
                                     dtypes::uint16,  dtypes::int32,   dtypes::uint32, dtypes::float16,
                                     dtypes::float32, dtypes::float64, dtypes::int64,  dtypes::uint64};
  for (DType d : kLongs)
    for (DType o : others)
      for (bool to : {false, true}) {
        const DType from = to ? d : o, into = to ? o : d;
        Function f({from}, [&](const UOps& a) { return a[0].cast(into); }, r);
        Bytes in = inputs(from, 2048, 7), expected(2048 * eval_itemsize(into));
        const void* p[1] = {in.data()};
        cast_loop(from, into)(expected.data(), p, 2048);
        EXPECT_LT(first_difference(f({in}), expected, into), 0) << from << " to " << into;
      }
}
/// Rounded once, although the target has no type that holds all bits.
TEST(Decomp, LongsAreCastWithoutDoubles) {
  TestRenderer r(plain_ops(false), {dtypes::int64, dtypes::uint64, dtypes::float64});
  for (DType d : kLongs)
    for (DType o : {dtypes::float16, dtypes::float32})
      for (bool to : {false, true}) {
        const DType from = to ? d : o, into = to ? o : d;
        Function f({from}, [&](const UOps& a) { return a[0].cast(into); }, r);
        Bytes in = inputs(from, 4096, 7), expected(4096 * eval_itemsize(into));
        const void* p[1] = {in.data()};
        cast_loop(from, into)(expected.data(), p, 4096);
        EXPECT_LT(first_difference(f({in}), expected, into), 0) << from << " to " << into;
      }
}
}  // namespace
}  // namespace tg
