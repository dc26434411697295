/// \file Random tensor programs on every device and renderer: all must agree exactly with the interpreter. Values are
/// small multiples of 1/2, so that float sums are exact in every order and only wrong code can make a difference.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tinygrad/base/context.h"
#include "tinygrad/runtime/host_compilers.h"
#include "tinygrad/tensor/tensor.h"
#include "tinygrad/uop/eval.h"

namespace tg {
namespace {

class RandomProgram {
 public:
  RandomProgram(uint32_t seed, bool wide) : random_(seed), wide_(wide) {}

  /// The same seed builds the same program, on the device in force.
  std::vector<Tensor> build() {
    Tensors pool;
    for (int i = 0; i < 3; i++) pool.push_back(leaf());
    const int steps = 4 + below(9);
    for (int i = 0; i < steps; i++) {
      Tensor t = step(pool[static_cast<size_t>(below(static_cast<int>(pool.size())))], pool);
      if (t.numel() > 0 && t.numel() <= 20000) pool.push_back(t);
    }
    return {pool.end() - 2, pool.end()};
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }
  template <class T> T pick(std::initializer_list<T> l) { return *(l.begin() + below(static_cast<int>(l.size()))); }
  int64_t size() { return pick<int64_t>({1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 33, 64}); }
  DType type() {
    using namespace dtypes;
    return pick<DType>(
        {float32, float32, float32, float16, bfloat16, float64, int32, int32, int64, uint8, int8, uint32, bool_});
  }

  Tensor leaf() {
    Shape shape;
    const int n = 1 + below(wide_ ? 2 : 3);
    for (int i = 0; i < n; i++) shape.push_back(wide_ ? SInt(int64_t{16 + below(100)}) : SInt(size()));
    std::vector<float> v(static_cast<size_t>(shape.numel()));
    const DType d = type();
    for (float& x : v) x = static_cast<float>(below(17) - (d.is_unsigned() ? 0 : 8)) * (d.is_float() ? 0.5f : 1.0f);
    return Tensor::from(v, shape).cast(d).realize();
  }

  Tensor step(const Tensor& t, const Tensors& pool) {
    const int n = static_cast<int>(t.ndim());
    const int axis = n ? below(n) : 0;
    switch (below(19)) {
      case 0: return t.dtype().is_bool() ? t.logical_not() : t.neg();
      case 1: return t.cast(type());
      case 2: return n > 1 ? t.transpose(axis, below(n)) : t;
      case 3: return n ? t.flip(axis) : t;
      case 4: {
        std::vector<std::pair<int64_t, int64_t>> p(static_cast<size_t>(n), {0, 0});
        for (auto& [a, b] : p) {
          a = below(3);
          b = below(3);
        }
        return t.pad(p);
      }
      case 5: {
        std::vector<std::pair<SInt, SInt>> r;
        for (const SInt& s : t.shape()) {
          int64_t lo = below(static_cast<int>((s.value() + 1) / 2));
          r.push_back({SInt(lo), SInt(lo + 1 + below(static_cast<int>(s.value() - lo)))});
        }
        return t.shrink(r);
      }
      case 6: return t.reshape(Shape{t.numel()});
      case 7: {
        for (int64_t f : {2, 3, 4, 5, 8})
          if (t.numel() % f == 0 && below(2)) return t.reshape(Shape{f, t.numel() / f});
        return t.reshape(Shape{1, t.numel()});
      }
      case 8: return n ? t.sum(axis, below(2) == 0) : t;
      case 9: return n ? t.max(axis, below(2) == 0) : t;
      case 10: return n ? t.repeat(std::vector<int64_t>(static_cast<size_t>(n), 1 + below(2))) : t;
      case 11: return n && t.dtype() != dtypes::bool_ ? small(t).cumsum(axis) : t;
      case 12:
        return n && t.shape(axis) > 2 ? t.shrink_to(first(t.shape(), axis, t.shape(axis) - t.shape(axis) % 2))
                                            .unfold(axis, 2, 1 + below(2))
                                      : t;
      case 13:
      case 14:
      case 15: return n && t.shape(axis) > 0 && t.shape(axis) <= 64 ? exact(t, axis) : t;
      default: break;
    }
    // Two operands: one that broadcasts, else the tensor itself, turned around.
    Tensor o = t.flip(std::vector<int>(n ? 1 : 0, axis));
    for (int i = 0; i < 4; i++) {
      const Tensor& candidate = pool[static_cast<size_t>(below(static_cast<int>(pool.size())))];
      if (fits(candidate.shape(), t.shape())) {
        o = candidate;
        break;
      }
    }
    Tensor a = small(t), b = small(o);
    switch (below(8)) {
      case 0:
      case 1: return a + b;
      case 2: return a.sub(b);
      case 3: return a * b;
      case 4: return a.maximum(b);
      case 5: return a.lt(b);
      case 6: return a.ne(b).where(a, b);
      default:
        return a.dtype().is_float() || b.dtype().is_float() || a.dtype().is_bool() || b.dtype().is_bool() ? a.minimum(b)
               : below(2) ? a.floor_div(b)
                          : a.mod(b);
    }
  }
  /// Methods made of several operations that are exact in every order.
  Tensor exact(const Tensor& t, int axis) {
    const bool matrix = t.ndim() >= 2;
    std::vector<std::pair<int64_t, int64_t>> one(static_cast<size_t>(t.ndim()), {0, 0});
    one[static_cast<size_t>(axis)] = {1, 1};
    switch (below(13)) {
      case 0: return t.cummax(axis).first;
      case 1: return t.cummax(axis).second;
      case 2: return t.sort(axis, below(2) == 0).first;
      case 3: return t.argsort(axis, below(2) == 0);
      case 4: return t.argmax(axis);
      case 5: return t.roll(1 + below(3), axis);
      case 6: return matrix ? t.tril(below(3) - 1) : t;
      case 7: return matrix ? t.diagonal(below(3) - 1) : t;
      case 8: return t.pad(one, {.mode = below(2) ? PadOptions::kReplicate : PadOptions::kCircular});
      case 9: return t.repeat_interleave(2, axis);
      case 10: return Tensor::cat({t, t.flip(axis)}, axis);
      case 11: return t.any(axis, true);
      default: return Tensor::stack({t, t.neg().cast(t.dtype())}, axis).max(axis);
    }
  }
  static Shape first(Shape s, int axis, int64_t n) {
    s[static_cast<size_t>(axis)] = n;
    return s;
  }
  static bool fits(const Shape& a, const Shape& b) {
    for (size_t i = 0; i < std::min(a.size(), b.size()); i++) {
      const SInt &x = a[a.size() - 1 - i], &y = b[b.size() - 1 - i];
      if (!(x == y) && !(x == 1) && !(y == 1)) return false;
    }
    return true;
  }
  /// Keeps products and sums exact.
  static Tensor small(const Tensor& t) {
    return t.dtype().is_bool()       ? t
           : t.dtype().is_unsigned() ? t.minimum(Tensor::scalar(64, t.dtype()))
                                     : t.clamp(Tensor::scalar(-64, t.dtype()), Tensor::scalar(64, t.dtype()));
  }

  std::mt19937 random_;
  bool wide_;
};

struct Result {
  std::string what;
  DType dtype;
  std::vector<std::byte> bytes;
};
std::vector<Result> run(uint32_t seed, bool wide, const char* dev, int noopt = 0) {
  Context context{{"DEV", dev}, {"NOOPT", noopt}};
  std::vector<Result> out;
  for (const Tensor& t : RandomProgram(seed, wide).build()) {
    Tensor value = t.contiguous().realize();
    std::span<const std::byte> b = value.bytes();
    out.push_back({str(value.dtype(), " ", value.shape()), value.dtype(), {b.begin(), b.end()}});
  }
  return out;
}
void expect_same(const std::vector<Result>& got, const std::vector<Result>& expected, uint32_t seed, const char* dev) {
  for (size_t i = 0; i < expected.size(); i++) {
    ASSERT_EQ(got[i].what, expected[i].what) << "seed " << seed;
    const DType d = expected[i].dtype;
    const size_t item = eval_itemsize(d);
    for (size_t k = 0; k * item < expected[i].bytes.size(); k++) {
      const double a = load_const(&got[i].bytes[k * item], d).as_double(),
                   b = load_const(&expected[i].bytes[k * item], d).as_double();
      if (a == b || (a != a && b != b)) continue;
      ADD_FAILURE() << dev << ", seed " << seed << ": element " << k << " of result " << i << ", " << expected[i].what
                    << ": " << a << ", the interpreter says " << b;
      return;
    }
  }
}

class Differential : public testing::TestWithParam<bool> {};
TEST_P(Differential, LlvmAgreesWithTheInterpreter) {
  for (uint32_t seed = 0; seed < 50; seed++)
    expect_same(run(seed, GetParam(), "CPU"), run(seed, GetParam(), "INTERP"), seed, "CPU");
}
TEST_P(Differential, OptimisedAgreesWithPlainLoops) {
  for (uint32_t seed = 1000; seed < 1400; seed++)
    expect_same(run(seed, GetParam(), "INTERP"), run(seed, GetParam(), "INTERP", 1), seed, "INTERP");
}
TEST_P(Differential, ClangAgreesWithTheInterpreter) {
  if (clang_path().empty()) GTEST_SKIP() << "no clang";
  for (uint32_t seed = 2000; seed < 2005; seed++)
    expect_same(run(seed, GetParam(), "CPU:CLANG"), run(seed, GetParam(), "INTERP"), seed, "CPU:CLANG");
}
TEST_P(Differential, BaselineProcessorAgreesWithTheInterpreter) {
  for (uint32_t seed = 3000; seed < 3020; seed++)
    expect_same(run(seed, GetParam(), "CPU:LLVM:x86_64"), run(seed, GetParam(), "INTERP"), seed, "CPU:LLVM:x86_64");
}
INSTANTIATE_TEST_SUITE_P(Sizes, Differential, testing::Bool(),
                         [](const auto& i) { return i.param ? "Wide" : "Small"; });

}  // namespace
}  // namespace tg
