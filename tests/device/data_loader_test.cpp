/// \file DataLoader: order, workers, errors; transforms of images.
#include "tinygrad/nn/data_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <set>

#include "device/nn_helpers.h"
#include "tinygrad/nn/transforms.h"

namespace tg::nn {
namespace {

using test::expect_close;
using test::ramp;
using testing::ElementsAre;

/// Samples of two fields: their number as int32, and as two floats i and i / 2.
SampleSource numbers(int64_t n) {
  return {n, {{{}, dtypes::int32}, {{2}, dtypes::float32}}, [](int64_t i, std::span<std::byte* const> out) {
            const auto v = static_cast<int32_t>(i);
            const float f[] = {static_cast<float>(i), static_cast<float>(i) / 2};
            std::memcpy(out[0], &v, 4);
            std::memcpy(out[1], f, 8);
          }};
}
std::vector<int> samples(DataLoader& loader) {
  std::vector<int> out;
  for (const Tensors& batch : loader)
    for (int i : batch[0].to_vector<int>()) out.push_back(i);
  return out;
}

TEST(DataLoader, BatchesInOrder) {
  DataLoader loader(numbers(7), {.batch_size = 3});
  EXPECT_EQ(loader.size(), 3);
  std::vector<int64_t> sizes;
  for (const Tensors& batch : loader) {
    sizes.push_back(batch[0].shape(0));
    EXPECT_EQ(batch[1].shape(), (Shape{batch[0].shape(0), 2}));
    EXPECT_EQ(batch[1](Slice(), 1).to_vector<float>()[0] * 2, batch[0].to_vector<float>()[0]);
    EXPECT_EQ(batch[1].requires_grad(), false);
  }
  EXPECT_THAT(sizes, ElementsAre(3, 3, 1));
  DataLoader whole(numbers(7), {.batch_size = 3, .drop_last = true});
  EXPECT_EQ(samples(whole).size(), 6u);
  DataLoader none(numbers(0));
  EXPECT_TRUE(samples(none).empty());
}

TEST(DataLoader, ShufflesBySeedAndEpochWhateverTheWorkers) {
  DataLoader a(numbers(50), {.batch_size = 4, .shuffle = true, .seed = 3}),
      b(numbers(50), {.batch_size = 4, .shuffle = true, .seed = 3, .workers = 3});
  DataLoader other(numbers(50), {.batch_size = 4, .shuffle = true, .seed = 4});
  const std::vector<int> first = samples(a), second = samples(a);
  EXPECT_EQ(std::set<int>(first.begin(), first.end()).size(), 50u);
  EXPECT_NE(first, second);
  EXPECT_EQ(samples(b), first);
  EXPECT_EQ(samples(b), second);
  EXPECT_NE(samples(other), first);
  b.set_epoch(0);
  EXPECT_EQ(samples(b), first);
  EXPECT_EQ(DataLoader(numbers(5), {.shuffle = true}).order(0), DataLoader(numbers(5), {.shuffle = true}).order(0));
}

TEST(DataLoader, PartsAreTheBatchesOfOneLoader) {
  const auto part = [](int64_t n, int64_t i, int workers) {
    return DataLoader(
        numbers(50),
        {.batch_size = 12, .shuffle = true, .seed = 3, .drop_last = true, .workers = workers, .parts = n, .part = i});
  };
  DataLoader whole = part(1, 0, 0);
  std::vector<int> want[2] = {samples(whole), samples(whole)};
  for (int64_t n : {2, 3, 4}) {
    for (int epoch = 0; epoch < 2; epoch++) {
      std::vector<std::vector<int>> got;
      for (int64_t i = 0; i < n; i++) {
        DataLoader mine = part(n, i, static_cast<int>(i));
        EXPECT_EQ(mine.size(), 4);
        mine.set_epoch(epoch);
        got.push_back(samples(mine));
      }
      std::vector<int> joined;
      for (size_t batch = 0; batch < 4; batch++)
        for (const std::vector<int>& g : got) {
          const auto rows = static_cast<std::ptrdiff_t>(12 / n), at = static_cast<std::ptrdiff_t>(batch) * rows;
          joined.insert(joined.end(), g.begin() + at, g.begin() + at + rows);
        }
      EXPECT_EQ(joined, want[epoch]);
    }
  }
}

TEST(DataLoader, PartsDivideEveryBatch) {
  EXPECT_THROW(DataLoader(numbers(8), {.batch_size = 4, .parts = 3}), ValueError);
  EXPECT_THROW(DataLoader(numbers(9), {.batch_size = 4, .parts = 2}), ValueError);
  EXPECT_THROW(DataLoader(numbers(8), {.batch_size = 4, .parts = 2, .part = 2}), ValueError);
  EXPECT_THROW(DataLoader(numbers(8), {.batch_size = 4, .parts = 0}), ValueError);
  DataLoader last(numbers(10), {.batch_size = 4, .parts = 2, .part = 1});
  EXPECT_THAT(samples(last), ElementsAre(2, 3, 6, 7, 9));
}

TEST(DataLoader, WorkersStayWithinPrefetch) {
  std::atomic<int> read = 0;
  SampleSource source = numbers(40);
  source.read = [&read, inner = source.read](int64_t i, std::span<std::byte* const> out) {
    read++;
    inner(i, out);
  };
  DataLoader loader(source, {.batch_size = 2, .workers = 2, .prefetch = 3});
  int used = 0;
  for (const Tensors& batch : loader) {
    used += static_cast<int>(batch[0].shape(0));
    EXPECT_LE(read, used + 2 * 3);
    if (used >= 20) break;  // the workers end with the loop
  }
  EXPECT_EQ(used, 20);
}

TEST(DataLoader, ErrorsOfTheReaderArrive) {
  SampleSource source = numbers(10);
  source.read = [inner = source.read](int64_t i, std::span<std::byte* const> out) {
    TG_CHECK(FormatError, i != 5, "sample 5 is broken");
    inner(i, out);
  };
  for (int workers : {0, 2}) {
    DataLoader loader(source, {.batch_size = 2, .workers = workers});
    int batches = 0;
    EXPECT_THROW(
        for (const Tensors& batch : loader) {
          batches++;
          EXPECT_EQ(batch.size(), 2u);
        },
        FormatError);
    EXPECT_EQ(batches, 2);
  }
}

TEST(DataLoader, RowsOfTensorsAndTransforms) {
  const Tensor x = ramp({5, 2, 3}, 1, 0), y = Tensor({0, 1, 2, 3, 4});
  DataLoader loader(
      SampleSource::of({x, y}),
      {.batch_size = 2, .workers = 1, .transforms = {[](const Tensors& b) { return Tensors{b[0] * 2, b[1]}; }}});
  Tensors xs, ys;
  for (const Tensors& batch : loader) {
    xs.push_back(batch[0]);
    ys.push_back(batch[1]);
  }
  EXPECT_EQ(Tensor::cat(xs).to_vector<float>(), (x * 2).to_vector<float>());
  EXPECT_EQ(Tensor::cat(ys).to_vector<int>(), y.to_vector<int>());
}

TEST(DataLoader, Errors) {
  EXPECT_THROW(DataLoader(numbers(3), {.batch_size = 0}), ValueError);
  EXPECT_THROW(DataLoader(numbers(3), {.workers = -1}), ValueError);
  EXPECT_THROW(DataLoader(SampleSource{}), ValueError);
  EXPECT_THROW(SampleSource::of({}), ValueError);
  EXPECT_THROW(SampleSource::of({Tensor::zeros(3, 2), Tensor::zeros(4)}), ShapeError);
}

// ---- transforms ----

Tensor bytes(const Shape& shape) {
  std::vector<uint8_t> v(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < v.size(); i++) v[i] = static_cast<uint8_t>(i * 7 % 256);
  return Tensor::from(v, shape);
}

TEST(Transforms, Normalize) {
  const Tensor x = bytes({2, 3, 2, 2});
  const std::vector<float> got = transforms::normalize(x, {0.5, 0.25, 0}, {0.5, 1, 2}).to_vector<float>();
  const std::vector<int> in = x.to_vector<int>();
  const double mean[] = {0.5, 0.25, 0}, std[] = {0.5, 1, 2};
  for (size_t i = 0; i < got.size(); i++) EXPECT_NEAR(got[i], (in[i] / 255.0 - mean[i / 4 % 3]) / std[i / 4 % 3], 1e-5);
  EXPECT_EQ(transforms::normalize(ramp({1, 2, 1, 1}, 1, 0), {1}, {2}).to_vector<float>(),
            (std::vector<float>{-5, -1.5}));
  EXPECT_THROW(transforms::normalize(x, {1, 2}, {1}), ShapeError);
  EXPECT_THROW(transforms::normalize(x, {1}, {0}), ValueError);
  EXPECT_THROW(transforms::normalize(Tensor::zeros(2, 3), {0}, {1}), ShapeError);
}

TEST(Transforms, CropsAreWindowsOfTheImage) {
  Tensor::manual_seed(5);
  const Tensor x = ramp({1, 2, 6, 7}, 1, 0).expand(16, 2, 6, 7).contiguous();
  const Tensor y = transforms::random_crop(x, 4, 3);
  EXPECT_EQ(y.shape(), (Shape{16, 2, 4, 3}));
  std::set<std::pair<int, int>> seen;
  for (int n = 0; n < 16; n++) {
    const std::vector<float> one = y[n].to_vector<float>();
    bool found = false;
    for (int i = 0; i <= 2 && !found; i++)
      for (int j = 0; j <= 4 && !found; j++)
        if (x(n, Slice(), Slice(i, i + 4), Slice(j, j + 3)).to_vector<float>() == one) {
          found = true;
          seen.insert({i, j});
        }
    EXPECT_TRUE(found) << "image " << n;
  }
  EXPECT_GT(seen.size(), 4u);
  EXPECT_EQ(transforms::random_crop(x, 6, 7, {.padding = 2}).shape(), x.shape());
  EXPECT_EQ(transforms::random_crop(x, 6, 7).to_vector<float>(), x.to_vector<float>());
  EXPECT_EQ(transforms::center_crop(x, 2, 3).to_vector<float>(),
            x(Slice(), Slice(), Slice(2, 4), Slice(2, 5)).to_vector<float>());
  EXPECT_THROW(transforms::random_crop(x, 7, 7), ShapeError);
  EXPECT_THROW(transforms::center_crop(x, 0, 7), ShapeError);
}

TEST(Transforms, Flip) {
  Tensor::manual_seed(2);
  const Tensor x = ramp({64, 1, 2, 3}, 1, 0), y = transforms::random_flip(x).realize();
  int flipped = 0;
  for (int n = 0; n < 64; n++) {
    const bool same = y[n].to_vector<float>() == x[n].to_vector<float>();
    if (!same) EXPECT_EQ(y[n].to_vector<float>(), x[n].flip(2).to_vector<float>());
    flipped += !same;
  }
  EXPECT_GT(flipped, 16);
  EXPECT_LT(flipped, 48);
  EXPECT_EQ(transforms::random_flip(x, 0).to_vector<float>(), x.to_vector<float>());
  EXPECT_EQ(transforms::random_flip(x, 1, true).to_vector<float>(), x.flip(2).to_vector<float>());
  EXPECT_THROW(transforms::random_flip(x, 2), ValueError);
}

TEST(Transforms, CutmixMixesLabelsByArea) {
  Tensor::manual_seed(4);
  const int64_t n = 8;
  const Tensor x =
      Tensor::arange(0, n, 1, {.dtype = dtypes::float32}).reshape(n, 1, 1, 1).expand(n, 3, 8, 8).contiguous();
  const auto [images, labels] = transforms::cutmix(x, Tensor::arange(n).one_hot(n).to_float());
  realize(images, labels);
  const std::vector<float> pixels = images.to_vector<float>(), rows = labels.to_vector<float>();
  int mixed = 0;
  for (size_t i = 0; i < 8; i++) {
    std::vector<float> share(8, 0.f);
    for (size_t p = 0; p < 192; p++) share[static_cast<size_t>(pixels[i * 192 + p])] += 1.f / 192;
    for (size_t c = 0; c < 8; c++) EXPECT_NEAR(rows[i * 8 + c], share[c], 1e-5);
    mixed += share[i] < 0.999f;
  }
  EXPECT_GT(mixed, 2);
  EXPECT_THROW(transforms::cutmix(x, Tensor::arange(n)), ShapeError);
}

TEST(Transforms, Mixup) {
  Tensor::manual_seed(6);
  const int64_t n = 6;
  const Tensor x =
      Tensor::arange(0, n, 1, {.dtype = dtypes::float32}).reshape(n, 1, 1, 1).expand(n, 1, 2, 2).contiguous();
  const auto [images, labels] = transforms::mixup(x, Tensor::arange(n).one_hot(n).to_float());
  realize(images, labels);
  const Tensor means = labels.matmul(Tensor::arange(0, n, 1, {.dtype = dtypes::float32}));
  expect_close(images(Slice(), 0, 0, 0), means.to_vector<float>(), 1e-5);
  expect_close(labels.sum(1), std::vector<float>(6, 1.f), 1e-5);
}

}  // namespace
}  // namespace tg::nn
