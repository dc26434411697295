/// \file Training for a thousand steps: bytes, nodes and the process itself are as great at the end as near the
/// beginning.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>

#include "tinygrad/runtime/buffer.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {

struct Net {
  nn::Linear in{16, 32}, out{32, 4};
  nn::BatchNorm norm{32};
  Tensor operator()(const Tensor& x) const { return out(norm(in(x)).relu().dropout(0.25)); }
  TG_STATE(in, norm, out)
};

int64_t resident_pages() {
  std::ifstream f("/proc/self/statm");
  int64_t size = 0, resident = 0;
  f >> size >> resident;
  return resident;
}

struct State {
  int64_t used, nodes, buffers, pages;
};
State state() {
  return {memory_stats().used, static_cast<int64_t>(Graph::global().live_nodes()),
          static_cast<int64_t>(buffer_table::size()), resident_pages()};
}

void train(bool jitted) {
  Tensor::manual_seed(3);
  const Net net;
  nn::Adam optimizer(nn::get_parameters(net), {.lr = 0.01});
  const nn::Training mode;
  const auto step = [&](const Tensor& x, const Tensor& y) {
    optimizer.zero_grad();
    const Tensor loss = net(x).sparse_categorical_crossentropy(y);
    loss.backward();
    Tensors all = optimizer.schedule_step();
    all.push_back(loss);
    realize(all);
    return loss;
  };
  auto replayed = jit(step);
  State early{}, late{};
  double first = 0, last = 0;
  for (int i = 1; i <= 1000; i++) {
    const Tensor x = Tensor::randn({32, 16}).realize(),
                 y = (x(Slice(), Slice(0, 4)).argmax(1)).cast(dtypes::int32).contiguous().realize();
    const Tensor loss = jitted ? replayed(x, y) : step(x, y);
    const double value = loss.item<double>();
    ASSERT_TRUE(std::isfinite(value)) << i;
    if (i == 1) first = value;
    last = value;
    if (i == 100) early = state();
    if (i == 1000) late = state();
  }
  EXPECT_LT(last, 0.8 * first) << "it learns";
  EXPECT_EQ(late.used, early.used);
  EXPECT_EQ(late.nodes, early.nodes);
  EXPECT_EQ(late.buffers, early.buffers);
  EXPECT_LE(late.pages, early.pages + 512) << "two megabytes at most, of the C library's own";
}

TEST(FlatMemory, Training) { train(false); }
TEST(FlatMemory, TrainingReplayed) { train(true); }

TEST(FlatMemory, AMillionAddsThatNobodyRealizes) {
  Tensor x = Tensor({1.f, 2.f}).realize();
  const int64_t before = state().nodes;
  int64_t most = 0;
  for (int i = 0; i < 1000000; i++) {
    x = x + 1;
    if (i % 1000 == 0) most = std::max(most, state().nodes);
  }
  EXPECT_LT(most, before + 600000);
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{1000001, 1000002}));
}

}  // namespace
}  // namespace tg
