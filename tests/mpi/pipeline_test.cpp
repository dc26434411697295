/// \file Pipelines train as one process does.
#include "tinygrad/nn/pipeline.h"

#include <gtest/gtest.h>

#include "mpi/models.h"
#include "tinygrad/nn/parallel.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
using distributed::size;

constexpr int kSteps = 20, kBatch = 16;

/// Four blocks of GPT-2 between tables and scores.
struct Tower {
  nn::Embedding wte{Gpt::kSymbols, Block::kWidth};
  std::vector<Block> blocks = std::vector<Block>(4);
  nn::LayerNorm ln_f{Block::kWidth};
  nn::Linear lm_head{Block::kWidth, Gpt::kSymbols, false};
  TG_STATE(wte, blocks, ln_f, lm_head)

  Tensor operator()(const Tensor& x) const { return stage(x, 0, 4); }
  /// Blocks [first, last), and what is before the first and behind the last one.
  Tensor stage(Tensor x, int64_t first, int64_t last) const {
    if (first == 0) x = wte(x);
    for (int64_t i = first; i < last; i++) x = blocks[static_cast<size_t>(i)](x);
    return last == 4 ? lm_head(ln_f(x)) : x;
  }
  Tensors parameters(int64_t first, int64_t last) const {
    Tensors out;
    const auto add = [&](const Tensors& some) { out.insert(out.end(), some.begin(), some.end()); };
    if (first == 0) add(nn::get_parameters(wte));
    for (int64_t i = first; i < last; i++) add(nn::get_parameters(blocks[static_cast<size_t>(i)]));
    if (last == 4) {
      add(nn::get_parameters(ln_f));
      add(nn::get_parameters(lm_head));
    }
    return out;
  }
};

Tensors batch_of(const Tensors& data, int64_t i, int64_t parts = 1, int64_t part = 0) {
  Tensors out;
  const int64_t rows = kBatch / parts, begin = i * kBatch + part * rows;
  for (const Tensor& t : data) out.push_back(t[Slice(begin, begin + rows)].contiguous().realize());
  return out;
}

std::vector<float> of_one_process() {
  const nn::Training training;
  Tensor::manual_seed(3);
  const Tower model;
  const Tensors data = Gpt::samples(int64_t{kSteps} * kBatch);
  nn::AdamW opt(nn::get_parameters(model), {.lr = 1e-3});
  std::vector<float> out;
  for (int i = 0; i < kSteps; i++) {
    const Tensors b = batch_of(data, i);
    opt.zero_grad();
    const Tensor loss = loss_of(model(b[0]), b[1]).backward();
    opt.step();
    out.push_back(loss.item<float>());
  }
  return out;
}

/// Copies of a stage have the weights of the first of them, whatever they begin with.
std::vector<float> of_pipeline(const Mesh& mesh, int64_t microbatches, bool jitted) {
  const nn::Training training;
  const bool copied = mesh.axes().size() > 1;
  Tensor::manual_seed(3 + static_cast<uint64_t>(copied ? mesh.position("data") : 0));
  const Tower model;
  const Tensors data = Gpt::samples(int64_t{kSteps} * kBatch);
  const auto [first, last] = nn::stage_layers(4, mesh);
  const Tensors params = model.parameters(first, last);
  nn::AdamW opt(params, {.lr = 1e-3});
  nn::Pipeline pipeline([&, first = first, last = last](const Tensor& x) { return model.stage(x, first, last); },
                        loss_of, params, mesh, {.microbatches = microbatches});
  const int64_t copies = size() / pipeline.stages();
  const auto run = [&](const Tensor& x, const Tensor& y) {
    opt.zero_grad();
    const Tensor loss = pipeline.step(x, y);
    opt.step();
    return loss;
  };
  auto step = tg::jit(run);
  std::vector<float> out;
  for (int i = 0; i < kSteps; i++) {
    const Tensors b = batch_of(data, i, copies, copies > 1 ? mesh.position("data") : 0);
    out.push_back((jitted ? step(b[0], b[1]) : run(b[0], b[1])).item<float>());
  }
  return out;
}

void expect_losses_of_one_process(const std::vector<float>& got) {
  static const auto* want = new std::vector<float>(of_one_process());
  ASSERT_EQ(got.size(), want->size());
  EXPECT_LT(want->back(), 0.95f * want->front());
  for (size_t i = 0; i < got.size(); i++) EXPECT_NEAR(got[i], (*want)[i], 1e-5 * (*want)[i]) << "step " << i;
}

TEST(Pipeline, Stages) {
  const Mesh mesh({{"pipe", -1}});
  for (int64_t microbatches : {1, 2, 4, 8}) expect_losses_of_one_process(of_pipeline(mesh, microbatches, false));
}
TEST(Pipeline, Captured) { expect_losses_of_one_process(of_pipeline(Mesh({{"pipe", -1}}), 4, true)); }
TEST(Pipeline, CopiesOfStages) {
  expect_losses_of_one_process(of_pipeline(Mesh({{"data", size() > 2 ? 2 : 1}, {"pipe", -1}}), 4, false));
}
TEST(Pipeline, LayersOfStages) {
  const Mesh mesh({{"pipe", -1}});
  const auto [first, last] = nn::stage_layers(7, mesh);
  const Tensor counts = distributed::all_gather(Tensor(std::vector<int64_t>{first, last}), mesh, "pipe");
  const std::vector<int64_t> all = counts.to_vector<int64_t>();
  EXPECT_EQ(all.front(), 0);
  EXPECT_EQ(all.back(), 7);
  for (size_t i = 1; i + 1 < all.size(); i += 2) EXPECT_EQ(all[i], all[i + 1]);
  if (size() > 1) EXPECT_THROW(nn::stage_layers(size() - 1, mesh), ValueError);
}
TEST(Pipeline, AStageComputesEveryMicrobatchOnce) {
  const Mesh mesh({{"pipe", -1}});
  const Tensor w = Tensor::ones({4, 4}).contiguous();
  int calls = 0;
  bool wider = false;
  nn::Pipeline pipeline(
      [&](const Tensor& x) {
        calls++;
        const Tensor y = x.matmul(w);
        return wider ? Tensor::cat({y, y}, 1) : y;
      },
      [](const Tensor& y, const Tensor& labels) { return (y - labels).square().mean(); }, {w}, mesh,
      {.microbatches = 2});
  for (int step = 1; step <= 2; step++) {
    pipeline.step(Tensor::ones({4, 4}), Tensor::zeros({4, 4}));
    EXPECT_EQ(calls, 2 * step);
  }
  wider = true;
  if (size() > 1 && pipeline.stage() == 0)
    EXPECT_THROW(pipeline.step(Tensor::ones({4, 4}), Tensor::zeros({4, 4})), ShapeError);
}
TEST(Pipeline, MistakesAreErrors) {
  const Mesh mesh({{"pipe", -1}});
  const auto same = [](const Tensor& x) { return x; };
  const Tensor w = Tensor::ones(4, 4).contiguous();
  EXPECT_THROW(nn::Pipeline(same, loss_of, {w}, Mesh({{"data", -1}})), ValueError);
  EXPECT_THROW(nn::Pipeline(same, loss_of, {w}, mesh, {.microbatches = 0}), ValueError);
  nn::Pipeline pipeline(same, loss_of, {w}, mesh, {.microbatches = 3});
  EXPECT_THROW(pipeline.step(Tensor::ones(4, 4), Tensor::ones(4)), ShapeError);
}
}  // namespace
}  // namespace tg
