/// \file Training on several processes gives the losses of one.
#include <gtest/gtest.h>

#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
using distributed::size;

struct Net {
  nn::Conv2d c{1, 8, {3, 3}};
  nn::BatchNorm norm{8};
  nn::Linear l1{8 * 5 * 5, 32}, l2{32, 10};
  Tensor operator()(const Tensor& x) const {
    return l2(l1(norm(c(x).max_pool2d()).relu().flatten(1)).relu().dropout(0.2));
  }
  TG_STATE(c, norm, l1, l2)
};

/// Losses of steps of training; `place`: what becomes of the weights and of each batch.
template <class W, class B> std::vector<float> losses(int steps, bool jitted, W&& weights, B&& batch) {
  Tensor::manual_seed(3);
  const nn::Training training;
  Net net;
  weights(net);
  nn::Adam opt(nn::get_parameters(net), {.lr = 0.01});
  const Tensor data = Tensor::randn({static_cast<int64_t>(steps) * 16, 1, 12, 12}).realize();
  const Tensor labels = (Tensor::rand({static_cast<int64_t>(steps) * 16}) * 10).cast(dtypes::int32).realize();
  const auto run = [&](const Tensor& x, const Tensor& y) {
    opt.zero_grad();
    Tensor loss = net(x).cross_entropy(y).backward();
    opt.step();
    return loss.realize();
  };
  auto step = tg::jit(run);
  std::vector<float> out;
  for (int i = 0; i < steps; i++) {
    const Tensor x = batch(data.shrink({{i * 16, (i + 1) * 16}, {0, 1}, {0, 12}, {0, 12}}).contiguous()).realize(),
                 y = batch(labels.shrink({{i * 16, (i + 1) * 16}}).contiguous()).realize();
    out.push_back((jitted ? step(x, y) : run(x, y)).template item<float>());
  }
  return out;
}
std::vector<float> of_one_process(int steps) {
  return losses(steps, false, [](Net&) {}, [](const Tensor& x) { return x; });
}
void expect_equal(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); i++) EXPECT_NEAR(got[i], want[i], 1e-5 * want[i]) << "step " << i;
}

TEST(WorldTraining, DataParallel) {
  const Mesh mesh({{"data", -1}});
  for (bool jitted : {false, true})
    expect_equal(losses(
                     8, jitted,
                     [&](Net& net) {
                       for (auto& [name, t] : nn::get_state_dict(net)) t.shard_(mesh, {});
                     },
                     [&](const Tensor& x) { return x.shard(mesh, {"data"}); }),
                 of_one_process(8));
}
}  // namespace
}  // namespace tg
