/// \file What README.md and docs/*.md show, with tinygrad/tinygrad.h as the only header.
#include <sstream>

#include "programs.h"

namespace programs {
namespace {

TEST(Docs, ReadmeProgram) {
  Tensor x = Tensor::eye(3).requires_grad_();
  Tensor y = Tensor({{2.0f, 0.0f, -2.0f}}).requires_grad_();
  Tensor z = y.matmul(x).sum();
  z.backward();
  EXPECT_EQ(z.item<float>(), 0);
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{2, 2, 2, 0, 0, 0, -2, -2, -2}));
  EXPECT_EQ(y.grad().to_vector<float>(), (std::vector<float>{1, 1, 1}));
  std::ostringstream text;
  text << "dz/dy = " << y.grad();
  EXPECT_NE(text.str().find("1."), std::string::npos);
}

TEST(Docs, ReadmeHandles) {
  const Tensor a({1.f, 2.f});
  Tensor b = a;
  b += 1;
  EXPECT_EQ(a.to_vector<float>(), (std::vector<float>{2, 3}));
  b = a.clone();
  b += 1;
  EXPECT_EQ(a.to_vector<float>(), (std::vector<float>{2, 3}));
  Tensor t = Tensor::zeros(2, 2);
  t.at(0, 1) = 4;
  const float v = t.sum().item<float>();
  EXPECT_EQ(v, 4);
}

TEST(Docs, TensorPage) {
  Tensor x({{1.f, 2.f}, {3.f, 4.f}}), w = Tensor::randn(2, 3);
  Tensor y = (x.dot(w) + 1).relu().sum({.axis = {1}, .keepdim = true});
  EXPECT_EQ(y(Slice(0, 1), None, Ellipsis).shape(), (Shape{1, 1, 1}));
  x.requires_grad_();
  y.sum().backward();
  EXPECT_EQ(x.grad().shape(), (Shape{2, 2}));
}

TEST(Docs, AxesAndOptionsOfReductions) {
  const Tensor x = Tensor::ones(2, 3, 4);
  EXPECT_EQ(x.sum({.axis = 0, .keepdim = true}).shape(), (Shape{1, 3, 4}));
  EXPECT_EQ(x.mean({.axis = {0, 1}}).shape(), (Shape{4}));
  EXPECT_EQ(x.max({.keepdim = true}).shape(), (Shape{1, 1, 1}));
  EXPECT_EQ(x.sum({0, 2}).shape(), (Shape{3}));
  EXPECT_EQ(x.prod({-1}, true).shape(), (Shape{2, 3, 1}));
}

TEST(Docs, TensorPageCreating) {
  const std::vector<float> v{1, 2, 3, 4, 5, 6};
  EXPECT_EQ(Tensor::from(v, {2, 3}).shape(), Tensor::zeros(2, 3).shape());
  EXPECT_EQ(Tensor(std::array<int, 3>{1, 2, 3}).numel(), 3);
  EXPECT_EQ(Tensor::zeros(2, 3, {.device = "CPU:1"}).device(), "CPU:1");
  EXPECT_EQ(Tensor::zeros({2, 3}, {.dtype = dtypes::int32, .requires_grad = false}).dtype(), dtypes::int32);
  EXPECT_EQ(Tensor::linspace(0, 1, 5).to_vector<float>(), (std::vector<float>{0, 0.25, 0.5, 0.75, 1}));
  std::vector<uint8_t> pixels(480 * 640 * 3, 7);
  const Tensor image = Tensor::from_blob(pixels.data(), {480, 640, 3}, {.device = "CPU"});
  EXPECT_EQ(image.dtype(), dtypes::uint8);
  EXPECT_EQ(image(479, 639, 2).item<int>(), 7);
  EXPECT_EQ(image.shape()[1], image.shape(-2));
}

TEST(Docs, MemoryPage) {
  const Tensor t = Tensor::rand(64, 64).dot(Tensor::rand(64, 64)).contiguous();
  const MemoryNeeds m = t.schedule().schedule->memory();
  EXPECT_GE(m.peak(), 64 * 64 * 4);
  const int64_t before = GlobalCounters::kernels;
  t.realize();
  EXPECT_GT(GlobalCounters::kernels, before);
  EXPECT_GT(memory_stats().peak, 0);
  reset_memory_stats();
  free_memory_caches();
  EXPECT_FALSE(profile::json().empty());
  std::stop_source source;
  source.request_stop();
  {
    StopScope scope(source.get_token());
    EXPECT_THROW((t + 1).realize(), Cancelled);
  }
  EXPECT_EQ((t + 1).realize().shape(), t.shape());
}

TEST(Docs, RewritingPagePrints) {
  const GraphScope scope;
  const Tensor t = Tensor({1.f, 2.f}) + 1;
  EXPECT_NE(print_tree(t.uop()).find("ADD"), std::string::npos);
  EXPECT_EQ(render_expr(UOp::variable("n", 0, 7) * ConstValue(2) + ConstValue(1)), "n * 2 + 1");
}

TEST(Docs, CustomPage) {
  auto straight =
      custom_gradient([](const Tensor& x) { return x.round(); }, [](const Tensor& g, const Tensor&) { return g; });
  const Tensor x = Tensor({1.4f, 2.6f}).requires_grad_();
  straight(x).sum().backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{1, 1}));
  const int64_t n = 100;
  const Tensor a = Tensor::arange(n).to_float(), b = Tensor::ones(n);
  Tensor c = tg::custom_kernel({Tensor::empty(n), a, b}, [](const UOps& p) {
    UOp i = UOp::range(shape_of(p[0])[0], 0);
    UOp effects[] = {p[0].index({i}).store(p[1].index({i}) + p[2].index({i})).end(UOps{i})};
    return UOp::sink(effects, KernelInfo{.name = "add"});
  })[0];
  EXPECT_EQ(c.sum().item<float>(), 99 * 50 + 100);
}

}  // namespace
}  // namespace programs
