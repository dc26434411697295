/// \file Rows of several processes: exchanges, and steps of training with batches divided.
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

/// Returns what every process has of piece `i` after an operation on rank + 1 in each.
float expected(CollectiveKind what, int64_t i, int n) {
  switch (what) {
    case CollectiveKind::kAllGather:
    case CollectiveKind::kAllToAll: return static_cast<float>(i + 1);
    case CollectiveKind::kBroadcast: return 1;
    default: return static_cast<float>(n * (n + 1) / 2);
  }
}

/// Exchanges `elements` floats, of which a process gives or gets a part where the operation divides them, `repeats`
/// times in a row. Checks the first.
double serve_exchange(CollectiveKind what, int64_t elements, int repeats) {
  distributed::init();
  const int n = distributed::size(), me = distributed::rank();
  const bool gives_all = what == CollectiveKind::kReduceScatter || what == CollectiveKind::kAllToAll,
             gets_all = what == CollectiveKind::kAllGather || what == CollectiveKind::kAllToAll;
  const int64_t piece = gives_all || gets_all ? elements / n : elements;
  Collective c{.what = what, .elements = piece};
  c.group.resize(static_cast<size_t>(n));
  std::iota(c.group.begin(), c.group.end(), 0);
  const auto buffer = [&](bool all) { return Buffer::create("CPU", all ? piece * n : piece, dtypes::float32); };
  const BufferRef given = buffer(gives_all), got = buffer(gets_all);
  const auto floats = [&](const BufferRef& b, bool all) {
    return std::span(static_cast<float*>(b->ensure_allocated()), static_cast<size_t>(all ? piece * n : piece));
  };
  const std::span<float> in = floats(given, gives_all), out = floats(got, gets_all);
  std::ranges::fill(in, static_cast<float>(me + 1));
  distributed::run(c, in.data(), out.data());
  for (size_t i = 0; i < out.size(); i++) {
    const float want = expected(what, static_cast<int64_t>(i) / piece, n);
    BENCH_CHECK(out[i] == want, "[bench] ", name_of(what), " gave ", out[i], ", expected ", want);
  }
  return serve_world(repeats, [&] { distributed::run(c, in.data(), out.data()); });
}
double serve_allreduce(int64_t elements, int repeats) {
  return serve_exchange(CollectiveKind::kAllReduce, elements, repeats);
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

constexpr const char* kGroup = "collective";
constexpr Row kRows[] = {
    {"allreduce_64mb", "ms", "the sum of 64 MB of float32 of as many processes as threads",
     [](Context& c) { return ask_world(c, "allreduce_64mb", {.bytes_read = 64e6}); }, kGroup},
    {"allreduce_1mb", "ms", "the sum of 1 MB of float32 of as many processes as threads",
     [](Context& c) { return ask_world(c, "allreduce_1mb", {.bytes_read = 1e6}); }, kGroup},
    {"allreduce_4kb", "us", "the sum of 4 KB of float32 of as many processes as threads",
     [](Context& c) { return ask_world(c, "allreduce_4kb", {.bytes_read = 4e3}); }, kGroup},
    {"reduce_scatter_64mb", "ms", "the sum of 64 MB of float32, of which each process gets a part",
     [](Context& c) { return ask_world(c, "reduce_scatter_64mb", {.bytes_read = 64e6}); }, kGroup},
    {"all_gather_64mb", "ms", "64 MB of float32 of all processes together, in each",
     [](Context& c) { return ask_world(c, "all_gather_64mb", {.bytes_read = 64e6}); }, kGroup},
    {"all_to_all_64mb", "ms", "64 MB of float32 in each process, of which it gives each other one a part",
     [](Context& c) { return ask_world(c, "all_to_all_64mb", {.bytes_read = 64e6}); }, kGroup},
    {"broadcast_64mb", "ms", "64 MB of float32 of one process, in each",
     [](Context& c) { return ask_world(c, "broadcast_64mb", {.bytes_read = 64e6}); }, kGroup},
    {"ddp_mnist_step_512", "ms", "a step of training on MNIST, 512 images divided among as many processes as threads",
     [](Context& c) { return ask_world(c, "ddp_mnist_step_512", {}); }, kGroup},
    {"ddp_gpt2_block_step", "ms",
     "a step of training a GPT-2 block, 4 x 128 tokens divided among as many processes as threads",
     [](Context& c) { return ask_world(c, "ddp_gpt2_block_step", {}); }, kGroup},
};

constexpr ChildRow kChildren[] = {
    {"allreduce_64mb", [] { return serve_allreduce(16'000'000, 1); }},
    {"allreduce_1mb", [] { return serve_allreduce(250'000, 5); }},
    {"allreduce_4kb", [] { return serve_allreduce(1'000, 100); }},
    {"reduce_scatter_64mb", [] { return serve_exchange(CollectiveKind::kReduceScatter, 16'000'000, 1); }},
    {"all_gather_64mb", [] { return serve_exchange(CollectiveKind::kAllGather, 16'000'000, 1); }},
    {"all_to_all_64mb", [] { return serve_exchange(CollectiveKind::kAllToAll, 16'000'000, 1); }},
    {"broadcast_64mb", [] { return serve_exchange(CollectiveKind::kBroadcast, 16'000'000, 1); }},
    {"ddp_mnist_step_512", serve_mnist},
    {"ddp_gpt2_block_step", serve_gpt2},
};

}  // namespace

std::span<const Row> collective_rows() { return kRows; }
std::span<const ChildRow> collective_children() { return kChildren; }

}  // namespace tg::bench
