/// \file How much of the exchange of gradients a training step hides: the same steps with data parallel weights, and
/// with weights of this process alone, in turns. Rank 0 prints medians in milliseconds. Arguments: the most that may be
/// exposed, as a part of the step (0.3); layers; width; rows of each process.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <vector>

#include "tinygrad/tinygrad.h"

namespace {
using tg::Tensor;
constexpr int kSteps = 7;

struct Net {
  std::vector<tg::nn::Linear> layers;
  Net(int depth, int width) {
    for (int i = 0; i < depth; i++) layers.emplace_back(width, width);
  }
  Tensor operator()(Tensor x) const {
    for (const tg::nn::Linear& l : layers) x = l(x).relu();
    return x;
  }
  TG_STATE(layers)
};

/// A training step that is captured, on a mesh or in this process alone.
class Stepper {
 public:
  Stepper(int depth, int width, int64_t rows, const tg::Mesh* mesh) : net_(depth, width) {
    int64_t all = rows;
    if (mesh) all *= tg::distributed::size();
    x_ = Tensor::ones({all, width}).contiguous();
    if (mesh) {
      for (auto& [name, t] : tg::nn::get_state_dict(net_)) t.shard_(*mesh, {});
      x_ = x_.shard(*mesh, {"data"});
    }
    x_.realize();
    sgd_.emplace(tg::nn::get_parameters(net_), tg::nn::SgdOptions{.lr = 1e-6});
  }
  Tensor step() {
    sgd_->zero_grad();
    const Tensor loss = net_(x_).square().mean().backward();
    sgd_->step();
    return loss;
  }
  const Tensor& x() const { return x_; }

 private:
  Net net_;
  Tensor x_;
  std::optional<tg::nn::SGD> sgd_;
};

template <class F> double milliseconds(F&& f) {
  tg::distributed::barrier();
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}
double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<long>(v.size() / 2), v.end());
  return v[v.size() / 2];
}
}  // namespace

int main(int argc, char** argv) {
  const double most = argc > 1 ? std::atof(argv[1]) : 0.3;
  const int depth = argc > 2 ? std::atoi(argv[2]) : 6, width = argc > 3 ? std::atoi(argv[3]) : 768;
  const int64_t rows = argc > 4 ? std::atoi(argv[4]) : 2048;
  tg::distributed::init();
  const tg::Mesh mesh({{"data", -1}});
  const tg::nn::Training mode;
  Stepper together(depth, width, rows, &mesh), alone(depth, width, rows, nullptr);
  auto with = tg::jit([&](const Tensor&) { return together.step().realize(); });
  auto without = tg::jit([&](const Tensor&) { return alone.step().realize(); });
  const Tensor gradients = Tensor::ones({int64_t{depth} * width * width}).contiguous().realize();
  std::vector<double> step, compute, exchange;
  for (int i = 0; i < kSteps + 3; i++) {
    const double a = milliseconds([&] { with(together.x()).item<float>(); });
    const double b = milliseconds([&] { without(alone.x()).item<float>(); });
    const double c =
        milliseconds([&] { tg::distributed::all_reduce(gradients, mesh, {"data"}).realize().to_vector<float>(); });
    if (i < 3) continue;  // compiles and captures
    step.push_back(a);
    compute.push_back(b);
    exchange.push_back(c);
  }
  const double exposed = std::max(0.0, 1 - median(compute) / median(step));
  if (tg::distributed::rank() == 0)
    std::printf("step %.1f ms, of this process alone %.1f ms, the exchange alone %.1f ms: %.0f %% exposed\n",
                median(step), median(compute), median(exchange), 100 * exposed);
  tg::distributed::finalize();
  return exposed <= most ? 0 : 1;
}
