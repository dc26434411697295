/// \file Tensors on several processes: each computes its slices; values, gradients and what is exchanged are those of
/// one process.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "tinygrad/io/jit_file.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {
using distributed::rank;
using distributed::size;
using Floats = std::vector<float>;

const Mesh& line() {
  static const auto* m = new Mesh({{"data", -1}});
  return *m;
}
Tensor numbers(const Shape& shape, int step = 7) {
  return ((Tensor::arange(shape.numel()) * step % 23 - 11).cast(dtypes::float32) / 8)
      .reshape(shape)
      .contiguous()
      .realize();
}
/// Within the rounding of sums in another order.
void expect_near(const Tensor& got, const Tensor& want, float tolerance = 1e-5f) {
  ASSERT_EQ(got.shape(), want.shape());
  const Floats a = got.to_vector<float>(), b = want.to_vector<float>();
  for (size_t i = 0; i < a.size(); i++) ASSERT_NEAR(a[i], b[i], tolerance * std::max(1.0f, std::fabs(b[i]))) << i;
}
/// Counts what an action does.
struct Counted {
  int64_t kernels, collectives, sent;
};
template <class F> Counted counted(F&& f) {
  GlobalCounters::reset();
  f();
  return {GlobalCounters::kernels, GlobalCounters::collectives, GlobalCounters::sent};
}

TEST(WorldTensors, ShardAndGather) {
  const Tensor x = numbers({8, 12});
  for (const std::vector<std::string>& spec : {std::vector<std::string>{}, {"data"}, {"", "data"}}) {
    const Tensor y = x.shard(line(), spec);
    EXPECT_EQ(y.device(), line().device());
    EXPECT_EQ(static_cast<int>(y.devices().size()), size());
    EXPECT_EQ(y.to_vector<float>(), x.to_vector<float>());
    const Tensor mine = y.to_local();
    Shape want{8, 12};
    for (size_t i = 0; i < spec.size(); i++)
      if (!spec[i].empty()) want[i] = want[i].value() / size();
    EXPECT_EQ(mine.shape(), want);
  }
}

TEST(WorldTensors, DevicesOfTheWorldAreAListToShardOver) {
  const Tensor x = numbers({8, 3});
  const Tensor y = x.shard(distributed::devices(), 0);
  EXPECT_EQ(y.devices(), distributed::devices());
  EXPECT_EQ(y.shard_axis(), 0);
  EXPECT_EQ((y * 2 + 1).to_vector<float>(), (x * 2 + 1).to_vector<float>());
}

TEST(WorldTensors, ElementwiseWorkExchangesNothing) {
  const Tensor x = numbers({8, 4}), w = numbers({4}, 5);
  const Tensor y = x.shard(line(), {"data"}).realize(), v = w.replicate(line()).realize();
  Tensor z;
  const Counted c = counted([&] { z = (y * v + 1).relu().realize(); });
  EXPECT_EQ(c.kernels, 1);
  EXPECT_EQ(c.collectives, 0);
  EXPECT_EQ(z.to_vector<float>(), (x * w + 1).relu().to_vector<float>());
}

TEST(WorldTensors, ASumOverTheShardAxisIsOneAllReduce) {
  const Tensor x = numbers({8, 4});
  const Tensor y = x.shard(line(), {"data"}).realize();
  Tensor sum;
  const Counted c = counted([&] { sum = y.sum(0).realize(); });
  EXPECT_EQ(c.collectives, 1);
  EXPECT_EQ(c.kernels, 1);
  EXPECT_EQ(c.sent, (size() - 1) * 4 * 4);
  expect_near(sum, x.sum(0));
  expect_near(y.max(), x.max());
  expect_near(y.mean(), x.mean());
  expect_near(y.softmax(0), x.softmax(0));
  EXPECT_EQ(y.argmax(0).to_vector<int32_t>(), x.argmax(0).to_vector<int32_t>());
}

TEST(WorldTensors, ProductsMoveTheAxis) {
  const Tensor x = numbers({8, 16}), w = numbers({16, 8}, 3);
  const Tensor want = x.matmul(w);
  expect_near(x.shard(line(), {"data"}).matmul(w.replicate(line())), want);
  expect_near(x.replicate(line()).matmul(w.shard(line(), {"", "data"})), want);
  Tensor y;
  const Tensor a = x.shard(line(), {"", "data"}).realize(), b = w.shard(line(), {"data"}).realize();
  const Counted c = counted([&] { y = a.matmul(b).realize(); });
  EXPECT_EQ(c.collectives, 1);
  expect_near(y, want);
}

TEST(WorldTensors, OtherAxesAreExchanged) {
  const Tensor x = numbers({8, 4}), y = numbers({8, 4}, 5);
  const Tensor a = x.shard(line(), {"data"}).realize(), b = y.shard(line(), {"", "data"}).realize();
  Tensor z;
  const Counted c = counted([&] { z = (a + b).realize(); });
  EXPECT_EQ(c.collectives, 1);
  EXPECT_EQ(c.sent, (size() - 1) * 8 * 4 * 4 / size() / size());
  expect_near(z, x + y);
  expect_near(a.shard(line(), {"", "data"}), x);
}

TEST(WorldTensors, AShrinkToOneShardIsABroadcast) {
  const Tensor x = numbers({8, 4}), a = x.shard(line(), {"data"});
  const int64_t each = 8 / size();
  for (int r = 0; r < size(); r++)
    expect_near(a.shrink({{r * each, (r + 1) * each}, {0, 4}}), x.shrink({{r * each, (r + 1) * each}, {0, 4}}));
  EXPECT_THROW(a.shrink({{1, 3}, {0, 4}}), ShapeError);
}

TEST(WorldTensors, ACapturedExchangeIsNotSaved) {
  const auto path = std::filesystem::temp_directory_path() / str("tinygrad-exchange-", rank(), ".jit");
  const auto refused = [&](const auto& f, const char* why) {
    try {
      save_jit(f, path);
      ADD_FAILURE() << "no error";
    } catch (const JitError& e) { EXPECT_NE(std::string(e.what()).find(why), std::string::npos) << e.what(); }
    EXPECT_FALSE(std::filesystem::exists(path));
  };
  const Tensor x = numbers({8, 4}), divided = x.shard(line(), {"data"}).realize();
  auto f = tg::jit([](const Tensor& t) { return t.sum(0).realize(); });
  auto g = tg::jit([](const Tensor& t) { return distributed::all_reduce(t * 2, line(), {"data"}).realize(); });
  for (int i = 0; i < 3; i++) {
    f(divided);
    g(x);
  }
  refused(f, "captured with sharded tensors");
  refused(g, "exchanges values with other processes");
  expect_near(f(divided), x.sum(0));
  expect_near(g(x), x * 2 * size());
}

TEST(WorldTensors, ViewsKeepTheAxis) {
  const Tensor x = numbers({8, 4, 3}), a = x.shard(line(), {"data"});
  expect_near(a.permute({2, 0, 1}), x.permute({2, 0, 1}));
  expect_near(a.reshape({8, 12}), x.reshape({8, 12}));
  expect_near(a.reshape({32, 3}), x.reshape({32, 3}));
  expect_near(a.pad({{0, 0}, {1, 1}, {0, 2}}), x.pad({{0, 0}, {1, 1}, {0, 2}}));
  expect_near(a.flip({1}), x.flip({1}));
  expect_near(a.unsqueeze(0).expand({2, 8, 4, 3}), x.unsqueeze(0).expand({2, 8, 4, 3}));
  EXPECT_THROW(a.flip({0}), ShapeError);
  EXPECT_THROW(a.reshape({3, 32}), ShapeError);
}

TEST(WorldTensors, AnAxisInBlocksHasASliceOfEach) {
  using Spec = std::vector<std::string>;
  const Spec blocks{"", "data:3"};
  const Tensor x = numbers({2, 24, 5}), a = x.shard(line(), blocks).contiguous().realize();
  expect_near(a, x);
  const int64_t n = 8 / size(), from = rank() * n;
  for (int64_t b = 0; b < 3; b++)
    expect_near(a.to_local().slice(1, b * n, b * n + n), x.slice(1, b * 8 + from, b * 8 + from + n));
  // What leaves blocks whole exchanges nothing.
  const Tensor parts = a.reshape({2, 3, 8, 5});
  expect_near(parts, x.reshape({2, 3, 8, 5}));
  const Tensor w = numbers({24, 5}, 5).shard(line(), {"data:3"}).realize();
  const Counted c = counted([&] {
    (a * 2 + w).realize();
    a.slice(1, 8, 16).contiguous().realize();
    a.slice(1, 0, 16).permute({1, 0, 2}).contiguous().realize();
    parts.slice(1, 0, 2).flatten(1, 2).contiguous().realize();
    a.slice(1, 8, 16).pad({{0, 0}, {8, 16}, {0, 0}}).contiguous().realize();
  });
  EXPECT_EQ(c.collectives, 0);
  expect_near(a * 2 + w, x * 2 + numbers({24, 5}, 5));
  expect_near(a.slice(1, 8, 16), x.slice(1, 8, 16));
  expect_near(a.slice(1, 0, 16).permute({1, 0, 2}), x.slice(1, 0, 16).permute({1, 0, 2}));
  expect_near(parts.slice(1, 0, 2).flatten(1, 2), x.slice(1, 0, 16));
  expect_near(a.slice(1, 8, 16).pad({{0, 0}, {8, 16}, {0, 0}}), x.slice(1, 8, 16).pad({{0, 0}, {8, 16}, {0, 0}}));
  expect_near(a.sum(1), x.sum(1));
  // Divided otherwise, and back.
  for (const Spec& other : {Spec{}, Spec{"", "data"}, Spec{"", "data:2"}}) {
    expect_near(a.shard(line(), other), x);
    expect_near(x.shard(line(), other).contiguous().shard(line(), blocks), x);
  }
  expect_near(a + x.shard(line(), {"", "data"}), x + x);
}
TEST(WorldTensors, GradientsAndAssignmentsKeepTheBlocks) {
  const Tensor x = numbers({8, 16}), w0 = numbers({24, 16}, 3);
  const auto loss = [&](const Tensor& w, const Tensor& in) {
    const Tensors y = in.matmul(w.transpose()).split(8, -1);
    return (y[0] * y[1] + y[2].square()).mean();
  };
  Tensor w = w0.clone().requires_grad_();
  loss(w, x).backward();
  Tensor v = w0.shard(line(), {"data:3"}).contiguous().realize().requires_grad_();
  loss(v, x.replicate(line())).backward();
  EXPECT_EQ(v.grad().to_local().shape(), v.to_local().shape());
  expect_near(v.grad(), w.grad());
  Tensor a = w0.shard(line(), {"data:3"}).contiguous().realize();
  a.assign(a + v.grad().detach());
  expect_near(a.realize(), w0 + w.grad().detach());
  if (size() > 1) EXPECT_THROW(a.assign(w0.shard(line(), {"data"})), DeviceError);
}
TEST(WorldTensors, BlocksThatCannotBeAreErrors) {
  const Tensor x = numbers({24, 5});
  for (const char* spec : {"data:", "data:0", "data:256", "data:x", "data:3x", "data:-1"})
    EXPECT_THROW(x.shard(line(), {spec}), ValueError) << spec;
  EXPECT_THROW(x.shard(line(), {"data:5"}), ShapeError);
  if (size() == 1) return;  // has no slices
  const Tensor a = x.shard(line(), {"data:3"});
  EXPECT_THROW(a.slice(0, 0, 12), ShapeError);
  EXPECT_THROW(a.pad({{1, 0}, {0, 0}}), ShapeError);
  EXPECT_THROW(a.reshape({5, 24}), ShapeError);
}

TEST(WorldTensors, AssignWritesTheSlicesWhereTheyAre) {
  Tensor a = numbers({8, 4}).shard(line(), {"data"}).contiguous().realize();
  const Tensor b = numbers({8, 4}, 3);
  const Counted c = counted([&] {
    a.assign(a + b.shard(line(), {"data"}));
    a.realize();
  });
  EXPECT_EQ(c.collectives, 0);
  expect_near(a, numbers({8, 4}) + b);
  EXPECT_THROW(a.assign(b.shard(line(), {"", "data"})), DeviceError);
  a.assign(2);
  expect_near(a, Tensor::full({8, 4}, 2.0f));
}

TEST(WorldTensors, GradientsAreShardedAsTheirTensors) {
  const Tensor x = numbers({8, 16}), w0 = numbers({16, 4}, 3);
  Tensor w = w0.clone().requires_grad_();
  x.matmul(w).square().mean().backward();
  for (const std::vector<std::string>& spec : {std::vector<std::string>{}, {"data"}, {"", "data"}}) {
    Tensor v = w0.shard(line(), spec).contiguous().realize().requires_grad_();
    x.shard(line(), {"data"}).matmul(v).square().mean().backward();
    EXPECT_EQ(v.grad().device(), v.device());
    EXPECT_EQ(v.grad().shard_axis(), v.shard_axis());
    expect_near(v.grad(), w.grad());
  }
}

TEST(WorldTensors, AGradientThatIsShardedIsAReduceScatter) {
  const Tensor x = numbers({8, 16}).shard(line(), {"data"}).realize(), w0 = numbers({16, 4}, 3);
  Tensor v = w0.shard(line(), {"data"}).contiguous().realize().requires_grad_();
  const Counted c = counted([&] {
    x.matmul(v.replicate(line())).square().sum().backward();
    v.grad().realize();
  });
  EXPECT_EQ(c.collectives, 2);  // the weight is gathered, its gradient scattered
  EXPECT_EQ(c.sent, 2 * (size() - 1) * 16 * 4 * 4 / size());
}

TEST(WorldTensors, LocalPartsMakeOneTensor) {
  const Tensor mine = Tensor({static_cast<float>(rank()), 10.0f + static_cast<float>(rank())});
  const Tensor all = Tensor::from_local(mine, line(), {"data"});
  EXPECT_EQ(all.shape(), Shape({2 * size()}));
  Floats want;
  for (int r = 0; r < size(); r++) {
    want.push_back(static_cast<float>(r));
    want.push_back(10.0f + static_cast<float>(r));
  }
  EXPECT_EQ(all.to_vector<float>(), want);
  EXPECT_EQ(all.to_local().to_vector<float>(), mine.to_vector<float>());
}

TEST(WorldTensors, RandomNumbersAreThoseOfOneProcess) {
  Tensor::manual_seed(5);
  const Tensor x = Tensor::rand({8, 4}).realize(), d = x.rand_like().realize();
  Tensor::manual_seed(5);
  const Tensor y = Tensor::rand({8, 4}).realize();
  EXPECT_EQ(y.to_vector<float>(), x.to_vector<float>());
  EXPECT_EQ(y.shard(line(), {"data"}).rand_like().to_vector<float>(), d.to_vector<float>());
}

TEST(WorldTensors, AMeshOfTwoAxes) {
  const Mesh mesh({{"data", 2}, {"tensor", size() / 2}});
  const Tensor x = numbers({8, 16}), w = numbers({16, 8}, 3), b = numbers({8}, 5);
  const Tensor a = x.shard(mesh, {"data"}), v = w.shard(mesh, {"", "tensor"}), c = b.shard(mesh, {"tensor"});
  const Tensor y = (a.matmul(v) + c).relu();
  const Tensor want = (x.matmul(w) + b).relu();
  expect_near(y, want);
  const Tensor u = numbers({8, 4}, 2);
  Tensor z;
  const Tensor hidden = y.contiguous().realize(), second = u.shard(mesh, {"tensor"}).realize();
  const Counted n = counted([&] { z = hidden.matmul(second).realize(); });
  EXPECT_EQ(n.collectives, mesh.size("tensor") > 1 ? 1 : 0);
  expect_near(z, want.matmul(u));
  expect_near(x.shard(mesh, {"data", "tensor"}).sum(), x.sum());
  expect_near(x.shard(mesh, {"tensor", "data"}).sum(0), x.sum(0));
  expect_near(x.shard(mesh, {"data", "tensor"}).shard(mesh, {"tensor", "data"}), x);
  expect_near(x.shard(mesh, {"data", "tensor"}) + x.shard(mesh, {"tensor", "data"}), x + x);
}

TEST(WorldTensors, ExplicitOperations) {
  const Tensor x = numbers({8, 4}) * (rank() + 1);
  const float all = static_cast<float>(size() * (size() + 1) / 2);
  expect_near(distributed::all_reduce(x, line(), {"data"}), numbers({8, 4}) * all);
  expect_near(distributed::all_reduce(x, line(), {"data"}, Ops::MAX).max(), (numbers({8, 4}) * size()).max());
  const int64_t each = 8 / size();
  expect_near(distributed::reduce_scatter(x, line(), "data"),
              (numbers({8, 4}) * all).shrink({{rank() * each, (rank() + 1) * each}, {0, 4}}));
  Tensor rows = numbers({8, 4}).shrink({{rank() * each, (rank() + 1) * each}, {0, 4}});
  expect_near(distributed::all_gather(rows, line(), "data"), numbers({8, 4}));
  const int64_t part = 4 / size();
  expect_near(distributed::all_to_all(rows, line(), "data", 1, 0),
              numbers({8, 4}).shrink({{0, 8}, {rank() * part, (rank() + 1) * part}}));
  expect_near(distributed::broadcast(x, line(), "data", size() - 1), numbers({8, 4}) * size());
  const int to = (rank() + 1) % size(), from = (rank() + size() - 1) % size();
  const Tensor sent = distributed::send(x, to), got = distributed::receive(Tensor::zeros(8, 4), from);
  realize({sent, got});
  expect_near(got, numbers({8, 4}) * (from + 1));
}

TEST(WorldTensors, ExplicitOperationsHaveGradients) {
  const auto gradient = [](auto f, const Tensor& start) {
    Tensor x = start.clone().requires_grad_();
    f(x).backward();
    return x.grad();
  };
  const Tensor x = numbers({4, 4}), k = numbers({4, 4}, 3);
  // Of the sum of all processes' losses.
  expect_near(gradient([&](const Tensor& t) { return (distributed::all_reduce(t, line(), {"data"}) * k).sum(); }, x),
              k * size());
  expect_near(gradient([&](const Tensor& t) { return (distributed::reduce_scatter(t, line(), "data") * 3).sum(); }, x),
              Tensor::full({4, 4}, 3.0f));
  expect_near(
      gradient([&](const Tensor& t) { return (distributed::all_gather(t, line(), "data") * (rank() + 1)).sum(); }, x),
      Tensor::full({4, 4}, static_cast<float>(size() * (size() + 1) / 2)));
  expect_near(
      gradient([&](const Tensor& t) { return (distributed::all_to_all(t, line(), "data", 0, 1) * 2).sum(); }, x),
      Tensor::full({4, 4}, 2.0f));
  expect_near(gradient([&](const Tensor& t) { return (distributed::broadcast(t, line(), "data") * 2).sum(); }, x),
              Tensor::full({4, 4}, rank() == 0 ? 2.0f * static_cast<float>(size()) : 0.0f));
}

TEST(WorldTensors, MistakesAreErrorsInEveryProcess) {
  const Tensor x = numbers({9, 4});
  EXPECT_THROW(x.shard(line(), {"data"}), ShapeError);
  EXPECT_THROW(x.shard(line(), {"rows"}), ValueError);
  EXPECT_THROW(x.shard(line(), {"", "", "data"}), ShapeError);
  EXPECT_THROW(Mesh({{"data", size() + 1}}), ValueError);
  EXPECT_THROW(Mesh({{"a", 1}, {"a", -1}}), ValueError);
  EXPECT_THROW(x.to("CPU@0-99"), DeviceError);
  EXPECT_THROW(x.to("CPU@0-1/x"), DeviceError);
  EXPECT_THROW(distributed::all_reduce(numbers({8, 4}).shard(line(), {"data"}), line(), {"data"}), DeviceError);
  EXPECT_THROW(distributed::send(x, rank()), ValueError);
  EXPECT_THROW(numbers({8, 4}).shard(line(), {"data"}) + numbers({8, 4}).realize(), DeviceError);
}
TEST(WorldTensors, AssignmentsToWholeTensorsGather) {
  const Tensor whole = Tensor::zeros(4 * size()).contiguous().replicate(line()).realize(),
               rows = Tensor::arange(4 * size()).cast(dtypes::float32).contiguous().shard(line(), {"data"}).realize();
  whole.assign(whole + rows).realize();
  EXPECT_EQ(whole.to_local().to_vector<float>(), rows.to_vector<float>());
}

TEST(WorldTensors, MixingThemWithOthersSaysHowToPlaceThese) {
  if (size() == 1) GTEST_SKIP() << "a mesh of one process is its device";
  const Tensor here = Tensor::ones({4}).contiguous(), there = here.replicate(line());
  try {
    there* here;
    ADD_FAILURE() << "no error";
  } catch (const DeviceError& e) {
    EXPECT_NE(std::string(e.what()).find("replicate(mesh)"), std::string::npos) << e.what();
  }
}

TEST(WorldTensors, PartsOfDifferentShapesAreErrorsInAll) {
  if (size() == 1) GTEST_SKIP() << "needs two processes";
  const Tensor part = Tensor::ones(rank() == 1 ? 3 : 5, 2).contiguous();
  EXPECT_THROW(Tensor::from_local(part, line(), {"data"}), ShapeError);
  const Tensor halves = Tensor::ones({7}, {.dtype = rank() == 1 ? dtypes::float16 : dtypes::float32}).contiguous();
  EXPECT_THROW(Tensor::from_local(halves, line(), {"data"}), ShapeError);
  EXPECT_EQ(Tensor::from_local(Tensor::ones(4, 2).contiguous(), line(), {"data"}).shape(0), 4 * size());
}
}  // namespace
}  // namespace tg
