/// \file The ways to write a new tensor in C++: sizes, shapes, types and options in any of the forms the headers offer;
/// nested vectors and arrays; memory of the caller.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
using ::testing::ElementsAre;

void expect_made(const Tensor& t, const Shape& shape, DType dtype) {
  EXPECT_EQ(t.shape(), shape);
  EXPECT_EQ(t.dtype(), dtype);
}

TEST(Creation, BySizesShapesTypesAndOptions) {
  const Shape s{2, 3};
  expect_made(Tensor::zeros(2, 3), s, dtypes::float32);
  expect_made(Tensor::zeros({2, 3}, dtypes::int32), s, dtypes::int32);
  expect_made(Tensor::zeros(s, dtypes::int32), s, dtypes::int32);
  expect_made(Tensor::zeros(2, 3, dtypes::bool_), s, dtypes::bool_);
  expect_made(Tensor::zeros(2, 3, {.dtype = dtypes::float16}), s, dtypes::float16);
  EXPECT_EQ(Tensor::zeros(2, 3, {.device = "INTERP"}).device(), "INTERP");
  EXPECT_EQ(Tensor::ones(4, {.requires_grad = true}).requires_grad(), true);
  EXPECT_THAT(Tensor::ones(4, dtypes::uint8).to_vector<int>(), ElementsAre(1, 1, 1, 1));
  expect_made(Tensor::empty(1, 2, 3, dtypes::int64), {1, 2, 3}, dtypes::int64);
  expect_made(Tensor::rand(1, 2, 3, 4, {.dtype = dtypes::float64}), {1, 2, 3, 4}, dtypes::float64);
  expect_made(Tensor::randn(5, dtypes::float16), {5}, dtypes::float16);
  const size_t n = 3;
  expect_made(Tensor::randn({n, 2}, dtypes::float64), {3, 2}, dtypes::float64);
  expect_made(Tensor::zeros({n}, {.dtype = dtypes::int8}), {3}, dtypes::int8);
  expect_made(Tensor::zeros({2}, {}), {2}, dtypes::float32);
  Tensor::manual_seed(5);
  const std::vector<float> a = Tensor::rand(2, 3).to_vector<float>();
  Tensor::manual_seed(5);
  EXPECT_EQ(Tensor::rand(2, 3, {.dtype = dtypes::float32}).to_vector<float>(), a);
}

TEST(Creation, FullArangeEye) {
  const Tensor f = Tensor::full({2, 2}, 7, dtypes::uint8);
  EXPECT_EQ(f.dtype(), dtypes::uint8);
  EXPECT_THAT(f.to_vector<int>(), ElementsAre(7, 7, 7, 7));
  EXPECT_THROW(Tensor::full({2}, 300, dtypes::uint8), OverflowError);
  EXPECT_EQ(Tensor::arange(3, dtypes::float32).dtype(), dtypes::float32);
  EXPECT_THAT(Tensor::arange(2, 5, dtypes::int64).to_vector<int>(), ElementsAre(2, 3, 4));
  EXPECT_THAT(Tensor::arange(2, 5, {.dtype = dtypes::float16}).to_vector<float>(), ElementsAre(2, 3, 4));
  EXPECT_EQ(Tensor::arange(3, {.requires_grad = false}).requires_grad(), false);
  EXPECT_THAT(Tensor::eye(2, dtypes::int32).to_vector<int>(), ElementsAre(1, 0, 0, 1));
  EXPECT_EQ(Tensor::eye(2, {.dtype = dtypes::bool_}).dtype(), dtypes::bool_);
}

TEST(Creation, NestedVectorsAndArrays) {
  const std::vector<std::vector<float>> rows{{1, 2, 3}, {4, 5, 6}};
  const Tensor a(rows);
  expect_made(a, {2, 3}, dtypes::float32);
  EXPECT_THAT(a.to_vector<float>(), ElementsAre(1, 2, 3, 4, 5, 6));
  expect_made(Tensor(rows, {.dtype = dtypes::float16}), {2, 3}, dtypes::float16);
  expect_made(Tensor(rows, dtypes::int32), {2, 3}, dtypes::int32);
  const Tensor b(std::array<int64_t, 3>{7, 8, 9});
  expect_made(b, {3}, dtypes::int64);
  EXPECT_THAT(b.to_vector<int>(), ElementsAre(7, 8, 9));
  const Tensor c =
      Tensor::from(std::array<std::vector<std::array<uint8_t, 2>>, 2>{{{{1, 2}, {3, 4}}, {{5, 6}, {7, 8}}}});
  expect_made(c, {2, 2, 2}, dtypes::uint8);
  EXPECT_THAT(c.to_vector<int>(), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  const Tensor d(std::vector<std::vector<bool>>{{true, false}, {false, true}});
  expect_made(d, {2, 2}, dtypes::bool_);
  EXPECT_THAT(d.to_vector<int>(), ElementsAre(1, 0, 0, 1));
  expect_made(Tensor(std::vector<std::vector<double>>{}), {0, 0}, dtypes::float64);
  expect_made(Tensor(std::vector<std::vector<float>>{{}, {}}), {2, 0}, dtypes::float32);
  expect_made(Tensor(std::vector<float>{1, 2}, dtypes::float64), {2}, dtypes::float64);
  expect_made(Tensor({1, 2}, dtypes::float16), {2}, dtypes::float16);
  const Tensor w(rows, {.requires_grad = true});
  (w * w).sum().backward();
  EXPECT_THAT(w.grad().to_vector<float>(), ElementsAre(2, 4, 6, 8, 10, 12));
}

TEST(Creation, RaggedRows) {
  EXPECT_THROW(Tensor(std::vector<std::vector<int>>{{1, 2}, {3}}), ShapeError);
  EXPECT_THROW(Tensor(std::vector<std::vector<int>>{{}, {3}}), ShapeError);
  const std::array<std::vector<std::vector<float>>, 2> deep{{{{1, 2}, {3, 4}}, {{5, 6}}}};
  EXPECT_THROW(Tensor::from(deep), ShapeError);
}

TEST(Creation, MemoryOfTheCaller) {
  alignas(64) float memory[4] = {1, 2, 3, 4};
  const Tensor typed = Tensor::from_blob(memory, {2, 2}, {.device = "CPU", .requires_grad = true});
  expect_made(typed, {2, 2}, dtypes::float32);
  EXPECT_EQ(typed.requires_grad(), true);
  EXPECT_EQ(typed.data_ptr<float>(), memory);  // shared, not copied
  const Tensor bits = Tensor::from_blob(memory, {4}, {.dtype = dtypes::int32, .device = "CPU"});
  EXPECT_THAT(bits.bitcast(dtypes::float32).to_vector<float>(), ElementsAre(1, 2, 3, 4));
  void* nameless = memory;
  expect_made(Tensor::from_blob(nameless, {4}, dtypes::float32, "CPU"), {4}, dtypes::float32);
  expect_made(Tensor::from_blob(nameless, {2}, {.dtype = dtypes::float64, .device = "CPU"}), {2}, dtypes::float64);
  EXPECT_THROW(Tensor::from_blob(nameless, {4}, {}), DTypeError);
  EXPECT_THROW(Tensor::from_blob(nameless, {4}, DType()), DTypeError);
  EXPECT_THROW(Tensor::from_blob(nameless, {4}, dtypes::weakint), DTypeError);
  EXPECT_THROW(Tensor::from_blob(nameless, {-1}, dtypes::float32), ShapeError);
  bool gone = false;
  {
    const std::shared_ptr<void> owner(memory, [&](void*) { gone = true; });
    const Tensor kept = Tensor::from_blob(memory, {4}, {.device = "CPU"}, owner);
    EXPECT_THAT((kept + 1).to_vector<float>(), ElementsAre(2, 3, 4, 5));
    EXPECT_FALSE(gone);
  }
  EXPECT_TRUE(gone);
}

TEST(Creation, TypesByName) {
  const Tensor x({1.5f, -2.5f});
  EXPECT_EQ(x.cast("float16").dtype(), dtypes::float16);
  EXPECT_EQ(x.cast("half").dtype(), dtypes::float16);
  EXPECT_THAT(x.cast("int").to_vector<int>(), ElementsAre(1, -2));
  EXPECT_EQ(x.to(dtypes::float64).dtype(), dtypes::float64);
  EXPECT_THROW(x.cast("flaot16"), DTypeError);
}

TEST(Creation, SizesAndAxes) {
  const Tensor x = Tensor::zeros(2, 3);
  EXPECT_EQ(x.dim(), 2);
  EXPECT_EQ(x.shape()[1], 3);
  EXPECT_THROW(x.shape()[2], IndexError);
  EXPECT_THROW(x.shape()[static_cast<size_t>(-1)], IndexError);
  EXPECT_THROW(Tensor(1.0f).shape()[0], IndexError);
  Shape s{4, 5};
  s[0] = 6;
  EXPECT_EQ(s, (Shape{6, 5}));
  EXPECT_THROW(s[2] = 1, IndexError);
}

TEST(Creation, SizesOfEveryIntegerType) {
  const auto check = []<class I>(I n) {
    EXPECT_EQ((Shape{n, n}), (Shape{2, 2}));
    EXPECT_EQ((Shape{n, 3}), (Shape{2, 3}));
    EXPECT_EQ(Shape(3, n), (Shape{2, 2, 2}));
    const SInt size = n;
    EXPECT_TRUE(size == n && n == size && size == 2);
    EXPECT_FALSE(size != n || size == I{3});
    EXPECT_EQ(Tensor::zeros(n, n).shape(), (Shape{2, 2}));
    EXPECT_EQ(Tensor::zeros({n, 2}).reshape(n * n).shape(), Shape{4});
    EXPECT_EQ(Tensor::arange(6).reshape(3, n).shape(), (Shape{3, 2}));
    EXPECT_EQ(Tensor::arange(6).reshape({3, n}).shape(), (Shape{3, 2}));
    EXPECT_EQ(Tensor::ones(1, 3).expand(n, 3).shape(), (Shape{2, 3}));
  };
  check(int8_t{2});
  check(uint8_t{2});
  check(short{2});
  check(static_cast<unsigned short>(2));
  check(2);
  check(2u);
  check(2l);
  check(2ul);
  check(2ll);
  check(2ull);
  EXPECT_THROW(SInt(UINT64_MAX), ShapeError);
  EXPECT_THROW((Shape{2ull, 1ull << 63}), ShapeError);
}

TEST(Creation, SlicesOfOneAxis) {
  const Tensor x = Tensor::arange(12).reshape(3, 4);
  EXPECT_EQ(x.slice(0, 1).shape(), (Shape{2, 4}));
  EXPECT_THAT(x.slice(1, 1, 3).to_vector<int>(), ElementsAre(1, 2, 5, 6, 9, 10));
  EXPECT_THAT(x.slice(-1, None, None, -3).to_vector<int>(), ElementsAre(3, 0, 7, 4, 11, 8));
  EXPECT_THAT(x.slice(1, -1, None).to_vector<int>(), ElementsAre(3, 7, 11));
  EXPECT_EQ(x.slice(0, 5, 9).shape(), (Shape{0, 4}));
  const Tensor w = Tensor::ones(3, 4, {.requires_grad = true});
  (w.slice(1, 0, 2) * 3).sum().backward();
  EXPECT_THAT(w.grad().to_vector<float>(), ElementsAre(3, 3, 0, 0, 3, 3, 0, 0, 3, 3, 0, 0));
  EXPECT_THROW(x.slice(2, 0), IndexError);
  EXPECT_THROW(Tensor(1).slice(0, 0), IndexError);
}

}  // namespace
}  // namespace tg
