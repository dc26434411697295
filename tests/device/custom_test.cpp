/// \file Users' kernels and gradients, traced functions, checkpoints: values and gradients on every device.
#include <gtest/gtest.h>

#include <functional>

#include "device/device_facts.h"
#include "tinygrad/base/env.h"
#include "tinygrad/tensor/grad/function.h"
#include "tinygrad/tensor/jit/jit.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
using Floats = std::vector<float>;

KernelInfo named(const char* name) {
  KernelInfo info;
  info.name = name;
  return info;
}
UOp add_kernel(const UOps& p) {
  UOp i = UOp::range(4, 0), s = p[0].index({i}).store(p[1].index({i}) + p[2].index({i}));
  UOp e[1] = {s.end(UOps{i})};
  return UOp::sink(e, named("my add"));
}
/// C[i, j] = sum over k of A[i, k] B[k, j], accumulated in memory.
UOp gemm_kernel(const UOps& p) {
  UOp c = p[0], a = p[1], b = p[2];
  UOp i = UOp::range(shape_of(c)[0], 0), j = UOp::range(shape_of(c)[1], 1),
      k = UOp::range(shape_of(a)[1], 2, AxisType::kReduce);
  UOp zero = c.after({c.index({i, j}).store(UOp::constant(0.0, c.dtype()))});
  UOp sum = zero.after({k}).index({i, j}).load() + a.index({i, k}).load() * b.index({k, j}).load();
  UOp done = zero.index({i, j}).store(sum).end(UOps{k});
  UOp e[1] = {done.end(UOps{i, j})};
  return UOp::sink(e, named("gemm"));
}

TEST(CustomKernel, Adds) {
  Tensor a({1.f, 2.f, 3.f, 4.f}), b({10.f, 20.f, 30.f, 40.f}), c = Tensor::empty(4);
  Tensor r = custom_kernel({c, a, b}, add_kernel)[0];
  EXPECT_EQ((r * 2).to_vector<float>(), (Floats{22, 44, 66, 88}));
  EXPECT_EQ(c.to_vector<float>(), (Floats{11, 22, 33, 44})) << "the tensor that was written sees it";
}

TEST(CustomKernel, InsideOfACapture) {
  auto f = jit([](const Tensor& a, const Tensor& b) { return custom_kernel({Tensor::empty(4), a, b}, add_kernel)[0]; });
  const Tensor b = Tensor({10.f, 20.f, 30.f, 40.f}).realize();
  for (int i = 0; i < 4; i++) {
    const float n = static_cast<float>(i);
    const Tensor a = Tensor({n, n, n, n}).realize();
    EXPECT_EQ(f(a, b).to_vector<float>(), (Floats{10 + n, 20 + n, 30 + n, 40 + n}));
  }
}

TEST(CustomKernel, RegistersAreNobodysMemory) {
  Tensor kept = Tensor({1.f, 2.f, 3.f, 4.f}).realize();
  const int64_t slot = base_of(kept.uop()).arg<ParamArg>().slot;
  {
    auto doubled = [&](const UOps& p) {
      UOp r =
          UOp::make(Ops::BUFFER, dtypes::float32, {Shape{1}.stack()}, ParamArg{slot, AddrSpace::kReg, "", "", 0, 0});
      UOp i = UOp::range(4, 0), zero = UOp::constant(int64_t{0});
      UOp x = p[1].index({i}).load(), filled = r.after({i}).index({zero}).store(x + x);
      UOp e[1] = {p[0].index({i}).store(r.after({filled}).index({zero}).load()).end(UOps{i})};
      return UOp::sink(e, named("doubled"));
    };
    Tensor r = custom_kernel({Tensor::empty(4), Tensor({5.f, 6.f, 7.f, 8.f})}, doubled)[0];
    EXPECT_EQ(r.to_vector<float>(), (Floats{10, 12, 14, 16}));
  }
  EXPECT_EQ(kept.to_vector<float>(), (Floats{1, 2, 3, 4})) << "the kernel is gone, and its register with it";
  EXPECT_EQ((kept * 2).to_vector<float>(), (Floats{2, 4, 6, 8}));
}

TEST(CustomKernel, InputsMayBeExpressionsAndViews) {
  Tensor a = Tensor({{1.f, 2.f}, {3.f, 4.f}}).T().reshape(4) + 1, b = Tensor({1.f, 2.f, 3.f, 4.f}).flip(0);
  EXPECT_EQ(custom_kernel({Tensor::empty(4), a, b}, add_kernel)[0].to_vector<float>(), (Floats{6, 7, 5, 6}));
}

TEST(CustomKernel, WritesTwoBuffers) {
  auto kernel = [](const UOps& p) {
    UOp i = UOp::range(3, 0), a = p[2].index({i}), s = p[0].index({i}).store(a.load() + a.load()),
        m = p[1].index({i}).store(a.load() * a.load());
    UOp e[1] = {UOp::make(Ops::GROUP, dtypes::void_, {s, m}).end(UOps{i})};
    return UOp::sink(e, named("both"));
  };
  Tensors r = custom_kernel({Tensor::empty(3), Tensor::empty(3), Tensor({1.f, 2.f, 3.f})}, kernel);
  realize(r[0], r[1]);
  EXPECT_EQ(r[0].to_vector<float>(), (Floats{2, 4, 6}));
  EXPECT_EQ(r[1].to_vector<float>(), (Floats{1, 4, 9}));
}

TEST(CustomKernel, GivenAsC) {
  auto c = [](const UOps& p) {
    UOp params[2] = {p[0], p[1]};
    const std::string text =
        "void twice(float* restrict out, const float* restrict in) { for (int i = 0; i < 4; i++) out[i] = 2 * in[i]; }";
    return UOp::make(Ops::PROGRAM, dtypes::void_,
                     {UOp::sink(params, named("twice")), UOp::make(Ops::SOURCE, dtypes::void_, {}, text)});
  };
  Tensor a = Tensor({1.f, 2.f, 3.f, 4.f}) + 1, out = Tensor::empty(4);
  if (!takes_kernels_in_c()) {
    EXPECT_THROW(custom_kernel({out, a}, c)[0].realize(), DeviceError);
    return;
  }
  EXPECT_EQ((custom_kernel({out, a}, c)[0] + 1).to_vector<float>(), (Floats{5, 7, 9, 11}));
  EXPECT_EQ(out.to_vector<float>(), (Floats{4, 6, 8, 10}));
  auto broken = [&](const UOps& p) {
    UOp params[1] = {p[0]};
    return UOp::make(Ops::PROGRAM, dtypes::void_,
                     {UOp::sink(params, named("f")), UOp::make(Ops::SOURCE, dtypes::void_, {}, std::string("no C"))});
  };
  EXPECT_THROW(custom_kernel({Tensor::empty(4)}, broken)[0].realize(), CompileError);
  auto nameless = [&](const UOps& p) {
    UOp params[1] = {p[0]};
    return UOp::make(Ops::PROGRAM, dtypes::void_,
                     {UOp::sink(params, KernelInfo{}),
                      UOp::make(Ops::SOURCE, dtypes::void_, {}, std::string("void f(float* a) {}"))});
  };
  EXPECT_THROW(custom_kernel({Tensor::empty(4)}, nameless), ValueError);
}

TEST(CustomKernel, UnusedOutputIsWrittenToo) {
  auto kernel = [](const UOps& p) {
    UOp i = UOp::range(2, 0), x = p[0].index({i}).store(UOp::constant(1.0, dtypes::float32)),
        y = p[1].index({i}).store(UOp::constant(2.0, dtypes::float32));
    UOp e[1] = {UOp::make(Ops::GROUP, dtypes::void_, {x, y}).end(UOps{i})};
    return UOp::sink(e, named("fill"));
  };
  Tensor a = Tensor::zeros(2).contiguous().realize(), b = Tensor::zeros(2).contiguous().realize(), before = b + 5;
  Tensor r = custom_kernel({a, b}, kernel)[0];
  EXPECT_EQ(r.to_vector<float>(), (Floats{1, 1}));
  EXPECT_EQ(b.to_vector<float>(), (Floats{2, 2}));
  EXPECT_EQ(before.to_vector<float>(), (Floats{5, 5})) << "an expression made before the kernel reads the old contents";
}

TEST(CustomKernel, OrderedByHand) {
  Tensor a = Tensor::arange(12).reshape(3, 4).to_float(), b = Tensor::arange(20).reshape(4, 5).to_float();
  Tensor r = custom_kernel({Tensor::empty(3, 5), a, b}, gemm_kernel)[0];
  EXPECT_EQ(r.to_vector<float>(), a.matmul(b).to_vector<float>());
}

TEST(CustomKernel, Registers) {
  auto kernel = [](const UOps& p) {
    UOp g = UOp::range(3, 0), r = UOp::range(4, 1, AxisType::kReduce);
    UOp acc = UOp::make(Ops::BUFFER, dtypes::float32, {Shape{1}.stack()}, ParamArg{0, AddrSpace::kReg, "", "", 0, 0}),
        at = UOp::constant(int64_t{0});
    UOp first = acc.after({acc.after({g}).index({at}).store(UOp::constant(0.0, dtypes::float32))});
    UOp add = first.index({at}).store(first.after({r}).index({at}).load() + p[1].index({g, r}).load()).end(UOps{r});
    UOp e[1] = {p[0].index({g}).store(first.after({add}).index({at}).load()).end(UOps{g})};
    return UOp::sink(e, named("rows"));
  };
  Tensor a = Tensor::arange(12).reshape(3, 4).to_float();
  EXPECT_EQ(custom_kernel({Tensor::empty(3), a}, kernel)[0].to_vector<float>(), a.sum(1).to_vector<float>());
}

TEST(CustomKernel, Reduce) {
  auto kernel = [](const UOps& p) {
    UOp g = UOp::range(3, 0), r = UOp::range(4, 1, AxisType::kReduce);
    UOp e[1] = {p[0].index({g}).store(p[1].index({g, r}).load().reduce(Ops::ADD, UOps{r})).end(UOps{g})};
    return UOp::sink(e, named("rows"));
  };
  Tensor a = Tensor::arange(12).reshape(3, 4).to_float();
  EXPECT_EQ(custom_kernel({Tensor::empty(3), a}, kernel)[0].to_vector<float>(), a.sum(1).to_vector<float>());
}

TEST(CustomKernel, SameBufferTwice) {
  auto kernel = [](const UOps& p) {
    UOp i = UOp::range(4, 0);
    UOp e[1] = {p[0].index({i}).store(p[1].index({UOp::constant(int64_t{3}) - i}).load()).end(UOps{i})};
    return UOp::sink(e, named("reverse"));
  };
  Tensor x = Tensor::arange(4).clone().realize();
  EXPECT_EQ(custom_kernel({x, x}, kernel)[0].to_vector<int>(), (std::vector<int>{3, 2, 1, 0}));
}

TEST(CustomKernel, OwnGradient) {
  NodeGradient gradient = [](const UOps& g, UOp call) {
    Tensor up = Tensor::from_uop(g[0]), a = Tensor::from_uop(call.src(2)), b = Tensor::from_uop(call.src(3));
    return UOps{UOp(), up.matmul(b.T()).uop(), a.T().matmul(up).uop()};
  };
  Tensor a = Tensor::arange(6).reshape(2, 3).to_float().contiguous().realize(),
         b = Tensor::arange(12).reshape(3, 4).to_float().contiguous().realize();
  auto grads = [&](const Tensor& y) { return (y * Tensor::arange(8).reshape(2, 4)).sum().gradient({a, b}); };
  Tensors got = grads(custom_kernel({Tensor::empty(2, 4), a, b}, gemm_kernel, gradient)[0]), want = grads(a.matmul(b));
  for (int i = 0; i < 2; i++) EXPECT_EQ(got[i].to_vector<float>(), want[i].to_vector<float>());
  EXPECT_THROW(custom_kernel({Tensor::empty(2, 4), a, b}, gemm_kernel)[0].sum().gradient({a}), GradientError);
}

TEST(CustomKernel, Errors) {
  Tensor a = Tensor::empty(4);
  auto run = [&](auto f) { return custom_kernel({a, a}, f); };
  EXPECT_THROW(run([](const UOps& p) { return p[0]; }), ValueError) << "no SINK";
  EXPECT_THROW(run([](const UOps& p) {
                 UOp e[1] = {p[0].index({UOp::range(4, 0)}).store(p[1].index({UOp::range(4, 0)}).load())};
                 return UOp::sink(e, named("open"));
               }),
               ValueError)
      << "a loop without END";
  EXPECT_THROW(run([](const UOps& p) {
                 UOp i = UOp::range(4, 0), e[1] = {p[0].index({i}).store(p[1]).end(UOps{i})};
                 return UOp::sink(e, named("whole"));
               }),
               ValueError)
      << "a parameter that is not indexed";
  EXPECT_THROW(custom_kernel({}, add_kernel), ValueError);
}

/// out[i] = x[i] in a loop of n rounds, at whatever index `at` makes of the loop.
template <class F> Tensor copied(const Tensor& out, const Tensor& x, int64_t n, F at) {
  return custom_kernel({out, x}, [&](const UOps& p) {
    UOp i = UOp::range(n, 0), e[1] = {p[0].index({at(i)}).store(p[1].index({at(i)})).end(UOps{i})};
    return UOp::sink(e, named("copy"));
  })[0];
}
std::string index_error(const std::function<void()>& f) {
  try {
    f();
  } catch (const IndexError& e) { return e.what(); }
  return "no IndexError";
}
Tensor four() { return Tensor({1.f, 2.f, 3.f, 4.f}).realize(); }

TEST(CustomKernelBounds, LoopsLongerThanTheBuffer) {
  const auto plain = [](UOp i) { return i; };
  EXPECT_EQ(index_error([&] { copied(Tensor::empty(4), four(), 8, plain); }),
            "[custom_kernel] copy: got index 0 to 7 for axis 0 of parameter 0, shape (4,), expected 0 to 3: shorten "
            "the loop or guard the index "
            "with valid(condition)");
  EXPECT_EQ(copied(Tensor::empty(4), four(), 4, plain).to_vector<float>(), (Floats{1, 2, 3, 4}));
  const auto before = [](UOp i) { return i - 1; };
  EXPECT_NE(index_error([&] { copied(Tensor::empty(4), four(), 4, before); }).find("got index -1 to 2 for axis 0"),
            std::string::npos);
  const auto far = [](UOp i) { return i * (int64_t{1} << 40); };  // too many points to walk: the corners show it
  EXPECT_NE(index_error([&] { copied(Tensor::empty(4), four(), 1 << 20, far); }).find("for axis 0"), std::string::npos);
}

TEST(CustomKernelBounds, LeavingAnAxisIsLeavingEvenInsideOfTheMemory) {
  const Tensor x = Tensor::arange(6).reshape(2, 3).to_float();
  auto kernel = [](const UOps& p) {
    UOp i = UOp::range(2, 0),
        e[1] = {p[0].index({UOp::constant(int64_t{0}), i * 3}).store(p[1].index({i, i})).end(UOps{i})};
    return UOp::sink(e, named("diagonal"));
  };
  EXPECT_NE(index_error([&] {
              custom_kernel({Tensor::empty(2, 3), x}, kernel);
            }).find("diagonal: got index 0 to 3 for axis 1 of parameter 0"),
            std::string::npos);
}

TEST(CustomKernelBounds, GuardedIndicesCountWhereTheyAreValid) {
  // A shift to the right: the first element has no left neighbour, and gets 0.
  auto kernel = [](const UOps& p) {
    UOp i = UOp::range(4, 0), from = (i - 1).valid(i.ge(UOp::constant(int64_t{1})));
    UOp e[1] = {p[0].index({i}).store(p[1].index({from})).end(UOps{i})};
    return UOp::sink(e, named("shift"));
  };
  EXPECT_EQ(custom_kernel({Tensor::empty(4), four()}, kernel)[0].to_vector<float>(), (Floats{0, 1, 2, 3}));
  // A loop of 8 over 4 elements.
  const auto first = [](UOp i) { return i.valid(i < 4); };
  EXPECT_EQ(copied(Tensor::empty(4), four(), 8, first).to_vector<float>(), (Floats{1, 2, 3, 4}));
  // Arithmetic that bounds alone do not follow: 6 - 2 * (i // 2) - i % 2 in 0 to 7 is 6 5 4 3 2 1 0 -1.
  const auto zigzag = [](UOp i) { return UOp::constant(int64_t{6}) - i; };
  EXPECT_NE(
      index_error([&] { copied(Tensor::empty(7), Tensor::arange(7).to_float(), 8, zigzag); }).find("got index -1 to 6"),
      std::string::npos);
  EXPECT_EQ(copied(Tensor::empty(7), Tensor::arange(7).to_float(), 7, zigzag).to_vector<float>(),
            (Floats{0, 1, 2, 3, 4, 5, 6}));
}

TEST(CustomKernelBounds, IndicesFromMemoryReachNoOtherMemory) {
  auto gather = [](const UOps& p) {
    UOp i = UOp::range(4, 0), e[1] = {p[0].index({i}).store(p[1].index({p[2].index({i})})).end(UOps{i})};
    return UOp::sink(e, named("gather"));
  };
  auto scatter = [](const UOps& p) {
    UOp i = UOp::range(4, 0), e[1] = {p[0].index({p[2].index({i})}).store(p[1].index({i})).end(UOps{i})};
    return UOp::sink(e, named("scatter"));
  };
  const Tensor good({3, 0, 2, 1}), bad({3, -1, 4, 1000000000});
  EXPECT_EQ(custom_kernel({Tensor::empty(4), four(), good}, gather)[0].to_vector<float>(), (Floats{4, 1, 3, 2}));
  EXPECT_EQ(custom_kernel({Tensor::empty(4), four(), bad}, gather)[0].to_vector<float>(), (Floats{4, 0, 0, 0}));
  const auto zeros = [] { return Tensor::zeros(4).contiguous().realize(); };
  EXPECT_EQ(custom_kernel({zeros(), four(), good}, scatter)[0].to_vector<float>(), (Floats{2, 4, 3, 1}));
  EXPECT_EQ(custom_kernel({zeros(), four(), bad}, scatter)[0].to_vector<float>(), (Floats{0, 0, 0, 1}));
}

TEST(CustomKernelBounds, Registers) {
  auto kernel = [](const UOps& p) {
    UOp i = UOp::range(4, 0);
    UOp r = UOp::make(Ops::BUFFER, dtypes::float32, {Shape{2}.stack()}, ParamArg{0, AddrSpace::kReg, "", "", 0, 0});
    UOp filled = r.after({i}).index({i}).store(p[1].index({i}).load());
    UOp e[1] = {p[0].index({i}).store(r.after({filled}).index({i}).load()).end(UOps{i})};
    return UOp::sink(e, named("spill"));
  };
  EXPECT_NE(index_error([&] { custom_kernel({Tensor::empty(4), four()}, kernel); }).find("of register 0, shape (2,)"),
            std::string::npos);
}

TEST(CustomKernel, FunctionsThatReturnNothing) {
  EXPECT_THROW(custom_kernel({four()}, [](const UOps&) { return UOp(); }), ValueError);
  EXPECT_THROW(custom_kernel({four()}, KernelFunction()), ValueError);
  EXPECT_THROW(checkpoint({}, {four()}), ValueError);
  EXPECT_THROW(call_function({}, {four()}), ValueError);
}

TEST(CustomGradient, OneArgument) {
  auto straight =
      custom_gradient([](const Tensor& x) { return x.round(); }, [](const Tensor& g, const Tensor&) { return g; });
  Tensor x({0.4f, 1.6f, -2.5f});
  Tensor y = straight(x);
  Tensor g = (y * Tensor({1.f, 2.f, 3.f})).sum().gradient({x})[0];
  EXPECT_EQ(y.to_vector<float>(), (Floats{0, 2, -2}));
  EXPECT_EQ(g.to_vector<float>(), (Floats{1, 2, 3}));
}

TEST(CustomGradient, SeveralArgumentsInALargerGraph) {
  auto mul = custom_gradient(
      [](const Tensor& x, const Tensor& y) { return x * y; },
      [](const Tensor& g, const Tensor& x, const Tensor& y) { return Tensors{g * y * 10, g * x * 100}; });
  Tensor a({1.f, 2.f}), b({3.f, 4.f});
  Tensor loss = (mul(a * 2, b) + a).sum();
  Tensors g = loss.gradient({a, b});
  EXPECT_EQ(loss.item<float>(), 2 * 3 + 4 * 4 + 3);
  EXPECT_EQ(g[0].to_vector<float>(), (Floats{61, 81}));
  EXPECT_EQ(g[1].to_vector<float>(), (Floats{200, 400}));
}

TEST(CustomGradient, GetsArgumentsThatLieOnNoDevice) {
  auto mul = custom_gradient(
      [](const Tensor& x, const Tensor& y) { return x * y; },
      [](const Tensor& g, const Tensor& x, const Tensor& y) { return Tensors{g * y.cast(x.dtype()), g * x}; });
  Tensor a({1.f, 2.f, 3.f});
  EXPECT_EQ(mul(a, Tensor::full({3}, 4.f)).sum().gradient({a})[0].to_vector<float>(), (Floats{4, 4, 4}));
  EXPECT_EQ(mul(a, Tensor::arange(3)).sum().gradient({a})[0].to_vector<float>(), (Floats{0, 1, 2}));
}

TEST(CustomGradient, Backward) {
  auto f = custom_gradient([](const Tensor& x) { return x * 3; }, [](const Tensor& g, const Tensor&) { return g * 7; });
  Tensor w = Tensor({1.f, 2.f}).contiguous().realize().requires_grad_();
  f(f(w)).sum().backward();
  EXPECT_EQ(w.grad().to_vector<float>(), (Floats{49, 49}));
}

TEST(Function, ValuesAndGradients) {
  Tensor w({{1.f, 2.f}, {3.f, 4.f}}), x({{1.f, 0.f}, {2.f, 1.f}});
  auto f = [&](const Tensors& in) { return Tensors{in[0].matmul(w).relu(), in[0] + 1}; };
  for (bool precompile : {false, true}) {
    Tensors r = call_function(f, {x}, {.precompile = precompile}), want = f({x});
    EXPECT_EQ(r[0].to_vector<float>(), want[0].to_vector<float>());
    EXPECT_EQ(r[1].to_vector<float>(), want[1].to_vector<float>());
    Tensors g = (call_function(f, {x}, {.precompile = precompile})[0] * 2).sum().gradient({x, w}),
            gw = (f({x})[0] * 2).sum().gradient({x, w});
    EXPECT_EQ(g[0].to_vector<float>(), gw[0].to_vector<float>());
    EXPECT_EQ(g[1].to_vector<float>(), gw[1].to_vector<float>());
  }
}

TEST(Function, BodiesOfEqualStructureAreOneNode) {
  auto f = [](const Tensors& in) { return Tensors{in[0] * in[1] + 1}; };
  Tensor a = Tensor::empty(3), b = Tensor::empty(3), c = Tensor::empty(3);
  Tensor x = call_function(f, {a, b})[0], y = call_function(f, {c, a})[0];
  EXPECT_EQ(x.uop().src(0).src(0), y.uop().src(0).src(0));
  EXPECT_NE(x.uop().src(0), y.uop().src(0));
}

TEST(Function, NestsAndAssigns) {
  auto inner = [](const Tensors& in) { return Tensors{in[0] * 2 + in[1]}; };
  auto outer = [&](const Tensors& in) {
    return Tensors{call_function(inner, {in[0] + 1, in[0]})[0] * call_function(inner, {in[0], in[0]})[0]};
  };
  Tensor a = Tensor({1.f, 2.f}).contiguous().realize();
  EXPECT_EQ(call_function(outer, {a})[0].to_vector<float>(), (Floats{15, 48}));
  auto bump = [](const Tensors& in) {
    in[0].assign(in[0] + 1);
    return Tensors{in[0] * 10};
  };
  EXPECT_EQ(call_function(bump, {a})[0].to_vector<float>(), (Floats{20, 30}));
  EXPECT_EQ(a.to_vector<float>(), (Floats{2, 3}));
}

TEST(Function, ReturnsItsArgument) {
  Tensor a = Tensor({1.f, 2.f}).contiguous().realize();
  EXPECT_EQ(call_function([](const Tensors& in) { return in; }, {a})[0].to_vector<float>(), (Floats{1, 2}));
}

TEST(Function, UnusedArgumentsHaveZeroGradients) {
  Tensor a({1.f, 2.f}), b({3.f, 4.f});
  call_function([](const Tensors& in) { return Tensors{in[0] * 2}; }, {a, b})[0].sum().backward();
  EXPECT_EQ(a.grad().to_vector<float>(), (Floats{2, 2}));
  EXPECT_EQ(b.grad().to_vector<float>(), (Floats{0, 0}));
}

TEST(Function, ScratchOfTheBodyIsNotImplicit) {
  Tensor a({1.f, 2.f, 3.f, 4.f});
  auto f = [](const Tensors& in) { return Tensors{custom_kernel({Tensor::empty(4), in[0], in[0]}, add_kernel)[0]}; };
  EXPECT_EQ(call_function(f, {a}, {.name = "twice", .allow_implicit = false})[0].to_vector<float>(),
            (Floats{2, 4, 6, 8}));
}

TEST(Function, ImplicitTensorsCanBeForbidden) {
  Tensor w = Tensor({1.f, 2.f}).contiguous().realize(), x({3.f, 4.f});
  auto f = [&](const Tensors& in) { return Tensors{in[0] * w}; };
  EXPECT_THROW(call_function(f, {x}, {.allow_implicit = false}), ValueError);
  EXPECT_EQ(call_function(f, {x})[0].to_vector<float>(), (Floats{3, 8}));
}

TEST(Function, BodyOverParameters) {
  if (env::EAGER) GTEST_SKIP() << "an expression of parameters has no value";
  Tensor a({1.f, 2.f}), b({3.f, 4.f}), r = Tensor::call({a, b}, a.as_param(0) * b.as_param(1) + 1);
  EXPECT_EQ(r.sum().gradient({a})[0].to_vector<float>(), (Floats{3, 4}));
  EXPECT_EQ(r.to_vector<float>(), (Floats{4, 9}));
  EXPECT_THROW(Tensor::call({a, Tensor::empty(3)}, a.as_param(0) * b.as_param(1)), ShapeError);
}

TEST(Checkpoint, SameGradients) {
  Tensor::manual_seed(7);
  Tensor x = Tensor::randn(4, 8).realize(), w1 = (Tensor::randn(8, 16) * 0.3).realize(),
         w2 = (Tensor::randn(16, 8) * 0.3).realize();
  auto block = [&](const Tensors& in) { return Tensors{in[0] + in[0].matmul(w1).gelu().matmul(w2).tanh()}; };
  auto net = [&](bool again) {
    Tensors h{x};
    for (int i = 0; i < 3; i++) h = again ? checkpoint(block, h) : block(h);
    return h[0].square().mean();
  };
  Tensor a = net(false), b = net(true);
  Tensors ga = a.gradient({x, w1, w2}), gb = b.gradient({x, w1, w2});
  realize(Tensors{b, gb[0], gb[1], gb[2]});
  EXPECT_NEAR(a.item<float>(), b.item<float>(), 1e-5);
  for (int i = 0; i < 3; i++) {
    Floats p = ga[i].to_vector<float>(), q = gb[i].to_vector<float>();
    for (size_t k = 0; k < p.size(); k++) EXPECT_NEAR(p[k], q[k], 1e-4f * (1 + std::abs(p[k])));
  }
}

}  // namespace
}  // namespace tg
