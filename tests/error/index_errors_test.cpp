/// \file Mistakes with indices and writes: a typed error with the operation, what it got and what it expected.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "error/expect_error.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
Tensor m() { return Tensor::zeros({2, 3}).contiguous().realize(); }

TEST(IndexErrors, Reading) {
  expect<IndexError>([] { m()(2); }, "index", "out of bounds, expected -2 to 1");
  expect<IndexError>([] { m()(0, -4); }, "index", "index -4 for axis 1");
  expect<IndexError>([] { m()(0, Slice(), 0); }, "index", "too many indices (3)");
  expect<IndexError>([] { m()(Ellipsis, 0, Ellipsis); }, "index", "single ellipsis");
  expect<IndexError>([] { Tensor(3)(0); }, "index", "too many");
  expect<ValueError>([] { m()(Slice(None, None, 0)); }, "index", "step 0");
  expect<IndexError>([] { m()(Tensor({1.5})); }, "index", "not supported");
  expect<IndexError>([] { m()(Tensor({0, 1}), Tensor({0, 1, 2})); }, "index", "do not broadcast");
  expect<IndexError>([] { m()(Tensor({true, false, true})); }, "index", "a mask of shape (3,)");
  expect<DeviceError>([] { m()(Tensor::empty({2}, {.dtype = dtypes::int32, .device = "NULL"})); }, "index", "NULL");
  BoundVariable v = Variable("v", 1, 3).bind(2);
  expect<ValueError>([&] { m()(Slice(None, v, 2)); }, "index", "step 1");
  expect<ValueError>([&] { m()(Slice(v, 1)); }, "index", "never before the start");
  expect<IndexError>([&] { m()(Variable("w", 5, 9).bind(6)); }, "index", "out of bounds");
}

TEST(IndexErrors, Writing) {
  expect<ShapeError>([] { m().at(Slice(0, 1)) = Tensor({1.f, 2.f}); }, "setitem", "(2,) for elements of shape (1, 3)");
  expect<ShapeError>([] { m().at(Tensor({0, 1})) = Tensor::zeros(3, 3); }, "setitem", "(3, 3)");
  expect<DTypeError>([] { m().at(0) = Tensor({1, 2, 3}); }, "setitem", "dtype mismatch");
  expect<DTypeError>([] { Tensor(2.5).at(Ellipsis) = 1; }, "setitem", "cast it");
  expect<DeviceError>([] { m().at(0) = Tensor::empty({3}, {.device = "NULL"}); }, "assign", "NULL");
  expect<IndexError>([] { m().at(0, 3) = 1; }, "setitem", "index 3 for axis 1");
  expect<DTypeError>(
      [] {
        Tensor n = Tensor({1, 2}).realize();
        n.at(0) /= 2;
      },
      "setitem", "int32");
  expect<ShapeError>([] { m().index_put({0}, Tensor({1.f, 2.f})); }, "index_put", "(2,)");
}

TEST(IndexErrors, GatherAndScatter) {
  Tensor i({{0, 1}, {1, 0}});
  expect<ShapeError>([&] { m().gather(0, Tensor({0, 1})); }, "gather", "as many axes");
  expect<DTypeError>([&] { m().gather(0, i.to_float()); }, "gather", "integers");
  expect<IndexError>([&] { m().gather(2, i); }, "gather", "axis 2");
  expect<DTypeError>([&] { m().scatter(1, i, Tensor({{1, 2}, {3, 4}})); }, "scatter", "int32");
  expect<ShapeError>([&] { m().scatter(1, i, Tensor({{1.f}, {3.f}})); }, "scatter", "(2, 1)");
  expect<ShapeError>([&] { m().scatter_add(1, Tensor({{0}, {0}, {0}}), 1.0); }, "scatter_add", "(3, 1)");
}

TEST(IndexErrors, Files) {
  const std::string path = testing::TempDir() + "tinygrad_index_errors";
  std::filesystem::remove(path);
  Tensor file = Tensor::empty({2, 4}, {.dtype = dtypes::int32, .device = "DISK:" + path});
  file.assign(Tensor({{0, 1, 2, 3}, {4, 5, 6, 7}}));
  file.at(1, Slice(1, 3)) = {9, 8};
  EXPECT_EQ(file.to_vector<int>(), (std::vector<int>{0, 1, 2, 3, 4, 9, 8, 7}));
  EXPECT_EQ((file(1).to("CPU") + 1).to_vector<int>(), (std::vector<int>{5, 10, 9, 8}));
  EXPECT_EQ(file(0).bitcast(dtypes::uint8).to_vector<int>(),
            (std::vector<int>{0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0}));
  EXPECT_EQ(file(Slice(), 0).to_vector<int>(), (std::vector<int>{0, 4}));
  expect<Error>([&] { file.at(Slice(), 0) = 1; }, "assign", "non-contiguous view is not supported");
  expect<Error>([&] { file.at(Tensor({0})) = 1; }, "setitem", "advanced setitem is not supported");
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace tg
