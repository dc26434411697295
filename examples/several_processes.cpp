/// \file Several processes: a network trained on MNIST by all that mpirun started, each with its rows of every batch.
///
///     mpirun -n 2 example_several_processes [steps [stage]]
///
/// Without mpirun it is one process. `stage`: of ZeRO, 0 to 3.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iostream>

#include "tinygrad/base/progress.h"
#include "tinygrad/tinygrad.h"

using namespace tg;

struct Network {
  nn::Conv2d c1{1, 32, {5, 5}}, c2{32, 32, {5, 5}};
  nn::BatchNorm norm{32};
  nn::Linear hidden{800, 256}, out{256, 10};
  Tensor operator()(const Tensor& x) const {
    const Tensor y = norm(c2(c1(x).relu()).relu().max_pool2d({.kernel_size = {4, 4}}));
    return out(hidden(y.flatten(1)).relu());
  }
  TG_STATE(c1, c2, norm, hidden, out)
};

int main(int argc, char** argv) {
  distributed::init();
  const int steps = argc > 1 ? std::atoi(argv[1]) : 30, stage = argc > 2 ? std::atoi(argv[2]) : 0;
  constexpr int64_t kBatch = 128;
  const nn::Training training;
  const Mesh mesh({{"data", -1}});
  Tensor::manual_seed(1);
  const Network model;
  const auto parallel = nn::parallelize(model, mesh, {.zero = stage});
  nn::AdamW optimizer(nn::get_parameters(model));
  parallel.place_state(optimizer);

  const auto mnist = nn::datasets::mnist();
  nn::DataLoader batches(nn::SampleSource::of({mnist.train_images, mnist.train_labels}),
                         {.batch_size = kBatch,
                          .shuffle = true,
                          .seed = 1,
                          .drop_last = true,
                          .parts = mesh.size("data"),
                          .part = mesh.position("data")});
  auto step = tg::jit([&](const Tensor& images, const Tensor& labels) {
    optimizer.zero_grad();
    const Tensor loss = parallel(images.cast(dtypes::float32) / 255).cross_entropy(labels.cast(dtypes::int32));
    parallel.backward(loss);
    optimizer.step();
    return loss.realize();
  });
  Progress progress(steps, "training");  // of rank 0 alone
  std::vector<double> times;
  float first = 0, last = 0;
  for (int done = 0; done < steps;)
    for (const Tensors& batch : batches) {
      const Tensor x = parallel.batch_of(batch[0]).realize(), y = parallel.batch_of(batch[1]).realize();
      const auto begin = std::chrono::steady_clock::now();
      last = step(x, y).item<float>();
      times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
      if (done == 0) first = last;
      progress.advance(1, str("loss ", last));
      if (++done == steps) break;
    }
  progress.close();
  std::ranges::nth_element(times, times.begin() + std::ssize(times) / 2);
  if (distributed::rank() == 0)
    std::cout << distributed::size() << " processes: loss " << first << " -> " << last << ", a step takes "
              << times[times.size() / 2] << " ms, " << std::lround(1000 * kBatch / times[times.size() / 2])
              << " samples a second of all processes\n";
  return last < first ? 0 : 1;
}
