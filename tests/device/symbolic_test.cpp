/// \file Operations on tensors with a symbolic size: equal to the concrete ones for every value of the variable, with
/// one kernel for all of them.
#include <gmock/gmock.h>

#include <cmath>

#include "tinygrad/nn/nn.h"
#include "tinygrad/schedule/schedule.h"
#include "tinygrad/tensor/variable.h"
#include "tinygrad/tinygrad.h"

using namespace tg;

namespace {

/// One operation. `x` (n, 4) and `y` (n, 4) float, `n` their first size.
struct Case {
  const char* name;
  Tensor (*f)(const Tensor& x, const Tensor& y, const SInt& n);
};
std::ostream& operator<<(std::ostream& o, const Case& c) { return o << c.name; }
#define OP(name, expr)                                                    \
  Case {                                                                  \
    name, [](const Tensor& x, const Tensor& y, const SInt& n) -> Tensor { \
      (void)x, (void)y, (void)n;                                          \
      return expr;                                                        \
    }                                                                     \
  }
using Bounds = std::vector<std::pair<SInt, SInt>>;
const std::vector<std::pair<int64_t, int64_t>> kAround{{0, 0}, {1, 2}};  // padding of the columns
Tensor table() { return Tensor::arange(24).to_float().reshape(6, 4).sin().contiguous(); }

// clang-format off
const Case kCases[] = {
    OP("elementwise", (x * 2 + y).exp().relu() - y.maximum(x)), OP("compare_where", (x < y).where(x, y * 3)),
    OP("cast", x.cast(dtypes::int32) + y.cast(dtypes::int32)),
    OP("broadcast_row", x + y.shrink(Bounds{{0, 1}, {0, 4}})), OP("broadcast_column", x * y.sum(1, true)),
    OP("reshape_flat", x.flatten() * 2), OP("reshape_split", x.reshape(Shape{n, 2, 2}).sum(2)),
    OP("reshape_merge_symbolic", (x.unsqueeze(1) * y.unsqueeze(1)).reshape(Shape{n, 4})),
    OP("unsqueeze_squeeze", x.unsqueeze(0).squeeze(0) + 1), OP("permute", x.transpose() + y.transpose()),
    OP("expand_new_axis", x.unsqueeze(0).expand(Shape{3, n, 4}) * 2),
    OP("expand_to_symbolic", table().shrink(Bounds{{0, 1}, {0, 4}}).expand(Shape{n, 4}) + x),
    OP("shrink_columns", x.shrink(Bounds{{0, n}, {1, 3}})), OP("pad_columns", x.pad(Bounds{{0, 0}, {1, 2}})),
    OP("pad_rows", x.pad(Bounds{{2, 1}, {0, 0}})),
    OP("pad_by_symbolic", table().shrink(Bounds{{0, 2}, {0, 4}}).pad(Bounds{{0, n}, {0, 0}})),
    OP("flip_columns", x.flip(1)), OP("flip_rows", x.flip(0)), OP("cat_rows", x.cat(y, 0)),
    OP("cat_columns", x.cat(y, 1)), OP("cat_with_concrete", x.cat(table(), 0)), OP("stack", Tensor::stack({x, y}, 1)),
    OP("repeat_columns", x.repeat({1, 2})), OP("repeat_rows", x.repeat({2, 1})), OP("roll_columns", x.roll(1, 1)),
    OP("sum_all", x.sum()), OP("sum_rows", x.sum(0)), OP("sum_columns", x.sum(1)),
    OP("first_of_sums", x.sum(1).shrink(Bounds{{0, 1}})), OP("max_rows", x.max(0)), OP("min_rows", x.min(0)),
    OP("prod_rows", (x + 1.5).prod(0)), OP("mean_rows", x.mean(0)), OP("mean_all", x.mean()),
    OP("var_rows", (x.cat(table(), 0)).var(0)), OP("std_columns", x.std(1)),
    OP("any_all", (x > 0).any(0).cat((x > 0).all(0), 0)), OP("argmax_rows", x.argmax(0)),
    OP("argmin_columns", x.argmin(1)), OP("logsumexp_rows", x.logsumexp(0)), OP("softmax_rows", x.softmax(0)),
    OP("softmax_columns", x.softmax(1)), OP("log_softmax_rows", x.log_softmax(0)), OP("cumsum_columns", x.cumsum(1)),
    OP("cumsum_rows", x.cumsum(0)), OP("cummax_rows", x.cummax(0).first), OP("layernorm", x.layernorm()),
    OP("rms_norm", x.rms_norm()), OP("matmul_rows", x.dot(table().shrink(Bounds{{0, 4}, {0, 4}}))),
    OP("matmul_columns", table().dot(x.transpose())), OP("matmul_inner", x.transpose().dot(y)),
    OP("matmul_both", x.dot(y.transpose())), OP("batched_matmul", x.unsqueeze(1).dot(y.unsqueeze(2))),
    OP("linear", x.linear(table().shrink(Bounds{{0, 4}, {0, 3}}), table().shrink(Bounds{{0, 1}, {0, 3}}).flatten())),
    OP("einsum", Tensor::einsum("ij,kj->ik", {x, y})),
    OP("attention", x.unsqueeze(0).scaled_dot_product_attention(y.unsqueeze(0), y.unsqueeze(0))),
    OP("attention_causal", x.unsqueeze(0).scaled_dot_product_attention(y.unsqueeze(0), y.unsqueeze(0), {}, 0, true)),
    OP("attention_one_query", table().shrink(Bounds{{0, 1}, {0, 4}}).scaled_dot_product_attention(x, y)),
    OP("triu", x.dot(y.transpose()).triu(0)), OP("tril", x.tril(1)), OP("arange", Tensor::arange_symbolic(0, n) * 2),
    OP("arange_from", Tensor::arange_symbolic(n, 10)), OP("eye", Tensor::eye(n, 5)),
    OP("argmax_all", x.argmax() + x.argmin()), OP("flatten_and_sum", x.flatten().cumsum(0)),
    OP("repeat_interleave_rows", x.repeat_interleave(2, 0)), OP("full", Tensor::full(Shape{n, 2}, 3.0) + 1),
    OP("zeros_like", x.zeros_like() + y.ones_like()), OP("index_row", x(0)), OP("index_last_row", x(-1)),
    OP("index_slice", x(Slice(None), Slice(1, 3))), OP("index_slice_to_beyond", x(Slice(0, 100)) * 2),
    OP("index_slice_from_to_beyond", x.cat(y, 1)(Slice(0, 6), Slice(1, 5))),
    OP("pad_columns_reflected", x.pad(kAround, {.mode = PadOptions::kReflect})),
    OP("pad_columns_circular", x.pad(kAround, {.mode = PadOptions::kCircular})),
    OP("index_step", x(Slice(None), Slice(None, None, 2))),
    OP("index_tensor", x(Tensor({0, 0}))), OP("index_by_symbolic_rows", table()(Tensor::arange_symbolic(0, n))),
    OP("gather", x.gather(1, Tensor::zeros(Shape{n, 2}, {.dtype = dtypes::int32}))),
    OP("one_hot", Tensor::arange_symbolic(0, n).one_hot(6)),
    OP("embedding", nn::Embedding(6, 4)(Tensor::arange_symbolic(0, n)).sum() * 0 + x.sum()),
    OP("masked_fill", x.masked_fill(x > y, 0)), OP("clamp", x.clamp(-0.5, 0.5)),
    OP("cross_entropy", x.sparse_categorical_crossentropy(Tensor::zeros(Shape{n}, {.dtype = dtypes::int32}))),
    OP("mse", x.mse_loss(y)),
    OP("conv1d", x.transpose().unsqueeze(0).conv2d(table().flatten().shrink(Bounds{{0, 8}}).reshape(2, 4, 1))),
    OP("conv1d_padded", x.transpose().unsqueeze(0).conv2d(table().reshape(2, 4, 3), {}, {.padding = 1})),
    OP("conv2d_batch_strided", x.reshape(Shape{n, 1, 2, 2})
        .conv2d(table().flatten().shrink(Bounds{{0, 18}}).reshape(2, 1, 3, 3), Tensor({1., 2.}),
                {.stride = 2, .padding = 1})),
    OP("conv_transpose2d_batch_strided", x.reshape(Shape{n, 1, 2, 2})
        .conv_transpose2d(table().flatten().shrink(Bounds{{0, 18}}).reshape(1, 2, 3, 3), {}, {.stride = 2})),
    OP("conv2d_batch", x.reshape(Shape{n, 1, 2, 2})
        .conv2d(table().flatten().shrink(Bounds{{0, 8}}).reshape(2, 1, 2, 2))),
    OP("conv_transpose1d", x.transpose().unsqueeze(0)
        .conv_transpose2d(table().reshape(4, 2, 3), {}, {.stride = 2, .padding = 1, .output_padding = 1})),
    OP("conv_transpose2d_batch", x.reshape(Shape{n, 1, 2, 2})
        .conv_transpose2d(table().reshape(1, 2, 3, 4), {}, {.stride = 2, .padding = 1})),
    OP("max_pool_batch", x.reshape(Shape{n, 1, 2, 2}).max_pool2d({.kernel_size = 2})),
    OP("avg_pool_batch", x.reshape(Shape{n, 1, 2, 2}).avg_pool2d({.kernel_size = 2})),
    OP("contiguous", x.contiguous() + y.contiguous()),
    OP("size_as_value", x * Tensor::full({}, 1.0) + Tensor::arange_symbolic(0, n).sum()),
    OP("chunk_columns", x.chunk(2, 1)[1]),
    OP("scatter", x.scatter(1, Tensor::zeros(Shape{n, 1}, {.dtype = dtypes::int32}), y.shrink(Bounds{{0, n}, {0, 1}}))),
    OP("sort_columns", x.sort(1).first), OP("topk_columns", x.topk(2, 1).first),
    OP("interpolate_batch", x.reshape(Shape{n, 1, 2, 2}).interpolate({4, 4})),
    OP("diagonal_columns", x.unflatten(1, {2, 2}).diagonal(0, 1, 2)), OP("logcumsumexp_columns", x.logcumsumexp(1)),
};
// clang-format on

std::string test_name(const testing::TestParamInfo<Case>& i) { return i.param.name; }

class SymbolicOps : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Table, SymbolicOps, testing::ValuesIn(kCases), test_name);

std::vector<double> numbers(const Tensor& t) { return t.to("CPU").to_double().to_vector<double>(); }

TEST_P(SymbolicOps, EqualTheConcreteOnesForEveryValue) {
  Context lazy{{"EAGER", 0}};
  Tensor x = table().realize(), y = (table() * 1.5 + 0.25).cos().realize();
  Variable v("n", 1, 6);
  for (int64_t k = 1; k <= 6; k++) {
    BoundVariable n = v.bind(k);
    Tensor want = GetParam().f(x.shrink(Bounds{{0, k}, {0, 4}}), y.shrink(Bounds{{0, k}, {0, 4}}), k);
    std::vector<double> expected = numbers(want);
    Tensor got = GetParam().f(x.shrink(Bounds{{0, n}, {0, 4}}), y.shrink(Bounds{{0, n}, {0, 4}}), n);
    got = got.to("CPU").to_double();
    bool known = got.schedule().cache_hit;
    if (k > 1) EXPECT_TRUE(known) << "one schedule, and with it the same kernels, for all values: n = " << k;
    std::vector<double> values = got.to_vector<double>();
    ASSERT_EQ(values.size(), expected.size()) << "n = " << k;
    for (size_t i = 0; i < values.size(); i++)
      ASSERT_NEAR(values[i], expected[i], 1e-5 * (1 + std::abs(expected[i]))) << "n = " << k << ", element " << i;
  }
}

TEST(Symbolic, RandomNumbersAreThoseOfTheGreatestSize) {
  Variable v("n", 1, 6);
  Tensor::manual_seed(3);
  std::vector<double> all = numbers(Tensor::rand({6, 2})), normal = numbers(Tensor::randn({6, 2}));
  for (int64_t k : {1, 4, 6}) {
    BoundVariable n = v.bind(k);
    Tensor::manual_seed(3);
    std::vector<double> some = numbers(Tensor::rand(Shape{n, 2})), other = numbers(Tensor::randn(Shape{n, 2}));
    ASSERT_EQ(some.size(), static_cast<size_t>(2 * k));
    ASSERT_EQ(other.size(), static_cast<size_t>(2 * k));
    for (size_t i = 0; i < some.size(); i++) EXPECT_EQ(some[i], all[i]) << i;
    for (size_t i = 0; i < other.size(); i++) EXPECT_EQ(other[i], normal[i]) << i;
  }
}

TEST(Symbolic, DropoutWouldDependOnTheSize) {
  Tensor x = Tensor::ones(Shape{Variable("n", 1, 6).bind(5), 40});
  EXPECT_EQ(x.dropout(0.5).sum().item<float>(), 200) << "outside of training nothing is dropped";
  Context training{{"TRAINING", 1}};
  EXPECT_THROW(x.dropout(0.5), ValueError);
}

TEST(Symbolic, EmptyHasRoomForTheGreatestSize) {
  BoundVariable n = Variable("n", 1, 6).bind(4);
  Tensor t = Tensor::empty(Shape{n, 3});
  EXPECT_EQ(t.max_shape(), (Shape{6, 3}));
  t.assign(Tensor::ones(Shape{n, 3}) * 2);
  EXPECT_EQ(t.sum().item<float>(), 24);
  EXPECT_EQ(with_values(t).shape(), (Shape{4, 3}));
}

TEST(Symbolic, WhatCannotCarryASizeSaysSo) {
  BoundVariable n = Variable("rows", 1, 6).bind(4);
  Tensor x = Tensor::ones(Shape{n, 3});
  const std::vector<std::pair<std::string, std::function<Tensor()>>> calls{
      {"sort", [&] { return x.sort(0).first; }},        {"sort", [&] { return x.argsort(0); }},
      {"topk", [&] { return x.topk(2, 0).first; }},     {"split", [&] { return x.split(2, 0)[0]; }},
      {"split", [&] { return x.split({2, 2}, 0)[0]; }}, {"chunk", [&] { return x.chunk(2, 0)[0]; }},
      {"roll", [&] { return x.roll(1, 0); }},           {"unfold", [&] { return x.unfold(0, 2, 1); }},
  };
  for (const auto& [op, f] : calls) {
    try {
      f();
      ADD_FAILURE() << op << ": no error";
    } catch (const ShapeError& e) {
      EXPECT_THAT(e.what(), testing::HasSubstr(
                                "[" + op + "] got shape (rows=4, 3), expected sizes that are numbers along axis 0"));
    }
  }
}

TEST(Symbolic, UnboundVariablesAreNamedWhenRealized) {
  GraphScope g;
  Tensor x = Tensor::ones({6, 3}).contiguous().realize(),
         part = x.shrink({{0, SInt(UOp::variable("rows", 1, 6))}, {0, 3}});
  try {
    part.sum().item<float>();
    ADD_FAILURE() << "no error";
  } catch (const ValueError& e) { EXPECT_THAT(e.what(), testing::HasSubstr("rows")); }
}

}  // namespace
