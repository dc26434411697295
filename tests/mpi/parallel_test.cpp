/// \file nn::parallelize: models divided in every way train as in one process.
#include "tinygrad/nn/parallel.h"

#include <gtest/gtest.h>

#include <sstream>

#include "mpi/models.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
using distributed::size;
using nn::Division;
using nn::ParallelPlan;

constexpr int kSteps = 20, kBatch = 16;

void expect_equal(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); i++) EXPECT_NEAR(got[i], want[i], 1e-5 * want[i]) << "step " << i;
}

/// Returns the losses of `kSteps` steps of a model; without a mesh those of one process.
template <class M>
std::vector<float> losses(const M& model, const Tensors& data, const Mesh* mesh, const ParallelPlan& plan,
                          bool jitted) {
  const nn::Training training;
  const Mesh alone = mesh ? *mesh : Mesh({{"data", -1}});
  std::optional<nn::Parallel<M>> parallel;
  if (mesh) parallel.emplace(model, *mesh, plan);
  nn::AdamW opt(nn::get_parameters(model), {.lr = 1e-3});
  if (parallel) parallel->place_state(opt);
  const auto run = [&](const Tensor& x, const Tensor& y) {
    opt.zero_grad();
    const Tensor loss = loss_of(parallel ? (*parallel)(x) : model(x), y);
    if (parallel) parallel->backward(loss);
    else loss.backward();
    opt.step();
    return loss.realize();
  };
  auto step = tg::jit(run);
  std::vector<float> out;
  for (int i = 0; i < kSteps; i++) {
    const auto rows = [&](const Tensor& t) {
      const Tensor b = t[Slice(i * kBatch, (i + 1) * kBatch)].contiguous();
      return (parallel ? parallel->batch(b) : b).contiguous().realize();
    };
    const Tensor x = rows(data[0]), y = rows(data[1]);
    out.push_back((jitted ? step(x, y) : run(x, y)).template item<float>());
  }
  return out;
}

template <class M> std::vector<float> trained(const Mesh* mesh, const ParallelPlan& plan, bool jitted = false) {
  Tensor::manual_seed(3);
  const M model;
  return losses(model, M::samples(int64_t{kSteps} * kBatch), mesh, plan, jitted);
}
template <class M> const std::vector<float>& of_one_process() {
  static const auto* v = new std::vector<float>(trained<M>(nullptr, {}));
  return *v;
}
template <class M> void expect_losses_of_one_process(const Mesh& mesh, const ParallelPlan& plan) {
  for (bool jitted : {false, true}) expect_equal(trained<M>(&mesh, plan, jitted), of_one_process<M>());
}

const Mesh& line() {
  static const auto* m = new Mesh({{"data", -1}});
  return *m;
}
const Mesh& row() {
  static const auto* m = new Mesh({{"tensor", -1}});
  return *m;
}
Mesh square() { return Mesh({{"data", size() > 2 ? 2 : 1}, {"tensor", -1}}); }
const std::vector<nn::DivisionRule> kDigitRules{{"l1.*", Division::kColumn}, {"l2.weight", Division::kRow}};

TEST(ParallelDigits, TheyLearn) {
  EXPECT_LT(of_one_process<Digits>().back(), 0.85f * of_one_process<Digits>().front());
  EXPECT_LT(of_one_process<Gpt>().back(), 0.95f * of_one_process<Gpt>().front());
}
TEST(ParallelDigits, DataParallel) { expect_losses_of_one_process<Digits>(line(), {}); }
TEST(ParallelDigits, OptimizerStateDivided) { expect_losses_of_one_process<Digits>(line(), {.zero = 1}); }
TEST(ParallelDigits, GradientsDivided) { expect_losses_of_one_process<Digits>(line(), {.zero = 2}); }
TEST(ParallelDigits, WeightsDivided) { expect_losses_of_one_process<Digits>(line(), {.zero = 3, .whole_below = 1}); }
TEST(ParallelDigits, TensorParallel) { expect_losses_of_one_process<Digits>(row(), {.divisions = kDigitRules}); }
TEST(ParallelDigits, OnASquare) {
  expect_losses_of_one_process<Digits>(square(), {.zero = 3, .divisions = kDigitRules, .whole_below = 1});
}

TEST(ParallelBlock, DataParallel) { expect_losses_of_one_process<Gpt>(line(), {}); }
TEST(ParallelBlock, WeightsAreThoseOfTheFirstProcess) {
  Tensor::manual_seed(3 + static_cast<uint64_t>(distributed::rank()));
  const Gpt model;
  expect_equal(losses(model, Gpt::samples(int64_t{kSteps} * kBatch), &line(), {}, false), of_one_process<Gpt>());
}
TEST(ParallelBlock, GradientsDivided) { expect_losses_of_one_process<Gpt>(line(), {.zero = 2}); }
TEST(ParallelBlock, WeightsDivided) { expect_losses_of_one_process<Gpt>(line(), {.zero = 3, .whole_below = 1}); }
TEST(ParallelBlock, TensorParallel) { expect_losses_of_one_process<Gpt>(row(), {}); }
TEST(ParallelBlock, TablesDividedByRows) {
  expect_losses_of_one_process<Gpt>(row(), {.divisions = {{"w*e.weight", Division::kColumn}}});
}
TEST(ParallelBlock, TablesDividedByTheirWidth) {
  expect_losses_of_one_process<Gpt>(row(), {.divisions = {{"w*e.weight", Division::kRow}}});
}
TEST(ParallelBlock, SequenceParallel) { expect_losses_of_one_process<Gpt>(row(), {.sequence = true}); }
TEST(ParallelBlock, OnASquare) {
  expect_losses_of_one_process<Gpt>(square(), {.zero = 3, .sequence = true, .whole_below = 1});
}

TEST(ParallelFused, TensorParallel) { expect_losses_of_one_process<FusedGpt>(row(), {.heads = 4}); }
TEST(ParallelFused, SequenceParallel) { expect_losses_of_one_process<FusedGpt>(row(), {.sequence = true}); }
TEST(ParallelFused, OnASquare) {
  expect_losses_of_one_process<FusedGpt>(square(), {.zero = 3, .sequence = true, .whole_below = 1});
}
TEST(ParallelFused, EachProcessHasItsHeads) {
  using Spec = std::vector<std::string>;
  for (const bool five_axes : {false, true}) {
    Tensor::manual_seed(3);
    FusedGpt model;
    model.block.five_axes = five_axes;
    const Tensor before = model.block.c_attn.weight.contiguous().realize();
    const std::vector<float> whole = before.to_vector<float>();
    const Tensor data = FusedGpt::samples(8)[0];
    const std::vector<float> want = model(data).to_vector<float>();
    auto parallel = nn::parallelize(model, row(), {});
    EXPECT_EQ(parallel.spec("block.c_attn.weight"), (Spec{size() > 1 ? "tensor:3" : "", ""}));
    EXPECT_EQ(parallel.spec("block.c_attn.bias"), Spec{size() > 1 ? "tensor:3" : ""});
    EXPECT_EQ(parallel.spec("block.gate_up.weight"), (Spec{size() > 1 ? "tensor:2" : "", ""}));
    const int64_t width = FusedBlock::kWidth, rows = width / size();
    const Tensor mine = model.block.c_attn.weight.to_local();
    ASSERT_EQ(mine.shape(), Shape({3 * rows, width}));
    const std::vector<float> got = mine.to_vector<float>();
    for (int64_t part = 0; part < 3; part++)
      for (int64_t i = 0; i < rows * width; i++)
        ASSERT_EQ(got[static_cast<size_t>(part * rows * width + i)],
                  whole[static_cast<size_t>((part * width + distributed::rank() * rows) * width + i)]);
    EXPECT_EQ(model.block.c_attn.weight.to_vector<float>(), whole);  // in its natural order
    const Tensor x = parallel.batch(data).contiguous().realize();
    GlobalCounters::reset();
    const Tensor y = parallel(x).realize();
    EXPECT_EQ(GlobalCounters::collectives, size() > 1 ? 2 : 0);  // the sums of two layers; no weight, no head
    const std::vector<float> scores = y.to_vector<float>();
    for (size_t i = 0; i < want.size(); i++) ASSERT_NEAR(scores[i], want[i], 2e-6) << i;
  }
}
TEST(ParallelFused, MultiheadAttentionIsDividedByHeads) {
  Tensor::manual_seed(3);
  const nn::MultiheadAttention attention(32, 4);
  const Tensor x = Tensor::rand({2, 5, 32}).contiguous().realize();
  const std::vector<float> want = attention(x, {.causal = true}).to_vector<float>();
  auto parallel = nn::parallelize(attention, row(), {.heads = 4});
  EXPECT_EQ(attention.in_proj_weight.to_local().shape(0), 96 / size());
  const Tensor placed = parallel.batch(x).contiguous().realize();
  GlobalCounters::reset();
  const Tensor y = parallel.run([&] { return attention(placed, {.causal = true}); }).realize();
  EXPECT_EQ(GlobalCounters::collectives, size() > 1 ? 1 : 0);
  const std::vector<float> got = y.to_vector<float>();
  for (size_t i = 0; i < want.size(); i++) ASSERT_NEAR(got[i], want[i], 2e-6) << i;
}
TEST(ParallelFused, AMatrixOfFewerKeysThanQueriesStaysWhole) {
  struct Shared {
    nn::Linear qkv_proj{32, 64};
    TG_STATE(qkv_proj)
  };
  const Shared model;
  auto parallel = nn::parallelize(model, row(), {});
  EXPECT_EQ(parallel.spec("qkv_proj.weight"), (std::vector<std::string>{"", ""}));
  EXPECT_EQ(parallel.spec("qkv_proj.bias"), std::vector<std::string>{""});
}
TEST(ParallelFused, HeadsThatAreNoMultipleAreErrors) {
  if (size() == 1) return;  // divides everything
  const auto expect_error = [](const auto& model, const ParallelPlan& plan, const std::string& want) {
    try {
      nn::parallelize(model, row(), plan);
      ADD_FAILURE() << "no error";
    } catch (const ShapeError& e) { EXPECT_NE(std::string(e.what()).find(want), std::string::npos) << e.what(); }
  };
  const std::string processes = str(" for ", size(), " processes along 'tensor', expected a multiple");
  expect_error(FusedGpt(), {.heads = 3}, "[parallelize] got 3 heads in block.c_attn.weight" + processes);
  expect_error(Gpt(), {.heads = 4, .kv_heads = 1},
               "[parallelize] got 1 heads of keys and values in block.k.weight" + processes);
  const nn::MultiheadAttention odd(12 * 5, 3);
  auto parallel = nn::parallelize(odd, row(), {});
  const std::string want = str("[MultiheadAttention] got 3 heads in in_proj_weight for ", size(), " processes");
  try {
    parallel.run([&] { return odd(parallel.batch(Tensor::ones(2, 5, 60))); });
    ADD_FAILURE() << "no error";
  } catch (const ShapeError& e) { EXPECT_NE(std::string(e.what()).find(want), std::string::npos) << e.what(); }
  const nn::Linear uneven(4, 3 * size() + 3);
  expect_error(uneven, {.divisions = {{"weight", Division::kThirds}}}, " in 3 blocks, expected a multiple");
}

/// Numbers of elements that this process keeps of the weights and of an optimizer's state.
struct Kept {
  int64_t weights = 0, state = 0;
};
Kept kept_of(const Gpt& model, const ParallelPlan& plan) {
  auto parallel = nn::parallelize(model, line(), plan);
  nn::AdamW opt(nn::get_parameters(model));
  parallel.place_state(opt);
  Kept out;
  for (const Tensor& t : nn::get_parameters(model)) out.weights += t.to_local().numel();
  for (const Tensor& t : opt.state()) out.state += t.ndim() ? t.to_local().numel() : 0;
  return out;
}

TEST(ParallelPlans, StagesDivideWhatAProcessKeeps) {
  const auto kept = [](int zero) { return kept_of(Gpt(), {.zero = zero, .whole_below = 1}); };
  const Kept whole = kept(0), first = kept(1), second = kept(2), third = kept(3);
  EXPECT_EQ(whole.state, 2 * whole.weights);
  EXPECT_EQ(first.weights, whole.weights);
  EXPECT_EQ(first.state, whole.state / size());
  EXPECT_EQ(second.weights, whole.weights);
  EXPECT_EQ(second.state, whole.state / size());
  EXPECT_EQ(third.weights, whole.weights / size());
  EXPECT_EQ(third.state, whole.state / size());
}

TEST(ParallelPlans, GradientsFollowTheStage) {
  const nn::Training training;
  for (int zero : {0, 1, 2, 3}) {
    const Gpt model;
    auto parallel = nn::parallelize(model, line(), {.zero = zero});
    const Tensors d = Gpt::samples(8);
    parallel.backward(loss_of(parallel(d[0]), parallel.batch(d[1])));
    const int64_t all = model.block.c_fc.weight.numel();
    EXPECT_EQ(model.block.c_fc.weight.grad().to_local().numel(), zero < 2 ? all : all / size()) << zero;
    EXPECT_EQ(model.block.ln_1.weight.grad().to_local().numel(), Block::kWidth) << zero;
  }
}

TEST(ParallelPlans, RulesSayWhichAxisIsDivided) {
  using Spec = std::vector<std::string>;
  const Gpt model;
  const Mesh mesh({{"data", 1}, {"tensor", -1}});
  auto parallel = nn::parallelize(model, mesh, {});
  const std::string divided = size() > 1 ? "tensor" : "";
  EXPECT_EQ(parallel.spec("block.q.weight"), (Spec{divided, ""}));
  EXPECT_EQ(parallel.spec("block.q.bias"), Spec{divided});
  EXPECT_EQ(parallel.spec("block.c_proj.weight"), (Spec{"", divided}));
  EXPECT_EQ(parallel.spec("block.c_proj.bias"), Spec{""});
  EXPECT_EQ(parallel.spec("block.ln_1.weight"), Spec{""});
  EXPECT_EQ(parallel.spec("wte.weight"), (Spec{"", ""}));
  EXPECT_EQ(model.block.q.weight.to_local().shape(), Shape({Block::kWidth / size(), Block::kWidth}));
  EXPECT_THROW(parallel.spec("block.q"), IndexError);
}

TEST(ParallelPlans, ATensorParallelBlockExchangesItsSums) {
  const Gpt model;
  auto parallel = nn::parallelize(model, row(), {});
  const Tensor x = parallel.batch(Gpt::samples(8)[0]).contiguous().realize();
  GlobalCounters::reset();
  parallel(x).realize();
  EXPECT_EQ(GlobalCounters::collectives, size() > 1 ? 2 : 0);  // behind the attention and behind the two layers
  EXPECT_LE(GlobalCounters::sent, 2 * (size() - 1) * 4 * 8 * Gpt::kTime * Block::kWidth);
}

TEST(ParallelPlans, WhatIsWholeIsSentByTheFirst) {
  const auto layer_of = [](bool sync) {
    const nn::Linear layer(4, 4 * size());
    const auto mine = static_cast<float>(distributed::rank() + 1);
    layer.weight.assign(Tensor::full({4 * size(), 4}, mine));
    layer.bias.assign(Tensor::full({4 * size()}, mine));
    const nn::Parallel<nn::Linear> parallel(layer, square(),
                                            {.divisions = {{"weight", Division::kColumn}}, .sync = sync});
    return std::pair{layer.weight.to_local().to_vector<float>(), layer.bias.to_local().to_vector<float>()};
  };
  const Mesh mesh = square();
  const auto mine = static_cast<float>(distributed::rank() + 1);
  const auto first = static_cast<float>(mesh.group({"data"}).front() + 1);  // of those that have the same columns
  const auto all = [](float v, const std::vector<float>& of) { return std::vector<float>(of.size(), v); };
  const auto [weight, bias] = layer_of(true);
  EXPECT_EQ(weight, all(first, weight));
  EXPECT_EQ(bias, all(1, bias));
  const auto [own_weight, own_bias] = layer_of(false);
  EXPECT_EQ(own_weight, all(mine, own_weight));
  EXPECT_EQ(own_bias, all(mine, own_bias));
}
TEST(ParallelPlans, BatchesOfTheRowsOfEach) {
  const Gpt model;
  auto parallel = nn::parallelize(model, square(), {.sequence = true});
  const Tensor whole = Gpt::samples(8)[0];
  const int64_t rows = 8 / parallel.mesh().size("data"), at = parallel.mesh().position("data") * rows;
  const Tensor placed = parallel.batch_of(whole[Slice(at, at + rows)].contiguous());
  EXPECT_EQ(placed.to_local().numel(), whole.numel() / size());
  EXPECT_EQ(placed.to_vector<int>(), whole.to_vector<int>());
}

TEST(ParallelPlans, MistakesAreErrorsAndLeaveTheModelAlone) {
  const Gpt model;
  const auto expect_error = [&](const ParallelPlan& plan, const Mesh& mesh) {
    EXPECT_THROW(nn::parallelize(model, mesh, plan), ValueError);
    EXPECT_EQ(model.wte.weight.devices().size(), 1u);
  };
  expect_error({.zero = 4}, line());
  expect_error({.data = "rows", .tensor = "columns"}, line());
  expect_error({.divisions = {{"blocks.*", Division::kRow}}}, row());
  if (size() == 1) return;  // divides everything
  const nn::Linear odd(3, 5);
  EXPECT_THROW(nn::parallelize(odd, row(), {.divisions = {{"weight", Division::kRow}}}), ShapeError);
  auto parallel = nn::parallelize(model, line(), {.zero = 1});
  EXPECT_THROW(parallel.batch(Tensor::ones(5, 2)), ShapeError);
  const nn::Adam fused(nn::get_parameters(model), {.fused = true});
  EXPECT_THROW(parallel.place_state(fused), ValueError);
}

/// The model's gradients behind `steps` losses, whole.
struct Gradients {
  float norm = 0;
  std::vector<std::vector<float>> values;
};
Gradients clipped(const Mesh* mesh, const ParallelPlan& plan, int64_t steps) {
  const nn::Training training;
  Tensor::manual_seed(3);
  const Gpt model;
  std::optional<nn::Parallel<Gpt>> parallel;
  if (mesh) parallel.emplace(model, *mesh, plan);
  const Tensors d = Gpt::samples(steps * 8);
  for (int64_t i = 0; i < steps; i++) {
    const Tensor x = d[0][Slice(i * 8, (i + 1) * 8)].contiguous(), y = d[1][Slice(i * 8, (i + 1) * 8)].contiguous();
    if (parallel) parallel->backward(loss_of((*parallel)(x), parallel->batch(y)) / steps);
    else (loss_of(model(x), y) / steps).backward();
  }
  Gradients out;
  out.norm = nn::clip_grad_norm(nn::get_parameters(model), 0.1).item<float>();
  for (const Tensor& t : nn::get_parameters(model)) out.values.push_back(t.grad().to_vector<float>());
  return out;
}
void expect_gradients_of_one_process(const Mesh& mesh, const ParallelPlan& plan, int64_t steps) {
  const Gradients got = clipped(&mesh, plan, steps), want = clipped(nullptr, {}, steps);
  EXPECT_GT(want.norm, 0.1f);
  EXPECT_NEAR(got.norm, want.norm, 1e-5 * want.norm);
  for (size_t i = 0; i < want.values.size(); i++)
    for (size_t k = 0; k < want.values[i].size(); k++) ASSERT_NEAR(got.values[i][k], want.values[i][k], 1e-7) << i;
}
TEST(ParallelGradients, NormsAndClippingAreThoseOfOneProcess) {
  for (int zero : {0, 2, 3}) expect_gradients_of_one_process(line(), {.zero = zero, .whole_below = 1}, 1);
  expect_gradients_of_one_process(row(), {}, 1);
  expect_gradients_of_one_process(square(), {.zero = 3, .sequence = true}, 1);
}
TEST(ParallelGradients, AreAccumulated) {
  for (int zero : {0, 2, 3}) expect_gradients_of_one_process(line(), {.zero = zero}, 3);
}

/// Weights behind two steps on the mean of two losses each.
std::vector<std::vector<float>> weights_behind_steps(const Mesh* mesh, const ParallelPlan& plan) {
  const nn::Training training;
  Tensor::manual_seed(3);
  const Gpt model;
  std::optional<nn::Parallel<Gpt>> parallel;
  if (mesh) parallel.emplace(model, *mesh, plan);
  nn::SGD opt(nn::get_parameters(model), {.lr = 0.1, .momentum = 0.9});
  if (parallel) parallel->place_state(opt);
  nn::GradAccumulator steps(opt, 2);
  const Tensors d = Gpt::samples(32);
  for (int64_t i = 0; i < 4; i++) {
    const Tensor x = d[0][Slice(i * 8, (i + 1) * 8)].contiguous(), y = d[1][Slice(i * 8, (i + 1) * 8)].contiguous();
    const Tensor loss = parallel ? loss_of((*parallel)(x), parallel->batch(y)) : loss_of(model(x), y);
    EXPECT_EQ(steps.backward(loss), i % 2 == 1);
  }
  std::vector<std::vector<float>> out;
  for (const Tensor& t : nn::get_parameters(model)) out.push_back(t.to_vector<float>());
  return out;
}
TEST(ParallelGradients, AccumulatorsStepOnTheMean) {
  const auto want = weights_behind_steps(nullptr, {});
  for (int zero : {0, 1, 3}) {
    const auto got = weights_behind_steps(&line(), {.zero = zero});
    for (size_t i = 0; i < want.size(); i++)
      for (size_t k = 0; k < want[i].size(); k++) ASSERT_NEAR(got[i][k], want[i][k], 1e-6) << zero << ' ' << i;
  }
}

/// Losses with weights of bfloat16 in the forward pass, which are kept and trained in float32.
std::vector<float> mixed(const Mesh* mesh, const ParallelPlan& plan) {
  const nn::Training training;
  Tensor::manual_seed(3);
  const Gpt model;
  auto parallel = nn::parallelize(model, mesh ? *mesh : line(), plan);
  nn::AdamW opt(nn::get_parameters(model), {.lr = 1e-3});
  parallel.place_state(opt);
  nn::LossScaler scaler({.scale = 1024});
  const Tensors d = Gpt::samples(8);
  std::vector<float> out;
  for (int i = 0; i < 10; i++) {
    const Tensor scores = parallel(d[0]);
    EXPECT_EQ(scores.dtype(), dtypes::bfloat16);
    const Tensor loss = loss_of(scores.to_float(), parallel.batch(d[1]));
    parallel.backward(scaler.scale(loss));
    EXPECT_TRUE(scaler.step(opt));
    out.push_back(loss.item<float>());
    opt.zero_grad();
  }
  for (const Tensor& p : nn::get_parameters(model)) EXPECT_EQ(p.dtype(), dtypes::float32);
  return out;
}
TEST(ParallelGradients, MixedPrecision) {
  const std::vector<float> whole = mixed(nullptr, {.compute = dtypes::bfloat16});
  EXPECT_LT(whole.back(), 0.9f * whole.front());
  for (int zero : {2, 3}) {
    const std::vector<float> got = mixed(nullptr, {.zero = zero, .compute = dtypes::bfloat16});
    for (size_t i = 0; i < got.size(); i++) EXPECT_NEAR(got[i], whole[i], 4e-3 * whole[i]) << i;
  }
}

/// Operations together with other processes in a step of training.
template <class M> int64_t exchanges_of_a_step(const M& model, const Tensors& data, const ParallelPlan& plan) {
  const nn::Training training;
  auto parallel = nn::parallelize(model, line(), plan);
  nn::AdamW opt(nn::get_parameters(model));
  parallel.place_state(opt);
  const Tensor x = parallel.batch(data[0]).contiguous().realize(), y = parallel.batch(data[1]).contiguous().realize();
  const Tensor loss = parallel.backward(loss_of(parallel(x), y));
  Tensors all = opt.schedule_step();
  all.push_back(loss);
  GlobalCounters::reset();
  realize(all);
  return GlobalCounters::collectives;
}
TEST(ParallelBuckets, SmallGradientsShareAnExchange) {
  const int64_t many = size() > 1 ? 1 : 0;
  const Tensors samples = Gpt::samples(16), data{samples[0], samples[1].cast(dtypes::uint8).contiguous().realize()};
  // 22 gradients and the loss in one; of weights that are divided, all gathered, and all scattered, in one each.
  EXPECT_EQ(exchanges_of_a_step(Gpt(), data, {}), many);
  EXPECT_EQ(exchanges_of_a_step(Gpt(), data, {.zero = 1}), 2 * many);
  EXPECT_EQ(exchanges_of_a_step(Gpt(), data, {.zero = 3, .whole_below = 1}), 3 * many);
}
TEST(ParallelBuckets, LabelsThatMayNotCountAreCountedFirst) {
  const int64_t many = size() > 1 ? 1 : 0;
  EXPECT_EQ(exchanges_of_a_step(Gpt(), Gpt::samples(16), {}), 2 * many);
}

/// Six layers whose weights are 256 KiB each.
struct Deep {
  std::vector<nn::Linear> layers;
  Deep() {
    for (int i = 0; i < 6; i++) layers.emplace_back(256, 256, false);
  }
  Tensor operator()(Tensor x) const {
    for (const nn::Linear& l : layers) x = l(x).relu();
    return x;
  }
  TG_STATE(layers)
};
TEST(ParallelBuckets, AFullOneIsSentAndTheNextOneFilled) {
  const Tensors data{Tensor::ones(16, 256).contiguous(), Tensor::arange(16).cast(dtypes::uint8).contiguous()};
  EXPECT_EQ(exchanges_of_a_step(Deep(), data, {}), size() > 1 ? 2 : 0);
}
/// Kernels of the profile between its first two sums over processes that do at least so many operations and reduce.
int products_between_sums(double operations) {
  std::istringstream trace(profile::json());
  int sums = 0, products = 0;
  for (std::string line; std::getline(trace, line);) {
    if (line.find("allreduce ADD") != std::string::npos) sums++;
    const size_t end = line.find(" operations,");
    if (sums != 1 || end == std::string::npos || line.find("\"name\":\"r_") == std::string::npos) continue;
    products += std::stod(line.substr(line.find_last_not_of("0123456789.e+", end - 1) + 1)) >= operations;
  }
  EXPECT_EQ(sums, 2);
  return products;
}
TEST(ParallelBuckets, TheyAreSentWhileTheBackwardPassGoesOn) {
  if (size() == 1) return;  // nothing is sent
  const Tensors data{Tensor::ones(16, 256).contiguous(), Tensor::arange(16).cast(dtypes::uint8).contiguous()};
  exchanges_of_a_step(Deep(), data, {});  // compiled
  const Context profiled{{"PROFILE", 1}};
  profile::clear();
  EXPECT_EQ(exchanges_of_a_step(Deep(), data, {}), 2);
  // The products for the gradients of the two layers that come first, and of what they take.
  EXPECT_GE(products_between_sums(256.0 * 256 * 16 / size()), 4);
  profile::clear();
}
TEST(ParallelBuckets, LargeSumsGoAlone) {
  const Tensor x = Tensor::ones(8, 400, 400).contiguous().realize(), y = x.shard(line(), {"data"}).realize();
  GlobalCounters::reset();
  const Tensor a = y.sum(0), b = (y * 2).sum(0), c = y.sum({0, 1}), d = (y * 3).sum({0, 1});
  realize({a, b, c, d});
  EXPECT_EQ(GlobalCounters::collectives, size() > 1 ? 3 : 0);
  EXPECT_EQ(b.to_vector<float>(), (x * 2).sum(0).to_vector<float>());
  EXPECT_EQ(d.to_vector<float>(), (x * 3).sum({0, 1}).to_vector<float>());
}
TEST(ParallelBuckets, PiecesOfSeveralArePutInPlace) {
  if (size() == 1) return;  // nothing is exchanged
  const auto values = [](int step) { return (Tensor::arange(32) * step % 13).cast(dtypes::float32).reshape(8, 4); };
  Tensors got, want;
  for (int step : {3, 5, 7}) {
    const Tensor x = values(step).contiguous().realize();
    got.push_back(x.shard(line(), {"data"}).contiguous().realize().shard(line(), {}));
    want.push_back(x);
    got.push_back(distributed::reduce_scatter(x, line(), "data"));
    const int64_t rows = 8 / size(), at = distributed::rank() * rows;
    want.push_back(x[Slice(at, at + rows)] * size());
  }
  GlobalCounters::reset();
  realize(got);
  EXPECT_EQ(GlobalCounters::collectives, 2);
  for (size_t i = 0; i < got.size(); i++) EXPECT_EQ(got[i].to_vector<float>(), want[i].to_vector<float>()) << i;
}
}  // namespace
}  // namespace tg
