/// \file Messages that once led astray: each names the function the user called, what it got, and a way on that works.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "error/expect_error.h"
#include "temp_dir.h"
#include "tinygrad/base/env.h"
#include "tinygrad/io/jit_file.h"
#include "tinygrad/io/safetensors.h"
#include "tinygrad/runtime/host_compilers.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
using ::testing::HasSubstr;
using ::testing::Not;

template <class E, class F> std::string message(F&& f) {
  try {
    f();
  } catch (const E& e) { return e.what(); }
  return "no such error";
}

TEST(Messages, MemoryThatDoesNotExist) {
  const std::string text = message<OutOfMemoryError>([] { Tensor::zeros(1 << 20, 1 << 20).contiguous().realize(); });
  EXPECT_THAT(text, Not(HasSubstr("results of 0 B")));
  EXPECT_THAT(text, HasSubstr("TB"));
}

TEST(Messages, ReadingFloatsAsIntegers) {
  const Tensor t({1.5f, 2.5f});
  const std::string text = message<DTypeError>([&] { t.data<int>(); });
  EXPECT_THAT(text, HasSubstr("or to_vector<float>(), or a cast to integers first"));
  EXPECT_EQ(t.to_vector<float>(), (std::vector<float>{1.5, 2.5})) << "what it says works";
  EXPECT_EQ(t.cast(dtypes::int32).to_vector<int>(), (std::vector<int>{1, 2}));
  EXPECT_THAT(message<DTypeError>([] { Tensor({1, 2}).data<float>(); }), HasSubstr("or to_vector, which converts"));
}

TEST(Messages, Files) {
  const testing::TempDir dir;
  expect<FileError>([] { nn::safe_load("/nope/x.safetensors"); }, "safe_load", "/nope/x.safetensors: No such file");
  expect<FileError>([] { load_jit("/nope/x.jit"); }, "load_jit", "/nope/x.jit: No such file");
  const std::string text = message<FileError>([] { nn::safe_save({{"a", Tensor({1.f})}}, "/nope/x.safetensors"); });
  EXPECT_EQ(text, "[safe_save] /nope/x.safetensors: cannot be written: No such file or directory");
  const std::string file = dir / "text";
  std::ofstream(file) << "hello, this is some text\n";
  expect<FormatError>([&] { nn::safe_load(file); }, "safetensors", "is no safetensors file");
  expect<FormatError>([&] { load_jit(file); }, "load_jit", "is no file of a captured function");
  expect<ValueError>([&] { nn::safe_save({{"a", Tensor()}}, file); }, "safe_save", "an undefined tensor for a");
}

TEST(Messages, Backward) {
  Tensor x({1.f});
  const std::string text = message<GradientError>([&] { x.backward(); });
  EXPECT_THAT(text, HasSubstr("needs requires_grad_()"));
  x.requires_grad_().backward();
  EXPECT_EQ(x.grad().item<float>(), 1);
}

TEST(Messages, LearningRates) {
  const Tensors w{Tensor({1.f}).requires_grad_()};
  for (double lr : {std::nan(""), -1.0, double{INFINITY}}) {
    expect<ValueError>([&] { nn::SGD(w, {.lr = lr}); }, "SGD", "expected a finite number, 0 or more");
    expect<ValueError>([&] { nn::Adam(w, {.lr = lr}); }, "Adam", "expected a finite number, 0 or more");
  }
}

TEST(Messages, Creation) {
  float memory[3] = {1, 2, 3};
  expect<DTypeError>([&] { Tensor::from_blob(static_cast<void*>(memory), {3}, {}); }, "from_blob",
                     "got no dtype for shape (3,), expected the type of the elements");
  expect<ShapeError>([] { Tensor::from(std::vector<float>{1, 2, 3}, {2, 2}); }, "from",
                     "got 3 values for shape (2, 2), expected 4");
  EXPECT_EQ(Tensor::from(std::vector<float>{1, 2, 3, 4}, {-1, 2}).shape(), (Shape{2, 2}));
}

TEST(Messages, LayersNameThemselves) {
  const nn::Linear layer(4, 3);
  expect<ShapeError>([&] { layer(Tensor::zeros(2, 5)); }, "Linear", "got shape (2, 5), expected (..., 4)");
  expect<DeviceError>([&] { layer(Tensor({{1.f, 2.f, 3.f, 4.f}}).to("NULL")); }, "Linear", "expected one device");
  EXPECT_EQ(layer(Tensor::ones(2, 4)).shape(), (Shape{2, 3}));
  for (int64_t stride : {0, -1})
    expect<ShapeError>([&] { Tensor::zeros(1, 1, 8, 8).conv2d(Tensor::zeros(1, 1, 3, 3), {}, {.stride = {stride}}); },
                       "conv2d", str("got stride ", stride));
  expect<ShapeError>([&] { Tensor::zeros(1, 1, 8, 8).conv2d(Tensor::zeros(1, 1, 3, 3), {}, {.dilation = {0}}); },
                     "conv2d", "got dilation 0");
}

TEST(Messages, Einsum) {
  const Tensor a = Tensor::zeros(3, 5), b = Tensor::zeros(5, 4);
  expect<ValueError>([&] { Tensor::einsum("ij,jk-ik", {a, b}); }, "einsum",
                     "got '-' in 'ij,jk-ik', expected letters, ',', '...' and one '->'");
  expect<ValueError>([&] { Tensor::einsum("ij,jk->i->k", {a, b}); }, "einsum", "got '-'");
  expect<ValueError>([&] { Tensor::einsum("i.j,jk->ik", {a, b}); }, "einsum", "got '.'");
  EXPECT_EQ(Tensor::einsum("...j, jk -> ...k", {a, b}).shape(), (Shape{3, 4}));
}

TEST(Messages, CompilersThatAreMissing) {
  const Context none{{"CC", "/nope/clang"}, {"TG_LLVM_PLUGIN", "/nope"}, {"CACHELEVEL", 0}, {"DEV", "CPU:CLANG"}};
  const std::string text = message<CompileError>([] { (Tensor({1.f, 2.f}).realize() + 41).realize(); });
  if (llvm_plugin_info().opened) {  // by another test: it works, wherever the variable points now
    EXPECT_THAT(text, HasSubstr("DEV=CPU:LLVM does without"));
    return;
  }
  EXPECT_THAT(text, HasSubstr("CC names one, and the LLVM plugin was not found either"));
  EXPECT_THAT(text, Not(HasSubstr("does without")));
}

}  // namespace
}  // namespace tg
