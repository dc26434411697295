/// \file Indexing and writing to elements, on the device under test: against NumPy, and what views, readers and
/// gradients see of a write.
#include <gtest/gtest.h>

#include <functional>

#include "device_facts.h"
#include "tinygrad/base/context.h"
#include "tinygrad/schedule/schedule.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {

using V = std::vector<int>;
using F = std::vector<float>;
using Item = std::function<TensorItem(const Tensor&)>;
V ints(const Tensor& t) { return t.to_vector<int>(); }
F floats(const Tensor& t) { return t.to_vector<float>(); }
Tensor counted(const Shape& s) { return Tensor::arange(s.numel()).reshape(s); }
Tensor stored(const Shape& s) { return counted(s).clone().realize(); }

void read(const Shape& shape, const Shape& want, const V& values, const std::function<Tensor(const Tensor&)>& f) {
  for (const Tensor& x : {counted(shape), stored(shape)}) {
    Tensor r = f(x);
    ASSERT_EQ(r.shape(), want) << shape << " " << testing::PrintToString(values);
    EXPECT_EQ(ints(r), values) << shape << " " << want;
  }
}
void write(const Shape& shape, const Shape& part, const V& number, const V& each, const Item& at) {
  Tensor numbers = stored(shape), view = numbers.reshape(-1);
  at(numbers) = -7;
  EXPECT_EQ(ints(view), number) << "a number into storage of shape " << shape;
  Tensor value = -1 - counted(part), expression = counted(shape) + 0, made = stored(shape);
  try {
    at(expression) = value;
  } catch (const ShapeError&) {
    if (Device::get().executes()) throw;
    return;  // a mask that reads as zeros names no elements
  }
  EXPECT_EQ(ints(expression), each) << "an expression of shape " << shape;
  at(made) = value;
  EXPECT_EQ(ints(made), each) << "a tensor into storage of shape " << shape;
}

TEST(Index, ReadsAsNumPy) {
#define TG_READS
#include "device/index_reference.inc"
#undef TG_READS
}
TEST(Index, WritesAsNumPy) {
#include "device/index_reference.inc"
}

TEST(Index, WhatIsWholeIsTheTensorItself) {
  Tensor x = stored({2, 3});
  EXPECT_TRUE(x(Ellipsis).is_same(x));
  EXPECT_TRUE(x(Slice()).is_same(x));
  EXPECT_TRUE(x.index({}).is_same(x));
  EXPECT_FALSE(x(Slice(None, None, -1)).is_same(x));
}

TEST(Index, ListsVectorsAndSmallTypes) {
  Tensor x = stored({3, 2});
  EXPECT_EQ(ints(x.index({{2, -3}})), (V{4, 5, 0, 1}));
  EXPECT_EQ(ints(x(std::vector<int64_t>{1, 1}, 0)), (V{2, 2}));
  EXPECT_EQ(ints(x.index({Slice(), {1}})), (V{1, 3, 5}));
  EXPECT_EQ(ints(x(Tensor({-1, 0}).cast(dtypes::int8))), (V{4, 5, 0, 1}));
  EXPECT_EQ(ints(x(Tensor({2, 0}).cast(dtypes::uint8))), (V{4, 5, 0, 1}));
  EXPECT_EQ(ints(x(std::vector<bool>{true, false, true})), (V{0, 1, 4, 5}));
  EXPECT_EQ(x(std::vector<int64_t>{}).shape(), (Shape{0, 2}));
}

/// Returns integers whose values the host does not know: those of lists are checked at once.
Tensor computed(const Tensor& t) { return t.to_float().cast(dtypes::int32); }

TEST(Index, BeyondTheSizeIsZero) {
  Tensor x = stored({3, 2}) + 10;
  EXPECT_EQ(ints(x(computed(Tensor({3, -4, 2})))), (V{0, 0, 0, 0, 14, 15}));
  x.at(computed(Tensor({3, -4, 2}))) = -1;
  EXPECT_EQ(ints(x), (V{10, 11, 12, 13, -1, -1})) << "and is not written";
}

TEST(Index, Variables) {
  Tensor x = stored({6, 2});
  Variable v("i", 0, 5);
  for (int i : {0, 3}) {
    BoundVariable b = v.bind(i);
    EXPECT_EQ(ints(x(b)), (V{2 * i, 2 * i + 1}));
    EXPECT_EQ(ints(x(Slice(b, b + 1), 1)), (V{2 * i + 1}));
    EXPECT_EQ(ints(x(b, Tensor({1, 0}))), (V{2 * i + 1, 2 * i}));
    EXPECT_EQ(x(Slice(None, b)).sum().item<int>(), i * (2 * i - 1));
  }
  Tensor cache = Tensor::zeros({4, 2}, {.dtype = dtypes::int32}).contiguous().realize();
  for (int i = 0; i < 3; i++) {
    cache.at(v.bind(i)) = i + 1;
    cache.realize();
  }
  EXPECT_EQ(ints(cache), (V{1, 1, 2, 2, 3, 3, 0, 0}));
}

TEST(Index, SymbolicSizesAreReadWithTheirValues) {
  Tensor x = stored({5, 3});
  BoundVariable n = Variable("n", 1, 5).bind(2), m = Variable("m", 1, 5).bind(1);
  Tensor part = x(Slice(None, n));
  EXPECT_EQ(ints(part), (V{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(ints((part + 1).realize()), (V{1, 2, 3, 4, 5, 6})) << "storage has room for the greatest size";
  EXPECT_EQ(ints(part(-1)), (V{3, 4, 5}));
  EXPECT_EQ(ints(part(Slice(-1, None), 0)), (V{3}));
  Tensor joined = part.cat(x(Slice(None, m)));
  EXPECT_EQ(ints(joined), (V{0, 1, 2, 3, 4, 5, 0, 1, 2}));
  EXPECT_FLOAT_EQ(part.mean().item<float>(), 2.5f);
  EXPECT_NEAR(part.to_float().var().item<float>(), 3.5, 1e-6);
  EXPECT_EQ(ints(part.pad(std::vector<std::pair<SInt, SInt>>{{0, m}, {0, 0}})), (V{0, 1, 2, 3, 4, 5, 0, 0, 0}));
}

TEST(Index, ConvolutionOfASymbolicAxis) {
  Tensor x = Tensor::arange(20).to_float().reshape(1, 2, 10).realize(),
         w = Tensor::arange(12).to_float().reshape(2, 2, 3).realize();
  for (int n : {4, 7}) {
    Tensor part = x(Slice(), Slice(), Slice(None, Variable("n", 3, 10).bind(n))),
           whole = x(Slice(), Slice(), Slice(None, n));
    ConvOptions o{.stride = 2, .padding = 1};
    EXPECT_EQ(floats(part.conv2d(w, {}, o)), floats(whole.conv2d(w, {}, o)));
  }
}

TEST(Write, UpdatesAndLists) {
  Tensor x = Tensor({1.f, 2.f, 3.f, 4.f}).realize();
  x.at(Slice(1, 3)) += 10;
  x.at(0) -= 1;
  x.at(-1) *= Tensor(2.0);
  x.at(Slice(None, None, 2)) /= 2;
  EXPECT_EQ(floats(x), (F{0, 12, 6.5, 8}));
  x.at(Slice(1, 4)) = {1.f, 2.f, 3.f};
  EXPECT_EQ(floats(x), (F{0, 1, 2, 3}));
  x.at(Slice(0, 2)) = x.at(Slice(2, 4));
  EXPECT_EQ(floats(x), (F{2, 3, 2, 3}));
  Tensor n = stored({4});
  n.at(Slice(2, None)) ^= 5;
  n.at(1) <<= 4;
  n.at(0) |= 3;
  n.at(Tensor({0, 0})) += 1;
  EXPECT_EQ(ints(n), (V{4, 16, 7, 6})) << "an element named twice is updated once";
  EXPECT_EQ(ints(n.at(1)), (V{16}));
}

TEST(Write, TheLastValueOfARepeatedElementStays) {
  for (bool storage : {true, false}) {
    Tensor t = storage ? Tensor({1, 2, 3, 4}).realize() : Tensor({1, 2, 3, 4}) + 0;
    t.setitem({{1, 1}}, Tensor({5, 6}));
    EXPECT_EQ(ints(t), (V{1, 6, 3, 4}));
    t.setitem({{1, 1}}, Tensor({1, 0}));
    EXPECT_EQ(ints(t), (V{1, 0, 3, 4}));
  }
  Tensor c({{1}, {2}, {3}});
  c.setitem({{0, 0}}, Tensor({{1}, {2}}));
  EXPECT_EQ(ints(c), (V{2, 2, 3}));
}

TEST(Write, Masks) {
  Tensor x = stored({2, 3}), m = x % 2 == 1;
  x.at(m) = -1;
  EXPECT_EQ(ints(x), (V{0, -1, 2, -1, 4, -1}));
  TG_NEEDS_VALUES();  // how many elements the mask names
  x.at(m) = Tensor({7, 8, 9});
  EXPECT_EQ(ints(x), (V{0, 7, 2, 8, 4, 9}));
  x.at(Tensor({true, false}), Slice(1, None)) += 100;
  EXPECT_EQ(ints(x), (V{0, 107, 102, 8, 4, 9}));
  Tensor y = Tensor::zeros({2, 3}, {.dtype = dtypes::int32});
  y.at(m) = 1;
  EXPECT_EQ(ints(y), (V{0, 1, 0, 1, 0, 1}));
}

TEST(Write, ThroughViews) {
  Tensor t = Tensor::zeros(2, 3).contiguous().realize();
  t.T().at(1, 0) = 5;
  t.flip(1).at(0, 0) = 6;
  t(1).at(2) = 7;
  t.detach().at(1, 0) = 8;
  t.reshape(6).at(Tensor({0, 4})) = 9;
  EXPECT_EQ(floats(t), (F{9, 5, 6, 8, 9, 7}));
  Tensor s = stored({6});
  s(Slice(None, None, 2)).assign(Tensor({10, 20, 30}));
  EXPECT_EQ(ints(s), (V{10, 1, 20, 3, 30, 5}));
}

TEST(Write, OverlappingSource) {
  Tensor t = Tensor({{3.f}, {2.f}, {1.f}}).realize();
  t.at(Slice(1, None)) = t(Slice(None, -1));
  EXPECT_EQ(floats(t), (F{3, 3, 2}));
  t.at(Slice(None, -1)) = t(Slice(1, None));
  EXPECT_EQ(floats(t), (F{3, 2, 2}));
}

TEST(Write, OnlyTheElementsOfAView) {
  Context lazy{{"EAGER", 0}};
  Tensor t = Tensor::zeros({100}, {.dtype = dtypes::int32}).contiguous().realize();
  t.at(Slice(20, 50)) = 3;
  EXPECT_EQ(t.schedule().schedule->calls.size(), 1u);
  EXPECT_EQ(t.sum().item<int>(), 90);
  EXPECT_EQ(t.schedule().schedule->calls.size(), 0u) << "written by what read it";
  Tensor constant = Tensor::full({4}, 1), other = Tensor::full({4}, 1);
  constant.at(1) = 5;
  EXPECT_EQ(ints(constant), (V{1, 5, 1, 1}));
  EXPECT_EQ(ints(other), (V{1, 1, 1, 1})) << "equal constants are different tensors";
}

TEST(Write, PendingReadersKeepTheOldElements) {
  Context lazy{{"EAGER", 0}};
  Tensor t = Tensor::zeros(6).contiguous().realize();
  Tensor s0 = t.sum();
  t.at(Slice(None, 3)) = 1;
  Tensor s1 = t.sum();
  t.at(Slice(3, None)) = 2;
  Tensor s2 = t.sum();
  EXPECT_TRUE(t.has_other_uses());
  EXPECT_EQ(s2.item<float>(), 9);
  EXPECT_EQ(s1.item<float>(), 3);
  EXPECT_EQ(s0.item<float>(), 0);
  EXPECT_FALSE(t.has_other_uses());
  Tensor view = t(Slice(0, 2)), twice = t * 2;
  EXPECT_TRUE(t.has_other_uses());
  EXPECT_FALSE(t.has_other_uses({twice + 1})) << "what the value is made of does not count";
}

TEST(Write, ViewsOfAPendingTensorSeeTheWrite) {
  Tensor x = Tensor::arange(4).to_float().contiguous().realize(), t = x * 2, view = t(Slice(1, 3)), sum = t.sum();
  t.at(Slice(0, 2)) = 9;
  EXPECT_EQ(floats(t), (F{9, 9, 4, 6}));
  EXPECT_EQ(floats(view), (F{9, 4}));
  EXPECT_EQ(sum.item<float>(), 12) << "computed from the old elements";
}

TEST(Write, RowsThroughATemporaryView) {
  Tensor t = Tensor::arange(6).to_float().reshape(3, 2).clone().realize();
  Tensor first = t(0);
  t.at(0) = t(1);
  t.at(2) = first;
  EXPECT_EQ(floats(t), (F{2, 3, 2, 3, 2, 3})) << "a view shows what was written";
}

TEST(Write, Gradients) {
  Context lazy{{"EAGER", 0}};  // writes into what has been computed leave its history
  Tensor x({1.f, 2.f, 3.f, 4.f}), z = x * 2, v({10.f, 20.f});
  z.at(Slice(None, 2)) = v * v;
  z.sum().backward();
  EXPECT_EQ(floats(x.grad()), (F{0, 0, 2, 2}));
  EXPECT_EQ(floats(v.grad()), (F{20, 40}));
  Tensor base = Tensor::zeros(6), a = Tensor::ones(4).contiguous(), b = Tensor::ones(4) * 2;
  base.at(Slice(None, 4)) = a;
  base.at(Slice(2, None)) = b;
  base.sum().backward();
  EXPECT_EQ(floats(a.grad()), (F{1, 1, 0, 0}));
  EXPECT_EQ(floats(b.grad()), (F{1, 1, 1, 1}));
  Tensor w({1.f, 2.f, 3.f, 4.f}), d({10.f, 20.f});
  w.at(Slice(None, 2)) += d;
  (w * w).sum().backward();
  EXPECT_EQ(floats(d.grad()), (F{22, 44}));
  Tensor g = Tensor::zeros(2, 3), h({1.f, 2.f, 3.f, 4.f});
  g.setitem({Slice(), {2, 0}}, h.reshape(2, 2));
  (g * counted({2, 3})).sum().backward();
  EXPECT_EQ(floats(h.grad()), (F{2, 0, 5, 3}));
  Tensor k({{1.f, 2.f}, {3.f, 4.f}});
  (k(Tensor({0, 0, 1}), Tensor({1, 1, 0})) * Tensor({1.f, 10.f, 100.f})).sum().backward();
  EXPECT_EQ(floats(k.grad()), (F{0, 11, 100, 0}));
}

TEST(Write, HistoryOfAComputedTensorIsKept) {
  Tensor x({1.f, 2.f}, {.requires_grad = true}), z = x * x;
  EXPECT_EQ(z.sum().item<float>(), 5);
  z.realize();
  z.at(0) = 7;
  Tensor loss = z.sum();
  EXPECT_EQ(loss.item<float>(), 11);
  loss.backward();
  EXPECT_EQ(floats(x.grad()), (F{0, 4}));
}

TEST(Write, IndexPut) {
  Tensor x = stored({2, 3});
  EXPECT_EQ(ints(x.index_put({Slice(), {0, 2}}, Tensor({{9, 8}, {7, 6}}))), (V{9, 1, 8, 7, 4, 6}));
  EXPECT_EQ(ints(x.index_put({{0, 0, 1}, {1, 1, 2}}, Tensor({10, 20, 30}), true)), (V{0, 31, 2, 3, 4, 35}))
      << "added once for each time";
  EXPECT_EQ(ints(x.index_put({1}, 5, true)), (V{0, 1, 2, 8, 9, 10}));
  EXPECT_EQ(ints(x), (V{0, 1, 2, 3, 4, 5})) << "a copy";
}

TEST(Assign, BitsOfAnotherType) {
  Tensor a = Tensor({1.f, 2.f, 3.f, 4.f}).realize();
  Tensor bits = Tensor::from(std::vector<uint32_t>{0x40800000, 0x40400000, 0x40000000, 0x3f800000});
  a.bitcast(dtypes::uint32).assign(bits);
  EXPECT_EQ(floats(a), (F{4, 3, 2, 1}));
  a(Slice(0, 2))
      .bitcast(dtypes::uint32)
      .bitcast(dtypes::int32)
      .assign(bits(Slice(2, 4)).bitcast(dtypes::int32))
      .realize();
  EXPECT_EQ(floats(a), (F{2, 1, 2, 1}));
}

TEST(Assign, DetachedTensorsAreViews) {
  Tensor x = Tensor({1.f, 2.f}).realize(), d = x.detach();
  x += 1;
  EXPECT_EQ(floats(d), (F{2, 3}));
  d.assign(Tensor({7.f, 8.f}));
  EXPECT_EQ(floats(x), (F{7, 8}));
  EXPECT_TRUE(x.contiguous().is_same(x)) << "storage is contiguous already";
}

TEST(Assign, ReadersOfSeveralStates) {
  Tensor x = Tensor({0.f}).realize(), y0 = x + 0;
  x.assign(x + 1);
  Tensor y1 = x + 0;
  x.assign(x + 1);
  Tensor y2 = x + 0;
  x.assign(x + 1);
  EXPECT_EQ((F{y0.item<float>(), y1.item<float>(), y2.item<float>(), x.item<float>()}), (F{0, 1, 2, 3}));
  Tensor a = Tensor::full({4}, 2.0).contiguous().realize(), b = Tensor::full({4}, 3.0).contiguous().realize(),
         c = a + 9;
  a += b;
  b += c;
  realize(a, b);
  EXPECT_EQ(floats(a), F(4, 5.f));
  EXPECT_EQ(floats(b), F(4, 14.f)) << "c is made of the old a";
  Tensor p = Tensor::ones(4).contiguous().realize(), times = p * 3;
  p.assign(Tensor::full({4}, 2.0));
  EXPECT_EQ(floats(p + (times - 1)), F(4, 4.f));
  p.assign(p);
  EXPECT_EQ(floats(p), F(4, 2.f));
}

TEST(Assign, ManySlicesOfOneBuffer) {
  Tensor big = Tensor::zeros(50).contiguous().realize();
  Tensors views;
  for (int i = 0; i < 5; i++) views.push_back(big(Slice(i * 10, i * 10 + 10)).reshape(2, 5));
  for (const Tensor& v : views) v.assign(v + 1);
  realize(views);
  EXPECT_EQ(floats(big), F(50, 1.f));
  Tensor caches = Tensor::zeros({8, 4}).contiguous().realize();
  caches(Slice(0, 3)).assign(Tensor::ones(3, 4));
  Tensor sum = caches(Slice(None, 4)).sum(0, true);
  caches(Slice(3, 4)).assign(sum * 10);
  EXPECT_EQ(caches.sum().item<float>(), 12 + 120);
}

TEST(Select, LargeMasks) {
  Tensor x = Tensor::arange(3000), m = x % 3 == 1;
  V want;
  for (int i = 1; i < 3000; i += 3) want.push_back(i);
  EXPECT_EQ(ints(x.masked_select(m)), want);
  EXPECT_EQ(ints(m.nonzero().flatten()), want);
  EXPECT_EQ(ints(x(m)), want);
  EXPECT_EQ(ints(x.masked_select(x >= 2998, 4, -5)), (V{2998, 2999, -5, -5}));
  EXPECT_EQ(ints(x.masked_select(x < 0, 2, -5)), (V{-5, -5}));
}

TEST(Scatter, RangesAndNumbers) {
  Tensor x = stored({2, 3});
  EXPECT_EQ(ints(x.gather(1, computed(Tensor({{0, 3, -1}, {2, 1, 5}})))), (V{0, 0, 0, 5, 4, 0})) << "out of range: 0";
  EXPECT_EQ(ints(x.scatter(1, computed(Tensor({{0, 3}, {2, -1}})), 9)), (V{9, 1, 2, 3, 4, 9}))
      << "out of range: dropped";
  EXPECT_EQ(ints(x.scatter(1, Tensor({{2}}), Tensor({{7, 8}, {9, 9}}))), (V{0, 1, 7, 3, 4, 5}))
      << "a source may be larger";
  EXPECT_EQ(ints(x.scatter_reduce(1, computed(Tensor({{0, 0}, {1, 7}})), Tensor({{2, 3}, {4, 5}}), ScatterReduce::kProd,
                                  false)),
            (V{6, 1, 2, 3, 4, 5}));
}

}  // namespace
}  // namespace tg
