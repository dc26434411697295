/// \file Rows of several processes: sums, and steps of training with batches divided.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <span>

#include "apps/tg/bench_reference.h"
#include "apps/tg/bench_tables.h"
#include "apps/tg/bench_world.h"
#include "tinygrad/nn/datasets.h"
#include "tinygrad/nn/optim.h"
#include "tinygrad/nn/parallel.h"
#include "tinygrad/runtime/buffer.h"
#include "tinygrad/runtime/world/world.h"
#include "tinygrad/tensor/jit/jit.h"

namespace tg::bench {
namespace {

/// Sums `elements` floats of all processes, `repeats` times in a row. Checks the first.
double serve_allreduce(int64_t elements, int repeats) {
  distributed::init();
  const int n = distributed::size(), me = distributed::rank();
  Collective c{.elements = elements};
  c.group.resize(static_cast<size_t>(n));
  std::iota(c.group.begin(), c.group.end(), 0);
  const BufferRef given = Buffer::create("CPU", elements, dtypes::float32),
                  sums = Buffer::create("CPU", elements, dtypes::float32);
  const auto floats = [&](const BufferRef& b) {
    return std::span(static_cast<float*>(b->ensure_allocated()), static_cast<size_t>(elements));
  };
  const std::span<float> in = floats(given), out = floats(sums);
  std::ranges::fill(in, static_cast<float>(me + 1));
  distributed::run(c, in.data(), out.data());
  const auto want = static_cast<float>(n * (n + 1) / 2);
  for (float v : out) BENCH_CHECK(v == want, "[bench] allreduce gave ", v, ", expected ", want);
  return serve_world(repeats, [&] { distributed::run(c, in.data(), out.data()); });
}

/// Trains a model on one batch, of which each process has a part, in a captured function. The first losses are those of
/// one process, in float64.
template <class M, class O, class Loss>
double serve_step(O& optimizer, const nn::Parallel<M>& parallel, Tensors batch, const Loss& loss,
                  std::span<const double> losses) {
  const nn::Training mode;
  const auto step = jit([&](const Tensor& x, const Tensor& y) {
    optimizer.zero_grad();
    const Tensor l = loss(parallel(x), y);
    parallel.backward(l);
    optimizer.step();
    return l.realize();
  });
  for (Tensor& t : batch) t = parallel.batch(t).contiguous().realize();  // the whole ones would get gradients too
  for (size_t i = 0; i < losses.size(); i++)
    check_close("loss of several processes", i, step(batch[0], batch[1]).template item<double>(),
                {losses[i], losses[i]}, 2e-3);
  return serve_world(1, [&] { step(batch[0], batch[1]).template item<float>(); });
}

constexpr double kMnistLosses[] = {2.72725721, 1.43219257, 0.895903568};
double serve_mnist() {
  distributed::init();
  const nn::datasets::Dataset data = nn::datasets::mnist();
  const models::ConvNet model;
  give_values(model);
  const auto parallel = nn::parallelize(model, Mesh({{"data", -1}}));
  nn::Adam optimizer(nn::get_parameters(model));
  Tensors batch{data.train_images[Slice(0, 512)].cast(dtypes::float32).contiguous().realize(),
                data.train_labels[Slice(0, 512)].contiguous().realize()};
  return serve_step(
      optimizer, parallel, std::move(batch),
      [](const Tensor& y, const Tensor& labels) { return y.sparse_categorical_crossentropy(labels); }, kMnistLosses);
}

constexpr double kGptLosses[] = {0.708488667, 0.616047416, 0.529812897};
double serve_gpt2() {
  constexpr int64_t kBatch = 4, kTime = 128, kChannels = 768;
  distributed::init();
  const models::GptBlock block(kChannels, 12);
  give_values(block);
  const auto parallel = nn::parallelize(block, Mesh({{"data", -1}}));
  nn::AdamW optimizer(nn::get_parameters(block));
  Tensors batch;
  for (uint64_t seed : {7, 9})
    batch.push_back(Tensor::from(random_floats(size_t{kBatch * kTime * kChannels}, seed), {kBatch, kTime, kChannels}));
  return serve_step(
      optimizer, parallel, std::move(batch),
      [](const Tensor& y, const Tensor& want) { return (y - want).square().mean(); }, kGptLosses);
}

constexpr Row kRows[] = {
    {"allreduce_64mb", "ms", "the sum of 64 MB of float32 of as many processes as threads",
     [](Context& c) { return ask_world(c, "allreduce_64mb", {.bytes_read = 64e6}); }},
    {"allreduce_1mb", "ms", "the sum of 1 MB of float32 of as many processes as threads",
     [](Context& c) { return ask_world(c, "allreduce_1mb", {.bytes_read = 1e6}); }},
    {"allreduce_4kb", "us", "the sum of 4 KB of float32 of as many processes as threads",
     [](Context& c) { return ask_world(c, "allreduce_4kb", {.bytes_read = 4e3}); }},
    {"ddp_mnist_step_512", "ms", "a step of training on MNIST, 512 images divided among as many processes as threads",
     [](Context& c) { return ask_world(c, "ddp_mnist_step_512", {}); }},
    {"ddp_gpt2_block_step", "ms",
     "a step of training a GPT-2 block, 4 x 128 tokens divided among as many processes as threads",
     [](Context& c) { return ask_world(c, "ddp_gpt2_block_step", {}); }},
};

constexpr ChildRow kChildren[] = {
    {"allreduce_64mb", [] { return serve_allreduce(16'000'000, 1); }},
    {"allreduce_1mb", [] { return serve_allreduce(250'000, 5); }},
    {"allreduce_4kb", [] { return serve_allreduce(1'000, 100); }},
    {"ddp_mnist_step_512", serve_mnist},
    {"ddp_gpt2_block_step", serve_gpt2},
};

}  // namespace

std::span<const Row> collective_rows() { return kRows; }
std::span<const ChildRow> collective_children() { return kChildren; }

}  // namespace tg::bench
