/// \file Programs on arrays as they are written with xtensor, Eigen and NumPy: views, masks, stencils, decompositions,
/// memory of the caller.
#include <thread>

#include "programs.h"

namespace programs {
namespace {

TEST(Arrays, SlicesAndMasks) {
  const Tensor x = Tensor::arange(24.0).reshape(4, 6);
  Tensor a = x.clone();
  a.at(Slice(1, 3), Slice(None, None, 2)) = -1;
  a.at(a > 20) = 0;
  a.at(std::vector<int>{0, 3}) += 100;
  a.at(Slice(), -1) *= 2;
  Recorded want("slices");
  want.expect(a, 0, "written to");
  want.expect(x.flip(0).slice(1, 1, -1), 0, "turned round");
  want.expect((x % 2 == 0).where(x, -x)(x > 12), 0, "selected");
  want.expect(x.masked_fill(x > 5, 5).cumsum(1), 0, "running sum");
  want.expect(x(Tensor({2, 0}), Tensor({1, 5})), 0, "points");
}

TEST(Arrays, HeatEquation) {
  Tensor u = Tensor::zeros(16, 16, dtypes::float32).contiguous();
  u.at(0) = 1;
  const Slice in(1, -1), up(None, -2), down(2, None);
  for (int k = 0; k < 50; k++) u.at(in, in) = 0.25 * (u(up, in) + u(down, in) + u(in, up) + u(in, down));
  Recorded want("heat");
  want.expect(u(Slice(None, None, 3), Slice(4, 12)), 1e-6, "temperature");
  want.expect(u.sum(), 1e-5, "sum");
}

TEST(Arrays, Decompositions) {
  const Tensor a = wave({8, 4}).cast("float64"), b = wave({8}, 2).cast("double");
  const auto [q, r] = a.qr();
  // Solves R x = Q^T b from the last row up.
  const std::vector<double> rows = r(Slice(None, 4)).to_vector<double>(), c = q.transpose().dot(b).to_vector<double>();
  std::vector<double> x(4);
  for (size_t i = 4; i-- > 0;) {
    double v = c[i];
    for (size_t k = i + 1; k < 4; k++) v -= rows[i * 4 + k] * x[k];
    x[i] = v / rows[i * 4 + i];
  }
  const Tensor m = a.T().dot(a);
  Tensor v = Tensor::ones(4, dtypes::float64);
  for (int k = 0; k < 30; k++) {
    v = m.dot(v);
    v = v / v.square().sum().sqrt();
  }
  Recorded want("matrices");
  want.expect(a.svd(false).s, 1e-9, "singular values");
  want.expect(x, 1e-9, "least squares");
  want.expect(v.dot(m).dot(v), 1e-9, "greatest eigenvalue");
  want.expect(r.T().dot(r), 1e-9, "R^T R");
}

TEST(Arrays, ImagesFromMemory) {
  std::vector<uint8_t> pixels(2 * 4 * 5 * 3);
  for (size_t i = 0; i < pixels.size(); i++) pixels[i] = static_cast<uint8_t>(i % 251);
  Tensor x = Tensor::from_blob(pixels.data(), {2, 4, 5, 3}, {.device = "CPU"}).permute(0, 3, 1, 2).to_float() / 255;
  EXPECT_EQ(x.dtype(), dtypes::float32);
  const std::array<float, 3> mean{0.485f, 0.456f, 0.406f}, deviation{0.229f, 0.224f, 0.225f};
  x = (x - Tensor(mean).reshape(1, 3, 1, 1)) / Tensor(deviation).reshape(1, 3, 1, 1);
  Recorded want("images");
  want.expect(x.mean({0, 2, 3}), 1e-5, "means");
  want.expect(x(1, 2), 1e-5, "a plane");
  want.expect(x.std(), 1e-5, "deviation");
  const std::span<const float> values = x.contiguous().data<float>();
  EXPECT_EQ(values.size(), 120u);
}

TEST(Arrays, KMeans) {
  const Tensor points =
      Tensor::cat({wave({10, 2}, 0, 0.3), wave({10, 2}, 1, 0.3) + 3, wave({10, 2}, 2, 0.3) - Tensor({3.f, -3.f})});
  Tensor centers = points[Tensor({0, 1, 12})], nearest;
  for (int k = 0; k < 6; k++) {
    nearest = (points.unsqueeze(1) - centers.unsqueeze(0)).square().sum(-1).argmin(1);
    const Tensor hot = nearest.one_hot(3).to_float();
    centers = hot.T().dot(points) / hot.sum(0).unsqueeze(1);
  }
  Recorded want("kmeans");
  want.expect(centers, 1e-5, "centers");
  want.expect(nearest, 0, "which");
}

TEST(Arrays, MixedTypes) {
  const Tensor a = wave({6, 5}).half(), b = wave({5, 4}, 1).half();
  const Tensor i = Tensor::from(std::vector<uint8_t>{200, 100, 7});
  Recorded want("mixed");
  want.expect(a.dot(b, dtypes::float32).half(), 2e-3, "product of halves");
  want.expect((i + 100).to_int(), 0, "uint8 wraps");
  want.expect(i.to_int() + 100, 0, "int32 does not");
  want.expect(i.mean(), 1e-6, "mean");
  want.expect(i / 2, 1e-6, "true division");
  want.expect(i.floor_div(3), 0, "floor division");
}

TEST(Arrays, KernelOfOnesOwn) {
  const Tensor x = wave({1000}), y = wave({1000}, 1);
  const Tensor z = custom_kernel({Tensor::empty(1000), x, y}, [](const UOps& p) {
    const UOp i = UOp::range(shape_of(p[0])[0], 0);
    return UOp::sink(UOps{p[0].index({i}).store(p[1].index({i}) * ConstValue(2.0) + p[2].index({i})).end(UOps{i})},
                     KernelInfo{.name = "saxpy"});
  })[0];
  EXPECT_EQ(z.to_vector<float>(), (x * 2 + y).to_vector<float>());
}

TEST(Arrays, ThreadsThatComputeAndOneSharedCounter) {
  Tensor total = Tensor::zeros(1).contiguous().realize();
  std::vector<double> sums(4);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; t++)
    threads.emplace_back([&, t] {
      for (int k = 0; k < 25; k++) {
        sums[t] += wave({16, 16}, static_cast<double>(t)).dot(Tensor::eye(16)).square().sum().item<double>();
        Tensor handle = total;
        (handle += 1).realize();
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(total.item<float>(), 100);
  for (size_t t = 0; t < 4; t++) {
    double expected = 0;
    for (float v : wave({16, 16}, static_cast<double>(t)).to_vector<float>()) expected += 25.0 * v * v;
    EXPECT_NEAR(sums[t], expected, 1e-3);
  }
}

template <class E, class F> std::string message(F f) {
  try {
    f();
  } catch (const E& e) { return e.what(); }
  return "no error";
}

/// The everyday mistakes: the message names the call and the shapes, and the tensors can be used afterwards.
TEST(Arrays, MistakesAndAfter) {
  const Tensor a = wave({2, 3}), b = wave({2, 4});
  EXPECT_EQ(message<ShapeError>([&] { return a + b; }),
            "[add] shapes (2, 3) and (2, 4) do not broadcast: sizes 3 and 4 differ and neither is 1");
  EXPECT_EQ(message<ShapeError>([&] { return a.dot(b); }).substr(0, 36), "[dot] got shapes (2, 3) and (2, 4), ");
  EXPECT_EQ(message<IndexError>([&] { return a.shape()[2]; }), "[shape] got axis 2 of shape (2, 3), expected 0 to 1");
  EXPECT_EQ(message<ShapeError>([&] { return Tensor(std::vector<std::vector<int>>{{1, 2}, {3}}); }),
            "[Tensor] got rows of different lengths: 2 and 1 elements along axis 1, expected equal ones");
  void* memory = nullptr;
  EXPECT_EQ(message<DTypeError>([&] { return Tensor::from_blob(memory, {3}, {}); }).substr(0, 40),
            "[from_blob] got no dtype for shape (3,),");
  EXPECT_EQ(message<DTypeError>([&] { return a.cast("flaot16"); }).substr(0, 40),
            "[dtype] got 'flaot16', expected one of b");
  EXPECT_EQ(message<Error>([&] { return a(0, 5).item<float>(); }).substr(0, 7), "[index]");
  EXPECT_NEAR((a * 2).sum().item<float>(), 2 * a.sum().item<float>(), 1e-5);
}

}  // namespace
}  // namespace programs
