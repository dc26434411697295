/// \file Mistakes with tensors: a typed error at the line of the mistake, with the operation, what it got and what it
/// expected.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "error/expect_error.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
const Tensor m() { return Tensor::zeros(2, 3); }

TEST(TensorErrors, Creation) {
  expect<ShapeError>([] { Tensor({{1, 2}, {3}}); }, "Tensor", "different lengths");
  expect<ShapeError>([] { Tensor::zeros(2, -1); }, "full", "(2, -1)");
  expect<ShapeError>([] { Tensor::zeros({int64_t{1} << 40, int64_t{1} << 40}); }, "shape", "too many elements");
  expect<ShapeError>([] { Tensor::from(std::vector<float>{1, 2, 3}, {2, 2}); }, "from",
                     "3 values for shape (2, 2), expected 4");
  expect<ValueError>([] { Tensor::arange(0, 5, 0); }, "arange", "step");
  expect<OverflowError>([] { Tensor::arange(0, 300, 1, {.dtype = dtypes::uint8}); }, "arange", "uint8");
  expect<ValueError>([] { Tensor::linspace(0, 1, -1); }, "linspace", "-1");
  expect<ShapeError>([] { Tensor::eye(-1); }, "eye", "-1");
  EXPECT_THROW(Tensor::zeros({2}, {.device = "NOSUCH"}), DeviceError);
  expect<ValueError>(
      [] {
        Tensor t;
        t.sum();
      },
      "sum", "undefined");
}

TEST(TensorErrors, Shapes) {
  expect<ShapeError>([] { m() + Tensor::zeros(4); }, "add", "(2, 3) and (4,)");
  expect<ShapeError>([] { (m() > 0).where(Tensor::zeros(5), 1.0); }, "where", "(5,)");
  expect<ShapeError>([] { m().maximum(Tensor::zeros(2)); }, "maximum", "(2,)");
}

TEST(TensorErrors, Movement) {
  expect<ShapeError>([] { m().reshape(4, 2); }, "reshape", "(2, 3)");
  expect<ShapeError>([] { m().reshape(-1, -1); }, "reshape", "at most one -1");
  expect<ShapeError>([] { m().expand(2, 4); }, "expand", "(2, 3)");
  expect<ShapeError>([] { m().permute(0, 0); }, "permute", "each axis once");
  expect<IndexError>([] { m().transpose(0, 2); }, "transpose", "axis 2");
  expect<IndexError>([] { m().flip(5); }, "flip", "axis 5");
  expect<ShapeError>([] { m().shrink({{0, 3}, {0, 1}}); }, "shrink", "[0, 3)");
  expect<ShapeError>([] { m().pad({{1, 1}}); }, "pad", "expected 2");
  expect<ShapeError>([] { m().pad({3, 3}, {.mode = PadOptions::kReflect}); }, "pad", "reflect");
  expect<ShapeError>([] { Tensor::cat({m(), Tensor::zeros(2, 4)}); }, "cat", "(2, 4)");
  expect<ShapeError>([] { Tensor::stack({m(), Tensor::zeros(3)}); }, "stack", "equal shapes");
  expect<ShapeError>([] { m().split({1, 3}, 0); }, "split", "4");
  expect<ShapeError>([] { m().unfold(1, 4, 1); }, "unfold", "size 4");
  expect<IndexError>([] { m().squeeze(2); }, "squeeze", "axis 2");
}

TEST(TensorErrors, Reduces) {
  expect<IndexError>([] { m().sum(2); }, "sum", "axis 2 for shape (2, 3)");
  expect<ValueError>([] { m().sum({0, -2}); }, "sum", "twice");
  expect<ShapeError>([] { Tensor::zeros(0).argmax(); }, "argmax", "at least one element");
  expect<ShapeError>([] { Tensor::zeros(0).argmin(); }, "argmin", "at least one element");
  expect<IndexError>([] { m().log_softmax(3); }, "log_softmax", "axis 3");
  expect<IndexError>([] { m().layernorm(5); }, "layernorm", "axis 5");
  expect<IndexError>([] { m().mean(5); }, "mean", "axis 5");
  expect<IndexError>([] { m().min(5); }, "min", "axis 5");
  expect<IndexError>([] { m().std(5); }, "std", "axis 5");
  expect<IndexError>([] { m().argmin(5); }, "argmin", "axis 5");
  expect<IndexError>([] { m().softmax(3); }, "softmax", "axis 3");
  expect<ValueError>([] { m().topk(4); }, "topk", "k = 4");
}

TEST(TensorErrors, Types) {
  expect<DTypeError>([] { m() & 1; }, "bitwise_and", "float32");
  expect<DTypeError>([] { m().where(m(), m()); }, "where", "expected bool");
  expect<DTypeError>([] { m() << 1; }, "lshift", "integers");
  expect<DTypeError>([] { Tensor({1, 2}).pow(-1); }, "pow", "float base");
  expect<ShapeError>([] { Tensor::zeros({3}, {.dtype = dtypes::int16}).bitcast(dtypes::int32); }, "bitcast", "(3,)");
  expect<DTypeError>([] { m().one_hot(3); }, "one_hot", "integers");
  expect<DTypeError>([] { Tensor({1.5f}).item<int>(); }, "item", "float32");
  expect<DTypeError>([] { m().data<int>(); }, "data", "float32");
  expect<ShapeError>([] { m().item<float>(); }, "item", "(2, 3)");
  expect<ValueError>([] { Tensor({300}).item<int8_t>(); }, "item", "300");
}

TEST(TensorErrors, Matrices) {
  expect<ShapeError>([] { m().dot(m()); }, "dot", "(2, 3) and (2, 3)");
  expect<ShapeError>([] { m().dot(Tensor(1.0)); }, "dot", "at least one axis");
  expect<ShapeError>([] { Tensor::zeros(2, 3, 4).dot(Tensor::zeros(3, 4, 5)); }, "dot", "broadcast");
  expect<ValueError>([] { Tensor::einsum("ij,jk->ik", {m()}); }, "einsum", "expected 2");
  expect<ShapeError>([] { Tensor::zeros(1, 3, 5, 5).conv2d(Tensor::zeros(4, 2, 3, 3)); }, "conv2d", "(4, 2, 3, 3)");
  expect<ShapeError>([] { Tensor::zeros(1, 3, 2, 2).conv2d(Tensor::zeros(4, 3, 3, 3)); }, "conv2d", "fits");
  expect<ShapeError>([] { Tensor::zeros(1, 3, 5, 5).conv2d(Tensor::zeros(4, 3, 3, 3), Tensor::zeros(3)); }, "conv2d",
                     "bias");
  expect<ShapeError>([] { Tensor::zeros(1, 1, 2, 2).max_pool2d({.kernel_size = 3}); }, "max_pool2d", "fits");
}

TEST(TensorErrors, FurtherMethods) {
  auto expect_gqa = [](int64_t heads) {
    Tensor::zeros(1, 4, 2, 2)
        .scaled_dot_product_attention(Tensor::zeros(Shape{1, heads, 2, 2}), Tensor::zeros(Shape{1, heads, 2, 2}), {}, 0,
                                      false, true);
  };
  expect<ShapeError>([&] { expect_gqa(3); }, "scaled_dot_product_attention", "divides");
  expect<ValueError>([] { m().scaled_dot_product_attention(m(), m(), Tensor::ones(2, 2), 0, true); },
                     "scaled_dot_product_attention", "one of them");
  expect<ShapeError>([] { m().image_conv2d(m()); }, "image_conv2d", "four axes");
  expect<ShapeError>([] { m().image_dot(m()); }, "image_dot", "equal inner sizes");
  expect<ValueError>([] { Tensor::zeros({3}, {.dtype = dtypes::uint8}).keccak("md5"); }, "keccak", "md5");
  expect<ValueError>([] { Tensor::zeros({3}, {.dtype = dtypes::uint8}).keccak(200, 6); }, "keccak", "200");
  expect<ShapeError>([] { Tensor::random_bits(m(), m(), 3); }, "random_bits", "uint32");
  expect<DTypeError>([] { m().threefry(m()); }, "threefry", "uint64");
  expect<ValueError>([] { m().alu(Ops::LOAD); }, "alu", "elementwise");
  expect<ValueError>([] { m().topk(1, -1, true, false); }, "topk", "sorted");
  expect<ValueError>([] { m().clamp({}); }, "clamp", "no bound");
  expect<ValueError>([] { m().rearrange("a b"); }, "rearrange", "one ->");
  expect<ValueError>([] { m().rearrange("a _b -> a _b"); }, "rearrange", "_b");
  expect<ValueError>([] { m().rearrange("a b -> a"); }, "rearrange", "same names");
  expect<ValueError>([] { m().rearrange("a (...) -> a ..."); }, "rearrange", "ellipsis");
  expect<ValueError>([] { m().rearrange("a b -> b a", {{"c", 2}}); }, "rearrange", "'c'");
  expect<ShapeError>([] { m().rearrange("(a c) b -> a c b", {{"c", 3}}); }, "rearrange", "multiple");
  expect<ShapeError>([] { m().diag(); }, "diag", "(2, 3)");
  expect<ShapeError>([] { m().diagonal(0, 1, 1); }, "diagonal", "different");
  expect<ShapeError>([] { m().roll({1, 2}, {0}); }, "roll", "2 shifts");
  expect<ValueError>([] { m().chunk(0); }, "chunk", "0 chunks");
  expect<ShapeError>([] { m().repeat({2}); }, "repeat", "(2, 3)");
  expect<ShapeError>([] { m().pad_to({1, 3}); }, "pad_to", "smaller");
  expect<ShapeError>([] { m().pad({4, 0}, {.mode = PadOptions::kCircular}); }, "pad", "wrap");
  expect<IndexError>([] { Tensor::cat({Tensor(1.0), Tensor(2.0)}); }, "cat", "stack");
  expect<ShapeError>([] { Tensor::meshgrid({m()}); }, "meshgrid", "(2, 3)");
  expect<ValueError>([] { m().interpolate({4}, Interpolation::kNearest, true); }, "interpolate", "align_corners");
  expect<ShapeError>([] { Tensor::zeros(3).qr(); }, "qr", "two axes");
  expect<DTypeError>([] { Tensor::zeros({2, 2}, {.dtype = dtypes::int32}).svd(); }, "svd", "floats");
  expect<ShapeError>([] { Tensor::zeros(3).triu(); }, "triu", "two axes");
  expect<ValueError>([] { m().dropout(1.5); }, "dropout", "1.5");
  expect<ValueError>([] { Tensor::normal({2}, {.std = -1}); }, "normal", "std -1");
  expect<ValueError>([] { Tensor::uniform({2}, {.low = 1, .high = 1}); }, "uniform", "low < high");
  expect<ValueError>([] { Tensor::randint({2}, {.low = 3, .high = 1}); }, "randint", "low < high");
  expect<DTypeError>([] { Tensor::rand({2}, {.dtype = dtypes::int32}); }, "rand", "float type");
  expect<ShapeError>([] { m().multinomial(0); }, "multinomial", "0 samples");
  expect<ValueError>([] { m().multinomial(4); }, "multinomial", "without replacement");
  expect<ShapeError>([] { m().batchnorm({}, {}, Tensor::zeros(2), Tensor::zeros(3)); }, "batchnorm", "3 elements");
  expect<ShapeError>([] { m().nll_loss(Tensor({1, 2}), Tensor::zeros(2)); }, "nll_loss", "weight");
  expect<ShapeError>([] { m().max_unpool2d(m()); }, "max_unpool2d", "batch");
  expect<ShapeError>([] { Tensor::zeros(1, 2, 3, 3).conv_transpose2d(Tensor::zeros(3, 2, 2, 2)); }, "conv_transpose2d",
                     "(3, 2, 2, 2)");
}

TEST(TensorErrors, ErrorsSuggestTheFix) {
  Tensor x({1.f, 2.f});
  x.requires_grad_();
  expect<GradientError>([&] { (x * 2).backward(); }, "backward", "sum()");
  Tensor here({1.f}, {.device = "CPU"}), there = Tensor::empty({1}, {.device = "NULL"});
  expect<DeviceError>([&] { here.dot(there); }, "mul", ".to(device)");
  expect<ShapeError>([&] { m().item<float>(); }, "item", "one element");
}

TEST(TensorErrors, Indexing) {
  expect<IndexError>([] { m()[2]; }, "index", "index 2 for axis 0 of shape (2, 3)");
  expect<IndexError>([] { m()(0, 0, 0); }, "index", "at most 2");
  expect<ValueError>([] { m()(Slice(0, 2, 0)); }, "index", "step 0");
  expect<IndexError>([] { m()[Tensor({0.5f})]; }, "index", "integers");
  expect<IndexError>([] { m()(Ellipsis, Ellipsis); }, "index", "single ellipsis");
  expect<ShapeError>([] { m().gather(1, Tensor({1})); }, "gather", "(1,)");
}

TEST(TensorErrors, Losses) {
  expect<ShapeError>([] { m().sparse_categorical_crossentropy(Tensor({1, 2, 3})); }, "sparse_categorical_crossentropy",
                     "(3,)");
  expect<DTypeError>([] { m().sparse_categorical_crossentropy(Tensor({1.0, 2.0})); }, "sparse_categorical_crossentropy",
                     "integers");
  expect<ValueError>([] { m().cross_entropy(Tensor({1, 2}), {.label_smoothing = 2}); }, "cross_entropy",
                     "label_smoothing");
}

TEST(TensorErrors, Assign) {
  expect<ShapeError>(
      [] {
        Tensor x({1.f, 2.f});
        x.assign(Tensor({1.f, 2.f, 3.f}));
      },
      "assign", "(3,)");
  expect<DTypeError>(
      [] {
        Tensor x({1.f, 2.f});
        x.assign(Tensor({1, 2}));
      },
      "assign", "int32");
  expect<DTypeError>(
      [] {
        Tensor x({1, 2});
        x += 1.5;
      },
      "assign", "weakfloat");
  expect<ValueError>(
      [] {
        Tensor x({1.f});
        x.expand(3).assign(Tensor({1.f, 2.f, 3.f}));
      },
      "assign", "places of their own");
  expect<ShapeError>(
      [] {
        Tensor x({1.f});
        x.replace(Tensor({1.f, 2.f}));
      },
      "replace", "(2,)");
}

TEST(TensorErrors, Devices) {
  Tensor here({1.f, 2.f}, {.device = "CPU"}), there = Tensor::empty({2}, {.device = "NULL"});
  expect<DeviceError>([&] { here + there; }, "add", "CPU and NULL");
  expect<DeviceError>([&] { (here > 0).where(there, 1.0); }, "where", "one device");
  expect<DeviceError>([&] { here.assign(there); }, "assign", "NULL");
  EXPECT_EQ((here + 1).device(), "CPU");
  EXPECT_EQ(here.to("null").device(), "NULL");
  EXPECT_THROW(here.to("NOSUCH"), DeviceError);
}

TEST(TensorErrors, AFailedCallLeavesNothingBehind) {
  Tensor x({1.f, 2.f});
  size_t before = Graph::global().live_nodes();
  for (int i = 0; i < 10; i++) EXPECT_THROW(x + Tensor::zeros(7), ShapeError);
  EXPECT_EQ(Graph::global().live_nodes(), before);
}

}  // namespace
}  // namespace tg
