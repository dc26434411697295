/// \file Kernels that read and write images: the results are those without images, and the images are there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "apps/tg/models.h"
#include "helpers/error_text.h"
#include "tinygrad/base/context.h"
#include "tinygrad/base/env.h"
#include "tinygrad/codegen/codegen.h"
#include "tinygrad/render/renderers.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/runtime/opencl_offline.h"
#include "tinygrad/schedule/schedule.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) n++;
  return n;
}

/// What the kernels of a graph do with images.
struct ImageUses {
  int kernels = 0, read = 0, written = 0;  ///< images, of all kernels
  size_t reads = 0, gated = 0;             ///< read_imagef in their text, those behind a condition
  int64_t width = 0;                       ///< of the widest image
  int ragged = 0;                          ///< images of several rows that are not whole pitches
};
ImageUses images_of(const Tensors& results, const Target& target) {
  const BoundSchedule s = schedule(results);
  const auto renderer = make_renderer(target);
  ImageUses uses;
  for (const ScheduleCall& call : s.schedule->calls) {
    if (!call.kernel) continue;
    const auto p = to_program(*call.kernel, *renderer);
    uses.kernels++;
    uses.reads += count(p->source, "read_imagef(");
    uses.gated += count(p->source, "? read_imagef(");
    for (const ImageSize& i : p->images) {
      (i.written ? uses.written : uses.read) += i.width > 0;
      uses.width = std::max(uses.width, i.width);
      uses.ragged += i.height > 1 && i.width % target.images.pitch;
    }
  }
  return uses;
}

Tensor random(const Shape& shape) { return (Tensor::rand(shape) * 2 - 1).realize(); }

struct Case {
  const char* name;
  Tensor (*run)();
  bool images = true;    ///< some kernel reads one
  double tolerance = 0;  ///< relative to the largest number: sums may be in another order
};
constexpr double kSums = 1e-5;
const Case kCases[] = {
    {"Elementwise", [] { return random({16, 64}) * 3 + random({16, 64}).exp2(); }},
    {"ElementwiseOfAnOddSize", [] { return random({15, 63}) * 3 + 1; }, false},
    {"Padded", [] { return random({6, 8}).pad({{1, 2}, {4, 0}}) + 1; }},
    {"SumOfRows", [] { return random({12, 64}).sum(1); }, true, kSums},
    {"SumOfColumns", [] { return random({64, 12}).sum(0); }, true, kSums},
    {"SumOfAll", [] { return random({64, 64}).sum(); }, true, kSums},
    {"Maximum", [] { return random({12, 64}).max(1); }},
    {"Softmax", [] { return random({8, 64}).softmax(1); }, true, kSums},
    {"Matmul", [] { return random({64, 32}).matmul(random({32, 48})); }, true, kSums},
    {"MatmulOfOddSizes", [] { return random({9, 13}).matmul(random({13, 7})); }, true, kSums},
    {"BatchedMatmul", [] { return random({3, 8, 12}).matmul(random({3, 12, 20})); }, true, kSums},
    {"Convolution", [] { return random({1, 8, 10, 12}).conv2d(random({16, 8, 3, 3}), random({16}), {.padding = 1}); },
     true, kSums},
    {"StridedConvolution",
     [] { return random({2, 3, 11, 9}).conv2d(random({8, 3, 3, 3}), {}, {.stride = 2, .padding = 1}); }, true, kSums},
    {"DilatedConvolution",
     [] { return random({1, 4, 11, 12}).conv2d(random({4, 4, 3, 3}), {}, {.dilation = 2, .padding = 2}); }, true,
     kSums},
    {"Pointwise", [] { return random({1, 16, 6, 6}).conv2d(random({24, 16, 1, 1})); }, true, kSums},
    {"GroupedConvolution", [] { return random({1, 16, 7, 7}).conv2d(random({8, 8, 3, 3}), {}, {.groups = 2}); }, true,
     kSums},
    {"DepthwiseConvolution",
     [] { return random({1, 16, 8, 8}).conv2d(random({16, 1, 3, 3}), {}, {.groups = 16, .padding = 1}); }, true, kSums},
    {"Pooling",
     [] {
       return random({1, 8, 9, 9}).conv2d(random({8, 8, 1, 1})).relu().max_pool2d({.kernel_size = 3, .padding = 1});
     },
     true, kSums},
    {"Gradient",
     [] {
       const Tensor w = random({8, 4, 3, 3}), x = random({2, 4, 8, 8});
       w.requires_grad_();
       x.conv2d(w, {}, {.padding = 1}).square().mean().backward();
       return w.grad();
     },
     true, kSums},
};

std::vector<float> result_on(const Case& c) {
  Tensor::manual_seed(7);
  return c.run().to_vector<float>();
}
void expect_near(const std::vector<float>& got, const std::vector<float>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  double largest = 0;
  for (float w : want) largest = std::max(largest, std::abs(static_cast<double>(w)));
  for (size_t i = 0; i < want.size(); i++) ASSERT_NEAR(got[i], want[i], tolerance * largest) << "element " << i;
}

/// Skips where a device is not here; the reason is its error.
#define NEED_DEVICE(name) \
  try {                   \
    Device::get(name);    \
  } catch (const DeviceError& e) { GTEST_SKIP() << e.what(); }

/// Returns the values of a case from buffers.
std::vector<float> without_images(const Case& c) {
  const Context off{{"IMAGE", 0}};
  return result_on(c);
}

class Images : public testing::TestWithParam<std::tuple<const char*, Case>> {};

TEST_P(Images, AreReadAndGiveTheSame) {
  const auto& [dev, c] = GetParam();
  NEED_DEVICE(dev)
  const Context place{{"DEV", dev}};
  const std::vector<float> want = without_images(c);
  {
    const Context off{{"IMAGE", 0}};
    Tensor::manual_seed(7);
    EXPECT_EQ(images_of({c.run()}, Device::get(dev).target()).read, 0);
  }
  const Context on{{"IMAGE", 1}};
  const Target& target = Device::get(dev).target();
  ASSERT_GT(target.images.width, 0);
  Tensor::manual_seed(7);
  const ImageUses uses = images_of({c.run()}, target);
  EXPECT_EQ(uses.read > 0, c.images);
  EXPECT_EQ(uses.reads > 0, c.images && target.renderer == "OPENCL");
  EXPECT_LE(uses.width, target.images.width);
  EXPECT_EQ(uses.ragged, 0);
  expect_near(result_on(c), want, c.tolerance);
}

TEST_P(Images, OfHalvesAreWithinTheirRounding) {
  const auto& [dev, c] = GetParam();
  NEED_DEVICE(dev)
  const Context place{{"DEV", dev}};
  const std::vector<float> want = without_images(c);
  constexpr double kHalf = 1.0 / (1 << 10);  // of a float16, and of products of two
  const Context on{{"IMAGE", 1}, {"FLOAT16", 1}};
  expect_near(result_on(c), want, 2 * kHalf);
}

std::string name_of(const testing::TestParamInfo<std::tuple<const char*, Case>>& info) {
  return std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param).name;
}
INSTANTIATE_TEST_SUITE_P(Devices, Images,
                         testing::Combine(testing::Values("INTERP", "CL", "QCOM"), testing::ValuesIn(kCases)), name_of);

// ---- what kernels look like, on a GPU whose rows are 64 pixels ----

class AdrenoKernels : public testing::Test {
 protected:
  const Context place_{{"DEV", "NULL:OPENCL:adreno"}, {"IMAGE", 1}};
  const Target& target_ = Device::get("NULL").target();
};

/// The border of an image stands for the padding of a convolution.
TEST_F(AdrenoKernels, PaddingNeedsNoConditions) {
  const Tensor x = Tensor::empty({1, 16, 16, 32}), w = Tensor::empty({32, 16, 3, 3});
  const ImageUses uses = images_of({x.conv2d(w, {}, {.padding = 1})}, target_);
  EXPECT_EQ(uses.kernels, 3);  // x in pixels, w in pixels, the convolution
  EXPECT_GT(uses.reads, 0u);
  EXPECT_EQ(uses.gated, 0u);
}
/// A thread reads a pixel of x and four of w for four channels.
TEST_F(AdrenoKernels, ProductsReadPixels) {
  const Tensor x = Tensor::empty({64, 256}), w = Tensor::empty({256, 256});
  const ImageUses uses = images_of({x.matmul(w)}, target_);
  EXPECT_EQ(uses.kernels, 1);
  EXPECT_EQ(uses.read, 2);
  EXPECT_EQ(uses.written, 1);
  EXPECT_EQ(uses.gated, 0u);
  EXPECT_LE(uses.reads, 8u);
}
TEST_F(AdrenoKernels, RowsArePaddedToThePitch) {
  const Tensor x = Tensor::empty({7, 60}), w = Tensor::empty({60, 36});
  const ImageUses uses = images_of({x.matmul(w)}, target_);
  EXPECT_EQ(uses.kernels, 3);  // both with longer rows, the product
  EXPECT_EQ(uses.ragged, 0);
  EXPECT_GE(uses.read, 2);
}
TEST_F(AdrenoKernels, WhatFitsNoImageStaysABuffer) {
  // Two rows of 2^14 + 1 pixels: one is too long, and no part of it is whole pitches.
  const Tensor x = Tensor::empty({2, 65540});
  EXPECT_EQ(images_of({x + 1}, target_).read, 0);
  EXPECT_EQ(images_of({Tensor::empty({4, 65536}) + 1}, target_).read, 1);
  EXPECT_EQ(images_of({Tensor::empty({64, 64}, {.dtype = dtypes::int32}) + 1}, target_).read, 0);
}
TEST_F(AdrenoKernels, ImagesCanBeTurnedOff) {
  EXPECT_GT(opencl_offline_target("adreno", -1).images.width, 0);
  EXPECT_EQ(opencl_offline_target("adreno", 0).images.width, 0);
  EXPECT_EQ(opencl_offline_target("intel", -1).images.width, 0);
  EXPECT_GT(opencl_offline_target("intel", 1).images.width, 0);
  EXPECT_NE(opencl_offline_target("adreno", 0).key(), opencl_offline_target("adreno", 1).key());
  EXPECT_THAT(test::error_text<ValueError>([] { opencl_offline_target("sm_90", 0); }),
              testing::HasSubstr("expected adreno, intel or none"));
}

}  // namespace
}  // namespace tg
