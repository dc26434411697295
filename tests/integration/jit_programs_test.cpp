/// \file Random functions with inputs, state, random numbers and variables, called several times: jitted they must give
/// what they give without JIT. Values are small integers, so every order of computation gives the same floats.
#include <gtest/gtest.h>

#include <random>

#include "tinygrad/base/context.h"
#include "tinygrad/base/env.h"
#include "tinygrad/engine/replay.h"
#include "tinygrad/tensor/jit/jit.h"
#include "tinygrad/tensor/tensor.h"
#include "tinygrad/tensor/variable.h"

namespace tg {
namespace {

constexpr int64_t kRows = 4, kColumns = 3;
constexpr int kCalls = 6;

Tensor bounded(const Tensor& t) { return t.clamp(-9, 9); }

/// A program as text: what each step does is drawn once, so that every call of it does the same.
class Program {
 public:
  explicit Program(uint32_t seed) : random_(seed) {
    inputs_ = 1 + below(3);
    states_ = below(3);
    results_ = 1 + below(3);
    const int n = 2 + below(7);
    for (int i = 0; i < n; i++) steps_.push_back({below(20), below(1000), below(1000), below(1000)});
    for (int i = 0; i < results_; i++) chosen_.push_back(below(1000));
    for (int i = 0; i < kCalls; i++)
      calls_.push_back({below(1000), below(1000), below(3), below(3) == 0, below(4) == 0});
    const int first = below(1000);
    for (int i = 0; i < inputs_ + states_; i++) fill_.push_back(first + 7 * i);
    jit_rand_ = below(3) == 0;
  }

  int64_t replayed_kernels = 0;

  /// Everything a user can see of six calls with this JIT.
  std::vector<float> trace(int jit_mode) {
    Context mode{{"JIT", jit_mode}};
    Tensor::manual_seed(17);
    Tensors states;
    for (int i = 0; i < states_; i++) states.push_back(data(nth(fill_, inputs_ + i)).contiguous().realize());
    auto f = jit([&](const Tensors& in, const BoundVariable& n) { return body(in, states, n); });
    Variable v("n", 1, kRows);
    std::vector<float> seen;
    std::vector<Tensors> held;
    auto see = [&](const Tensors& results) {
      for (const Tensor& t : results) {
        std::vector<float> x = t.to_vector<float>();
        seen.insert(seen.end(), x.begin(), x.end());
      }
    };
    for (int c = 0; c < kCalls; c++) {
      const Call& call = calls_[static_cast<size_t>(c)];
      Tensors in;
      for (int i = 0; i < inputs_; i++) in.push_back(data(nth(fill_, i) + 31 * c));
      if (call.feed_back && !held.empty() && held.back()[0].ndim() == 2)
        in[0] = c < 2 ? held.back()[0].clone() : held.back()[0];  // possibly a view
      for (Tensor& t : in) t.realize();
      BoundVariable n = v.bind(1 + call.rows % kRows);
      if (call.outside_write && !states.empty()) states[0].assign(bounded(states[0] + 1));
      Tensors r = f(in, n);
      if (call.read != 1) see(r);
      if (call.read != 2) held.push_back(std::move(r));
    }
    for (const Tensors& r : held) see(r);
    see(states);
    if (jit_mode) EXPECT_TRUE(f.core().captured());
    replayed_kernels += jit_mode ? static_cast<int64_t>(f.core().replay()->kernels()) : 0;
    return seen;
  }

 private:
  struct Step {
    int op, a, b, extra;
  };
  struct Call {
    int rows, unused, read;
    bool feed_back, outside_write;
  };

  int below(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }
  static int nth(const std::vector<int>& v, int i) { return v[static_cast<size_t>(i)]; }
  static Tensor data(int from) {
    std::vector<float> v(kRows * kColumns);
    for (size_t i = 0; i < v.size(); i++) v[i] = static_cast<float>((from + static_cast<int>(i) * 5) % 11 - 5);
    return Tensor::from(v, {kRows, kColumns});
  }

  Tensors body(const Tensors& in, Tensors& states, const BoundVariable& n) const {
    Tensors pool = in;
    pool.insert(pool.end(), states.begin(), states.end());
    auto at = [&](int i) -> Tensor& { return pool[static_cast<size_t>(i) % pool.size()]; };
    for (const Step& s : steps_) {
      Tensor a = at(s.a), b = at(s.b), r;
      switch (s.op) {
        case 0: r = bounded(a + b); break;
        case 1: r = bounded(a * b); break;
        case 2: r = a.maximum(b); break;
        case 3: r = a.flip(s.extra % 2); break;
        case 4: r = a - a.max(s.extra % 2, true); break;
        case 5: r = bounded(b + a.sum(s.extra % 2, true)); break;
        case 6: r = (a < b).where(a, b * 2); break;
        case 7: r = bounded(a.transpose().dot(b)).pad({{0, 1}, {0, 0}}); break;
        case 8: r = a.shrink({{1, kRows}, {0, kColumns}}).pad({{0, 1}, {0, 0}}); break;
        case 9: r = bounded(a.cumsum(0)); break;
        case 10:
          r = bounded(b + a.shrink({{0, n}, {0, kColumns}}).sum(0, true));
          break;  // as many rows as the variable says
        case 11: r = bounded(a * n.tensor()); break;
        case 12: r = a(Slice(None, None, -1)) + 1; break;
        case 13: r = jit_rand_ ? a + (Tensor::rand({kRows, kColumns}) * 4).floor() : a + 2; break;
        case 14: r = bounded(a * 2 - 1).contiguous(); break;
        case 15: r = (bounded(a) + b).realize(); break;
        default: {
          if (states.empty()) {
            r = bounded(a - b);
            break;
          }
          Tensor& state = states[static_cast<size_t>(s.extra) % states.size()];
          if (s.op == 16) state.assign(bounded(state + a));
          else if (s.op == 17) {
            state.assign(a.detach() + 0);
            state.realize();
          } else if (s.op == 18) state.at(Slice(0, 2)) = b.shrink({{1, 3}, {0, kColumns}}) + 1;
          else state.at(s.extra % kRows) = a(0);
          r = bounded(state + 1);
        }
      }
      pool.push_back(r.cast(dtypes::float32));
    }
    Tensors out;
    for (int c : chosen_) {  // mostly what was computed last
      Tensor t = c % 3 ? pool[pool.size() - 1 - static_cast<size_t>(c) % std::min<size_t>(pool.size(), 3)] : at(c);
      out.push_back(c % 5 == 0 ? t.sum() : t + 0);
    }
    return out;
  }

  std::mt19937 random_;
  int inputs_, states_, results_;
  bool jit_rand_;
  std::vector<Step> steps_;
  std::vector<Call> calls_;
  std::vector<int> chosen_, fill_;
};

void compare(const std::string& device, uint32_t from, uint32_t count) {
  Context ctx{{"DEV", device}, {"EAGER", 0}};
  int64_t kernels = 0;
  for (uint32_t seed = from; seed < from + count; seed++) {
    std::vector<float> want = Program(seed).trace(0);
    for (int mode : {1, 2}) {
      Program program(seed);
      std::vector<float> got;
      ASSERT_NO_THROW(got = program.trace(mode)) << "seed " << seed << ", JIT=" << mode;
      ASSERT_EQ(got, want) << "seed " << seed << ", JIT=" << mode;
      kernels += program.replayed_kernels;
    }
  }
  EXPECT_GT(kernels, 4 * static_cast<int64_t>(count)) << "hardly anything was captured";
}

TEST(JitPrograms, AThousandOnTheInterpreter) { compare("INTERP", 0, 1000); }
TEST(JitPrograms, CompiledOnes) { compare("CPU", 5000, 60); }

}  // namespace
}  // namespace tg
