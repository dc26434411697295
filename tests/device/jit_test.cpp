/// \file Captured functions: what replays give, what they may not forget, and the errors where they cannot be faithful.
#include "tinygrad/tensor/jit/jit.h"

#include <gtest/gtest.h>

#include <random>

#include "tinygrad/base/cancellation.h"
#include "tinygrad/base/env.h"
#include "tinygrad/engine/counters.h"
#include "tinygrad/engine/replay.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
using Floats = std::vector<float>;
Floats floats(const Tensor& t) { return t.to_vector<float>(); }
Tensor vec(float a, float b) { return Tensor({a, b}).contiguous().realize(); }

TEST(Jit, ReplaysWithOtherInputs) {
  int runs = 0;
  auto f = jit([&](const Tensor& a, const Tensor& b) {
    runs++;
    return (a + b) * 2;
  });
  for (int i = 0; i < 5; i++) {
    float k = static_cast<float>(i);
    EXPECT_EQ(floats(f(vec(k, 1), vec(2, k))), (Floats{2 * k + 4, 2 + 2 * k}));
  }
  EXPECT_EQ(runs, env::JIT ? 2 : 5);
}

TEST(Jit, ReplayRunsNoMoreKernelsThanTheFunction) {
  if (!env::JIT) GTEST_SKIP() << "JIT=0 runs the function itself: nothing is captured";
  auto f = jit([](const Tensor& a) { return ((a + 1).realize() * 2).realize() - a; });
  for (int i = 0; i < 3; i++) f(vec(1, 2));
  GlobalCounters::reset();
  f(vec(3, 4));
  int64_t kernels = GlobalCounters::kernels;
  EXPECT_GE(kernels, 3);
  EXPECT_EQ(f.core().replay()->kernels(), 3u);
}

TEST(Jit, UnrealizedInputsAreRealized) {
  auto f = jit([](const Tensor& a) { return a * 3; });
  for (int i = 0; i < 4; i++) EXPECT_EQ(floats(f(vec(1, 2) + i)), (Floats{3.f + 3 * i, 6.f + 3 * i}));
}

TEST(Jit, FilledInputsGetStorage) {
  auto f = jit([](const Tensor& a) { return a * 3; });
  for (float k : {1.f, 2.f, 3.f, 4.f}) EXPECT_EQ(floats(f(Tensor::full({2}, k))), (Floats{3 * k, 3 * k}));
  EXPECT_EQ(floats(f(vec(1, 2))), (Floats{3, 6}));
  EXPECT_EQ(floats(f(Tensor::ones({2}))), (Floats{3, 3}));
  if (env::JIT) EXPECT_THROW(f(Tensor(1)), JitError);
}

TEST(Jit, WeakResultsGetStorage) {
  auto f = jit([](const Tensor& a) { return a.to_int().sum() * 0.5; });
  for (int i = 0; i < 5; i++)
    EXPECT_EQ(f(vec(static_cast<float>(i), 1)).item<float>(), 0.5f * static_cast<float>(i + 1));
  EXPECT_THROW(f(Tensor({1, 2}).realize() + 0.5), JitError);
}

TEST(Jit, SeveralResultsInTuplesAndLists) {
  auto f = jit([](const Tensor& a) { return std::make_tuple(a + 1, Tensors{a * 2, a * 3}); });
  for (int i = 0; i < 4; i++) {
    auto [x, l] = f(vec(1, static_cast<float>(i)));
    EXPECT_EQ(floats(x), (Floats{2, 1.f + i}));
    EXPECT_EQ(floats(l[1]), (Floats{3, 3.f * i}));
  }
}

TEST(Jit, InputsInListsAndPairs) {
  auto f = jit([](const Tensors& l, const std::pair<Tensor, int>& p) { return l[0] + l[1] * p.first * p.second; });
  for (int i = 0; i < 4; i++)
    EXPECT_EQ(floats(f(Tensors{vec(1, 1), vec(2, 3)}, std::pair{vec(float(i), 1), 2})), (Floats{1 + 4.f * i, 7}));
}

TEST(Jit, Variables) {
  Tensor table = Tensor::arange(10).to_float().realize();
  auto f = jit([&](BoundVariable i) { return table.shrink({{i, i + 2}}) * 10; });
  for (int i = 0; i < 7; i++) EXPECT_EQ(floats(f(Variable("i", 0, 8).bind(i))), (Floats{10.f * i, 10.f * i + 10}));
}

TEST(Jit, ViewsAsInputsKeepTheirOffset) {
  auto f = jit([](const Tensor& a) { return a + 1; });
  Tensor base = Tensor::arange(10).to_float().realize();
  f(base.shrink({{2, 4}}));
  f(base.shrink({{2, 4}}));
  EXPECT_EQ(floats(f(base.shrink({{2, 4}}))), (Floats{3, 4}));
  if (env::JIT) EXPECT_THROW(f(base.shrink({{3, 5}})), JitError);
}

// ---- what tinygrad's users trip over ----

TEST(JitFootgun, EarlierResultIsNotOverwritten) {
  auto f = jit([](const Tensor& x) { return x.sum(); });
  Tensor r1 = f(vec(1, 1)), r2 = f(vec(2, 2)), r3 = f(vec(3, 3)), r4 = f(vec(4, 4));
  EXPECT_EQ(r1.item<float>(), 2);
  EXPECT_EQ(r2.item<float>(), 4);
  EXPECT_EQ(r3.item<float>(), 6);
  EXPECT_EQ(r4.item<float>(), 8);
}

TEST(JitFootgun, ExpressionOfAnEarlierResult) {
  auto f = jit([](const Tensor& x) { return x * 2; });
  f(vec(1, 1));
  f(vec(1, 1));
  Tensor later = f(vec(5, 6)) + 1;
  f(vec(7, 8));
  EXPECT_EQ(floats(later), (Floats{11, 13}));
}

TEST(JitFootgun, ResultIsTheNextInput) {
  auto f = jit([](const Tensor& x) { return ((x + 1).realize() * 2); });
  f(vec(10, 0));
  Tensor x = f(vec(20, 0));
  for (int i = 0; i < 3; i++) x = f(x);
  EXPECT_EQ(floats(x)[0], 350);
  Tensor y = vec(100, 0);
  for (int i = 0; i < 3; i++) y = f(y);
  EXPECT_EQ(floats(y)[0], 814);
}

TEST(JitFootgun, ShiftedInputIsPartOfTheResult) {
  auto f = jit([](const Tensor& buf, const Tensor& frame) { return buf.shrink({{1, 3}}).cat(frame); });
  Tensor buf = Tensor({0.f, 1.f, 2.f}).contiguous().realize();
  for (int i = 0; i < 5; i++) {
    Floats before = floats(buf);
    buf = f(buf, Tensor({10.f + i}).contiguous().realize());
    EXPECT_EQ(floats(buf), (Floats{before[1], before[2], 10.f + i}));
  }
}

TEST(JitFootgun, DuplicateInputs) {
  auto f = jit([](const Tensor& a, const Tensor& b) { return a + b; });
  Tensor x = vec(1, 2);
  EXPECT_THROW(f(x, x), JitError);
  EXPECT_THROW(f(x, x.shrink({{0, 2}}).reshape(2)), JitError);
}

TEST(JitFootgun, ViewWhereWholeStorageWasCaptured) {
  Tensor rows = Tensor::arange(12).to_float().reshape(6, 2).contiguous().realize();
  auto f = jit([](const Tensor& a) { return a * 2; });
  for (int i = 0; i < 2; i++) f(vec(1, 2));
  for (int64_t i = 0; i < 4; i++) {
    float k = static_cast<float>(i);
    EXPECT_EQ(floats(f(rows[i])), (Floats{4 * k, 4 * k + 2})) << "a row with its offset";
    EXPECT_EQ(floats(f(rows[i].flip(0))), (Floats{4 * k + 2, 4 * k})) << "and turned around";
    EXPECT_EQ(floats(f(rows.shrink({{1, 2}, {0, 2}}).reshape(2))), (Floats{4, 6}));
  }
  EXPECT_EQ(floats(rows)[11], 11);
}

TEST(JitFootgun, ViewOfAnInputThatIsWrittenOrReturned) {
  if (!env::JIT) GTEST_SKIP() << "JIT=0 runs the function itself";
  Tensor rows = Tensor::arange(4).to_float().reshape(2, 2).contiguous().realize();
  auto write = jit([](Tensor a) { return a.assign(a + 1).realize(); });
  auto back = jit([](const Tensor& a) { return std::make_pair(a, a + 1); });
  for (int i = 0; i < 2; i++) {
    write(vec(1, 2));
    back(vec(1, 2));
  }
  EXPECT_THROW(write(rows[1]), JitError) << "a copy would take the write";
  EXPECT_THROW(back(rows[1]), JitError);
  EXPECT_EQ(floats(rows), (Floats{0, 1, 2, 3}));
}

TEST(JitFootgun, AnotherViewThanTheCapturedOne) {
  Tensor rows = Tensor::arange(12).to_float().reshape(6, 2).contiguous().realize();
  auto f = jit([](const Tensor& a) { return a + 1; });
  for (int i = 0; i < 4; i++) EXPECT_EQ(floats(f(rows[2])), (Floats{5, 6})) << "the same view each time";
  if (env::JIT) EXPECT_THROW(f(rows[3]), JitError);
  EXPECT_EQ(floats(f(rows[2])), (Floats{5, 6})) << "usable after a refusal";
}

TEST(JitFootgun, SliceOfStateInside) {
  Tensor state = Tensor::zeros({4, 2}).contiguous().realize();
  auto f = jit([&](const Tensor& a) {
    state.at(Slice(1, 3)) = a + state.at(Slice(0, 2)) + 1;
    return state(Slice(2, 4)).sum();
  });
  for (float k = 1; k < 6; k++) {
    f(Tensor::full({2, 2}, k).contiguous().realize());
    EXPECT_EQ(state(1, 0).item<float>(), k + 1);
    EXPECT_EQ(state(2, 0).item<float>(), k > 1 ? 2 * k + 1 : k + 1) << "the row above as it was before the write";
  }
}

TEST(JitFootgun, ConstantInput) {
  auto f = jit([](const Tensor& a) { return a + 1; });
  EXPECT_THROW(f(Tensor(2.f)), JitError);
}

TEST(JitFootgun, ChangedShapeTypeOrDevice) {
  auto f = jit([](const Tensor& a) { return a + 1; });
  f(vec(1, 2));
  f(vec(1, 2));
  if (!env::JIT) GTEST_SKIP() << "JIT=0 runs the function itself: nothing is captured";
  EXPECT_THROW(f(Tensor({1.f, 2.f, 3.f}).contiguous().realize()), JitError);
  EXPECT_THROW(f(Tensor({1, 2}).contiguous().realize()), JitError);
  EXPECT_EQ(floats(f(vec(3, 4))), (Floats{4, 5})) << "the error changes nothing";
  f.reset();
  EXPECT_EQ(floats(f(Tensor({1.f, 2.f, 3.f}))), (Floats{2, 3, 4}));
}

TEST(JitFootgun, ChangedConstantArgument) {
  auto f = jit([](const Tensor& a, int k) { return a * k; });
  f(vec(1, 2), 3);
  f(vec(1, 2), 3);
  EXPECT_EQ(floats(f(vec(2, 3), 3)), (Floats{6, 9}));
  for (int i = 0; i < 3; i++) {
    const float v = static_cast<float>(i);
    EXPECT_EQ(floats(f(vec(2, v), 4)), (Floats{8, 4 * v}));
    EXPECT_EQ(floats(f(vec(2, v), 3)), (Floats{6, 3 * v}));
  }
}

TEST(JitFootgun, MoreConstantsThanCapturesAreKeptFor) {
  int runs = 0;
  auto f = jit([&](const Tensor& a, int k) {
    runs++;
    return a * k;
  });
  for (int k = 0; k < 20; k++)
    for (int i = 0; i < 3; i++)
      EXPECT_EQ(floats(f(vec(1, static_cast<float>(i)), k)),
                (Floats{static_cast<float>(k), static_cast<float>(k * i)}));
  if (env::JIT) EXPECT_EQ(runs, 2 + 7 + 12 * 3) << "two for the first, one for each other capture, all of the rest";
}

TEST(JitFootgun, ConstantsThatDoNotMatter) {
  int runs = 0;
  auto f = jit([&](const Tensor& a, int) {
    runs++;
    return a + 1;
  });
  for (int k = 0; k < 20; k++)
    EXPECT_EQ(floats(f(vec(1, static_cast<float>(k)), k)), (Floats{2, static_cast<float>(k + 1)}));
  if (env::JIT) EXPECT_EQ(runs, 4) << "the third equal record settles it";
}

struct Scaler {
  Tensor scale;
  Tensor forward(const Tensor& x) { return x * scale; }
};
TEST(JitFootgun, MethodOfAnotherInstance) {
  Scaler a{vec(2, 2)}, b{vec(3, 3)};
  auto f = jit(&Scaler::forward);
  f(&a, vec(1, 2));
  f(&a, vec(1, 2));
  EXPECT_EQ(floats(f(&a, vec(1, 2))), (Floats{2, 4}));
  for (int i = 0; i < 3; i++) {
    EXPECT_EQ(floats(f(&b, vec(1, 2))), (Floats{3, 6}));
    EXPECT_EQ(floats(f(&a, vec(1, 2))), (Floats{2, 4}));
  }
}

TEST(JitFootgun, ItemInside) {
  auto f = jit([](const Tensor& a) { return a * a.sum().item<float>(); });
  f(vec(1, 2));
  if (!env::JIT) GTEST_SKIP() << "JIT=0 runs the function itself: nothing is captured";
  EXPECT_THROW(f(vec(1, 2)), JitError);
  EXPECT_THROW(f(vec(1, 2)), JitError) << "and again: nothing was captured";
}

TEST(JitFootgun, NothingComputed) {
  auto f = jit([](const Tensor&) {});
  f(vec(1, 2));
  if (env::JIT) EXPECT_THROW(f(vec(1, 2)), JitError);
}

TEST(JitFootgun, ExceptionDuringCapture) {
  int calls = 0;
  auto f = jit([&](const Tensor& a) {
    if (++calls == 2) throw ValueError("no");
    return a + 1;
  });
  f(vec(1, 2));
  EXPECT_THROW(f(vec(1, 2)), ValueError);
  for (int i = 0; i < 3; i++) EXPECT_EQ(floats(f(vec(1, static_cast<float>(i)))), (Floats{2, 1.f + i}));
  EXPECT_FALSE(JitCore::capturing());
}

TEST(JitFootgun, Nested) {
  auto inner = jit([](const Tensor& a) { return a + 1; });
  auto outer = jit([&](const Tensor& a) { return inner(a * 2) * 3; });
  for (int i = 0; i < 5; i++) EXPECT_EQ(floats(outer(vec(1, static_cast<float>(i)))), (Floats{9, (2.f * i + 1) * 3}));
}

TEST(JitFootgun, StateIsUpdated) {
  Tensor count = Tensor::zeros(2).contiguous().realize();
  auto f = jit([&](const Tensor& a) {
    count.assign(count + a);
    return count * 10;
  });
  Tensor r;
  for (int i = 0; i < 5; i++) r = f(vec(1, 2));
  EXPECT_EQ(floats(count), (Floats{5, 10}));
  EXPECT_EQ(floats(r), (Floats{50, 100}));
}

TEST(JitFootgun, PendingAssignInsideIsPartOfTheStep) {
  Tensor mean = Tensor::zeros(2).contiguous().realize();
  auto f = jit([&](const Tensor& a) {
    mean.assign(mean * 0.5 + a * 0.5);  // nobody asks for it
    return a + 1;
  });
  Floats want{0, 0};
  for (int i = 0; i < 5; i++) {
    float k = static_cast<float>(i);
    f(vec(k, 1));
    want = {want[0] / 2 + k / 2, want[1] / 2 + 0.5f};
  }
  EXPECT_EQ(floats(mean), want);
}

TEST(JitFootgun, PendingAssignBeforeACallIsSeen) {
  Tensor state = Tensor::zeros(2).contiguous().realize();
  auto f = jit([&](const Tensor& a) { return state + a; });
  for (int i = 0; i < 5; i++) {
    state.assign(Tensor::full({2}, static_cast<double>(i)));  // not realized
    EXPECT_EQ(floats(f(vec(1, 2))), (Floats{1.f + i, 2.f + i})) << i;
  }
}

TEST(JitFootgun, PendingExpressionOfStateReadsTheOldValue) {
  Tensor state = Tensor::zeros(2).contiguous().realize();
  auto f = jit([&](const Tensor& a) {
    state.assign(state + a);
    return state.sum();
  });
  f(vec(1, 1));
  f(vec(1, 1));
  f(vec(1, 1));
  Tensor before = state * 100, again;
  f(vec(1, 1));
  again = state * 100;
  EXPECT_EQ(floats(before), (Floats{300, 300}));
  EXPECT_EQ(floats(again), (Floats{400, 400}));
  f(vec(1, 1));
  EXPECT_EQ(floats(state * 100), (Floats{500, 500}));
}

TEST(JitFootgun, InputIsUpdatedInPlace) {
  auto f = jit([](Tensor x) {
    x.assign(x + 1);
    return x;
  });
  Tensor a = Tensor::zeros(2).contiguous().realize(), b = vec(5, 6);
  for (int i = 0; i < 5; i++) f(a);
  EXPECT_EQ(floats(a), (Floats{5, 5}));
  Tensor old = b * 10;
  EXPECT_EQ(floats(f(b)), (Floats{6, 7}));
  EXPECT_EQ(floats(old), (Floats{50, 60}));
  EXPECT_EQ(floats(b * 10), (Floats{60, 70}));
}

TEST(JitFootgun, StateAsInput) {
  Tensor state = vec(1, 2);
  auto f = jit([&](const Tensor& a) {
    state.assign(a * 2 + state);
    return state + 0;
  });
  f(vec(1, 1));
  f(vec(1, 1));
  f(vec(1, 1));
  Floats before = floats(state);
  f(state);
  EXPECT_EQ(floats(state), (Floats{before[0] * 3, before[1] * 3}));
}

TEST(JitFootgun, RandomNumbersAreFresh) {
  auto body = [](const Tensor& a) { return a + Tensor::rand(2) + Tensor::rand(2) * 10; };
  std::vector<Floats> plain, jitted;
  Tensor x = vec(0, 0);
  Tensor::manual_seed(3);
  for (int i = 0; i < 5; i++) plain.push_back(floats(body(x)));
  Tensor::manual_seed(3);
  auto f = jit(body);
  for (int i = 0; i < 5; i++) jitted.push_back(floats(f(x)));
  EXPECT_EQ(plain, jitted);
  EXPECT_NE(jitted[3], jitted[4]);
}

TEST(JitFootgun, StorageMadeInTheCapturedCallOnlyIsNotMadeAgain) {
  Tensor state;
  int calls = 0;
  auto f = jit([&](const Tensor& a) {
    if (calls++ == 1) state = Tensor::zeros(2).contiguous();
    if (!state.defined()) return a * 1;
    state.assign(state + a);
    return state * 1;
  });
  f(vec(1, 1));
  Tensor r;
  for (int i = 0; i < 4; i++) r = f(vec(1, 1));
  EXPECT_EQ(floats(state), floats(r));
}

TEST(JitFootgun, AnExpressionThatComesWhenAHandleGoesIsComputedBeforeReplays) {
  Tensor w = Tensor({1.f, 2.f}).contiguous().realize();
  const Tensor one = Tensor({1.f, 1.f}).contiguous().realize();
  auto f = jit([&](const Tensor& x) {
    w.assign(w + x);
    return w.sum();
  });
  for (int i = 0; i < 3; i++) f(one);
  for (int others = 1; others <= 6; others++) {
    std::vector<Tensor> handles;
    for (int i = 0; i < others; i++) handles.push_back(Tensor::from_uop(w.uop()));
    f(one);
    const Floats before = w.to_vector<float>();
    for (int more = 0; more < others; more++) {
      handles.pop_back();
      const Tensor pending = w * 2;
      f(one);
      EXPECT_EQ(pending.to_vector<float>(), (Floats{before[0] * 2 + 2 * more, before[1] * 2 + 2 * more}));
    }
  }
}

TEST(JitFootgun, SymbolicSizesFollowTheirVariable) {
  Tensor a = (Tensor::arange(12).to_float() + 1).contiguous().realize();
  auto f = jit([](const Tensor& x) { return (x + 1).sum(); });
  for (int i = 1; i < 6; i++)
    EXPECT_EQ(f(a.shrink({{0, Variable("n", 1, 10).bind(i)}})).item<float>(), i * (i + 1) / 2 + i) << i;
}

TEST(JitFootgun, DetachedAndReshapedStorageIsTheSameArgumentAsAnyOther) {
  for (int odd : {0, 1}) {
    auto f = jit([](const Tensor& x) { return std::pair((x * 2).sum(), x.flip({0})); });
    for (int i = 0; i < 6; i++) {
      const auto n = static_cast<float>(i);
      Tensor x = vec(n, 1).realize();
      if (i % 2 == odd) x = Tensor({{n, 1.f}}).realize().detach().flatten();
      auto [sum, flipped] = f(x);
      EXPECT_EQ(sum.item<float>(), 2 * n + 2) << i;
      EXPECT_EQ(floats(flipped), (Floats{1, n})) << i;
    }
  }
}

TEST(JitFootgun, WorkDoneBeforeTheCaptureIsCapturedToo) {
  Tensor w = vec(1, 2).requires_grad_(), x = vec(3, 4), warm, captured;
  auto f = jit([&](const Tensor& a) { return (w * 2 + a).sum(); });
  Tensor history = (w * 2).sum().realize();  // keeps w * 2
  warm = f(x);
  captured = f(x);
  w.assign(w.detach() * 10).realize();
  EXPECT_EQ(f(x).item<float>(), 2 * 30 + 7);
  EXPECT_EQ(warm.item<float>(), 2 * 3 + 7);
}

TEST(JitFootgun, NoJitRunsTheFunction) {
  Context off{{"JIT", 0}};
  int runs = 0;
  auto f = jit([&](const Tensor& a) {
    runs++;
    return a + 1;
  });
  for (int i = 0; i < 4; i++) EXPECT_EQ(floats(f(vec(static_cast<float>(i), 0))), (Floats{1.f + i, 1}));
  EXPECT_EQ(runs, 4);
  EXPECT_FALSE(f.core().captured());
}

TEST(Jit, CapturingOffLeavesWorkOut) {
  if (!env::JIT) GTEST_SKIP() << "JIT=0 runs the function itself: nothing is captured";
  auto f = jit([](const Tensor& a) {
    {
      Context off{{"CAPTURING", 0}};
      (Tensor::zeros(4).contiguous() + 1).realize();
    }
    return a + 1;
  });
  for (int i = 0; i < 3; i++) f(vec(1, 2));
  EXPECT_EQ(f.core().replay()->kernels(), 1u);
}

TEST(Jit, PrunedKernelsRunAgainWhenWhatTheyReadWasWritten) {
  Tensor w = vec(1, 2);
  auto f = jit([&](const Tensor& x) { return (w * 2).contiguous() + x; }, {.prune = true});
  for (int i = 0; i < 3; i++) EXPECT_EQ(floats(f(vec(1, 1))), (Floats{3, 5}));
  w.assign(vec(10, 20));
  for (int i = 0; i < 2; i++) EXPECT_EQ(floats(f(vec(1, 1))), (Floats{21, 41}));
}

TEST(Jit, ResultsOfSymbolicSizeHaveTheSizeOfTheCall) {
  Tensor t = Tensor::arange(10).to_float().contiguous().realize();
  Variable n("n", 1, 10);
  auto f = jit([&](const BoundVariable& k) { return t.shrink({{0, k}}) * 2; });
  for (int k : {7, 7, 3, 9}) EXPECT_EQ(floats(f(n.bind(k))).size(), static_cast<size_t>(k));
}

TEST(JitFootgun, GradientsAreAttachedAgain) {
  Tensor w = vec(1, 2).requires_grad_();
  auto f = jit([&](const Tensor& x) {
    Tensor loss = (w * x).sum();
    loss.backward();
    return loss;
  });
  for (int i = 0; i < 5; i++) {
    const float k = static_cast<float>(i);
    w.zero_grad();
    f(vec(k, 1));
    EXPECT_EQ(floats(w.grad()), (Floats{k, 1}));
  }
}

TEST(JitFootgun, GradientsOfArgumentsThatNobodyReadsAreLeftOut) {
  int64_t kernels[2] = {};
  for (bool read : {false, true}) {
    Tensor w = vec(1, 2);
    auto f = jit([&](const Tensor& x) {
      w.zero_grad();
      const Tensor loss = (w * x).square().sum();
      loss.backward();
      w.assign(w - w.grad() * 0.5);  // what the gradient of x would read is overwritten
      return loss.realize();
    });
    Tensor x = vec(1, 1);
    for (int i = 0; i < 4; i++) {
      x.zero_grad();
      w.assign(vec(1, 2)).realize();
      const int64_t before = GlobalCounters::kernels;
      f(x);
      kernels[read] = GlobalCounters::kernels - before;
      EXPECT_EQ(floats(w), (Floats{0, 0}));
      if (read) EXPECT_EQ(floats(x.grad()), (Floats{2, 8})) << i;
    }
    if (env::JIT && !read) EXPECT_THROW(x.grad(), GradientError);
  }
  if (env::JIT && !env::EAGER) EXPECT_EQ(kernels[0], kernels[1] - 1);
}

TEST(JitFootgun, AFunctionReadsTheGradientOfItsArgument) {
  Tensor w = vec(1, 2);
  auto f = jit([&](Tensor x) {
    x.zero_grad();
    const Tensor loss = (w * x).square().sum();
    loss.backward();
    w.assign(w + 1);
    return (x + x.grad()).realize();
  });
  for (int i = 0; i < 5; i++) {
    const float a = static_cast<float>(1 + i), b = static_cast<float>(2 + i);
    EXPECT_EQ(floats(f(vec(1, 1))), (Floats{1 + 2 * a * a, 1 + 2 * b * b}));
  }
}

TEST(JitFootgun, StateThatIsReplacedGoesOn) {
  for (bool stored : {true, false}) {
    Tensor h = vec(0, 0);
    auto f = jit([&](const Tensor& x) { h = stored ? (h + x).realize() : h + x; });
    for (int i = 1; i < 8; i++) {
      f(vec(1, static_cast<float>(i)));
      EXPECT_EQ(floats(h), (Floats{static_cast<float>(i), static_cast<float>(i * (i + 1) / 2)}));
    }
    if (env::JIT) EXPECT_TRUE(f.core().captured());
  }
}

TEST(JitFootgun, TensorsThatAreCollectedAreRefused) {
  if (!env::JIT) GTEST_SKIP() << "JIT=0 runs the function itself";
  Tensors all;
  auto f = jit([&](const Tensor& x) {
    all.push_back(x * 2);
    return x + 1;
  });
  f(vec(1, 1));
  f(vec(1, 1));
  EXPECT_THROW(f(vec(1, 1)), JitError);
}

TEST(JitFootgun, OtherVariablesThanAtCapture) {
  if (!env::JIT) GTEST_SKIP() << "JIT=0 runs the function itself: nothing is captured";
  Tensor t = Tensor::arange(20).to_float().contiguous().realize();
  const Variable a("a", 1, 8), b("b", 1, 8);
  auto f = jit([&](BoundVariable i, BoundVariable k) { return t.shrink({{i, i + 2}}) * 100 + t.shrink({{k, k + 2}}); });
  for (int i = 1; i < 5; i++)
    EXPECT_EQ(floats(f(a.bind(i), b.bind(8 - i)))[0], 100.f * static_cast<float>(i) + static_cast<float>(8 - i));
  EXPECT_THROW(f(b.bind(2), a.bind(3)), JitError) << "in another order";
  EXPECT_THROW(f(a.bind(2), a.bind(2)), JitError);
  EXPECT_THROW(f(a.bind(2), Variable("b", 1, 100).bind(60)), JitError) << "other bounds";
  EXPECT_THROW(f(a.bind(2), b.bind(2) + 1), JitError) << "an expression";
  EXPECT_EQ(floats(f(a.bind(7), b.bind(2)))[0], 702.f);
  auto g = jit([&](BoundVariable i) { return t.shrink({{i, i + 2}}) * 2; });
  for (int i = 1; i < 5; i++) EXPECT_EQ(floats(g(a.bind(i) + 1))[0], 2.f * static_cast<float>(i + 1));
  EXPECT_THROW(g(a.bind(1) + 2), JitError);
  EXPECT_THROW(g(a.bind(1)), JitError);
}

TEST(JitFootgun, FlagsAreThoseOfTheCallAndFreeVariablesAreRefused) {
  if (!env::JIT) GTEST_SKIP() << "JIT=0 runs the function itself";
  Tensor x = vec(1, 1), t = Tensor::arange(10).to_float().contiguous().realize();
  auto f = jit([](const Tensor& a) { return a.dropout(0.5) + 1; });
  for (int i = 0; i < 3; i++) f(x);
  {
    Context training{{"TRAINING", 1}};
    for (int i = 0; i < 3; i++)
      for (float v : floats(f(x))) EXPECT_TRUE(v == 1 || v == 3) << "dropped or doubled";
  }
  EXPECT_EQ(floats(f(x)), (Floats{2, 2}));
  Variable n("n", 1, 10);
  auto g = jit([&](const Tensor& a) { return a + t.shrink({{0, n.bind(3)}}).sum(); });
  g(x);
  EXPECT_THROW(g(x), JitError);
}

TEST(Jit, Prune) {
  if (!env::JIT) GTEST_SKIP() << "JIT=0 runs the function itself: nothing is captured";
  Tensor w = vec(3, 4), seen = Tensor::zeros(2).contiguous().realize();
  auto body = [&](const Tensor& x) {
    seen.assign(seen + 1);
    return (w * 2).contiguous() + x + seen;
  };
  auto all = jit(body), pruned = jit(body, {.prune = true});
  for (int i = 0; i < 4; i++) EXPECT_EQ(floats(all(vec(1, 1))), (Floats{8.f + i, 10.f + i}));
  for (int i = 4; i < 8; i++) EXPECT_EQ(floats(pruned(vec(1, 1))), (Floats{8.f + i, 10.f + i}));
  EXPECT_EQ(all.core().replay()->kernels(), pruned.core().replay()->kernels() + 1);
}

TEST(Jit, IntermediatesAreFreedAndMadeAgain) {
  auto f = jit([](const Tensor& x) { return ((x * 2).contiguous().realize() + 1).contiguous().realize().sum(); });
  for (int i = 0; i < 4; i++) EXPECT_EQ(f(vec(1, 2)).item<float>(), 8);
  f.core().free_intermediates();
  f.core().free_intermediates();
  EXPECT_EQ(f(vec(2, 2)).item<float>(), 10);
}

TEST(Jit, TrainingStep) {
  auto train = [](bool with_jit) {
    Tensor::manual_seed(5);
    Tensor w = (Tensor::randn(4, 3) * 0.1).realize(), b = Tensor::zeros(3).contiguous().realize();
    w.requires_grad_();
    b.requires_grad_();
    auto step = [&](const Tensor& x, const Tensor& y) {
      w.zero_grad();
      b.zero_grad();
      Tensor loss = (x.matmul(w) + b - y).square().mean();
      loss.backward();
      for (const Tensor& p : {w, b}) p.assign(p.detach() - p.grad() * 0.1);
      realize(w, b, loss);
      return loss;
    };
    auto jitted = jit(step);
    Floats losses;
    for (int i = 0; i < 8; i++) {
      Tensor x = (Tensor::arange(8).reshape(2, 4).to_float() * 0.1 + i).contiguous().realize(),
             y = Tensor::ones(2, 3).contiguous().realize();
      losses.push_back((with_jit ? jitted(x, y) : step(x, y)).item<float>());
    }
    return losses;
  };
  Floats a = train(false), b = train(true);
  for (size_t i = 0; i < a.size(); i++) EXPECT_NEAR(a[i], b[i], 1e-5f * std::abs(a[i]) + 1e-6f) << i;
}

/// Layers of small products, each of two results of the layer before it: independent ones may run in parallel.
Tensors web(const Tensor& x, const Tensors& weights, uint32_t seed, size_t layers, size_t width) {
  std::mt19937 random(seed);
  Tensors h(width, x);
  for (size_t l = 0; l < layers; l++) {
    Tensors next;
    for (size_t k = 0; k < width; k++) {
      const Tensor a = h[random() % width], b = h[random() % width];
      next.push_back(((a.matmul(weights[random() % weights.size()]) + b) * 0.25).tanh().realize());
    }
    h = next;
  }
  return h;
}

TEST(Jit, IndependentKernelsRunInParallel) {
  if (!env::JIT || Device::default_name() != "CPU") GTEST_SKIP() << "replays on the CPU";
  Context four{{"NUM_CPU_THREADS", 4}};  // as code for several threads
  Tensor::manual_seed(3);
  Tensors w;
  for (int i = 0; i < 4; i++) w.push_back(Tensor::randn(48, 48).realize());
  Tensors inputs;
  for (int i = 0; i < 4; i++) inputs.push_back(Tensor::randn(48, 48).realize());
  auto chain = jit([&](const Tensor& x) { return web(x, w, 1, 12, 1)[0]; });
  for (const Tensor& x : inputs) chain(x);
  EXPECT_TRUE(chain.core().replay()->parallel_launches().empty());
  size_t beside = 0;
  for (uint32_t seed = 0; seed < 8; seed++) {
    auto f = jit([&](const Tensor& x) { return web(x, w, seed, 5, 5); });
    f(inputs[0]);
    f(inputs[1]);
    for (const LaunchGroup& s : f.core().replay()->parallel_launches()) {
      beside += s.tasks.size();
      EXPECT_LT(s.longest_ns, s.ns / 2) << "the web is wider than two";
    }
    for (const Tensor& x : inputs) {
      std::vector<Floats> want;
      {
        Context order{{"JIT", 2}};
        for (const Tensor& t : f(x)) want.push_back(floats(t));
      }
      for (int threads : {1, 2, 3, 4}) {
        Context ctx{{"NUM_CPU_THREADS", threads}};
        for (int again = 0; again < 4; again++) {
          Tensors got = f(x);
          for (size_t i = 0; i < got.size(); i++)
            ASSERT_EQ(floats(got[i]), want[i]) << "seed " << seed << ", " << threads << " threads, result " << i;
        }
      }
    }
  }
  EXPECT_GE(beside, 8u * 10);
}

TEST(Jit, ParallelLaunchesWithStateThatIsWritten) {
  if (!env::JIT || Device::default_name() != "CPU") GTEST_SKIP() << "replays on the CPU";
  Context four{{"NUM_CPU_THREADS", 4}};
  Tensor::manual_seed(4);
  const Tensor start = Tensor::randn(4, 64, 64).realize(), w = Tensor::randn(64, 64).realize(),
               x = Tensor::randn(64, 64).realize();
  std::vector<Floats> want;
  for (int mode : {2, 1}) {  // in order, then in parallel
    Context ctx{{"JIT", mode}};
    Tensor state = start.clone().realize();
    auto step = jit([&](const Tensor& in) {
      Tensors sums;
      for (int64_t i = 0; i < 4; i++) {  // each slice by itself: they are parts of one memory
        Tensor part = state[i];
        part.assign((part.matmul(w) * 0.1 + in).tanh()).realize();
        sums.push_back((part.matmul(in) + part).realize());
      }
      return sums;
    });
    for (int i = 0; i < 8; i++) {
      std::stop_source stop;
      StopScope scope(stop.get_token());
      if (i >= 4) {
        std::stop_source now;
        StopScope inner(now.get_token());
        now.request_stop();
        EXPECT_THROW(step(x), Cancelled) << "and the state is as it was";
      }
      size_t k = 0;
      for (const Tensor& t : step(x)) {
        if (mode == 2) want.push_back(floats(t));
        else ASSERT_EQ(floats(t), want[static_cast<size_t>(i) * 4 + k++]) << "call " << i;
      }
    }
    EXPECT_FALSE(step.core().replay()->parallel_launches().empty());
  }
}

}  // namespace
}  // namespace tg
