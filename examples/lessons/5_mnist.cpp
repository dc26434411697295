/// \file Lesson 5: a convolutional network that reads more than 98 % of MNIST's test digits after a minute of training.
#include <cstdio>

#include "tinygrad/tinygrad.h"

using namespace tg;

// ---- 1. A model is a struct that lists its layers once; their tensors then have names. ----
struct Model {
  nn::Conv2d conv1{1, 16, 5}, conv2{16, 32, 3};
  nn::BatchNorm norm1{16}, norm2{32};
  nn::Linear fc{800, 10};

  /// (batch, 1, 28, 28) -> (batch, 10)
  Tensor operator()(const Tensor& images) const {
    Tensor x = norm1(conv1(images)).relu().max_pool2d();  // (batch, 16, 12, 12)
    x = norm2(conv2(x)).relu().max_pool2d();              // (batch, 32, 5, 5)
    return fc(x.flatten(1));
  }
  TG_STATE(conv1, norm1, conv2, norm2, fc)
};

constexpr int64_t kBatch = 128;
constexpr int kSteps = 500;

int main() {
  Tensor::manual_seed(42);
  const auto [x_train, y_train, x_test, y_test] = nn::datasets::mnist();
  std::printf("%d training images of %d x %d\n", static_cast<int>(x_train.shape(0)), static_cast<int>(x_train.shape(2)),
              static_cast<int>(x_train.shape(3)));

  const Model model;
  int64_t parameters = 0;
  for (const auto& [name, t] : nn::get_state_dict(model))
    if (name.ends_with("weight") || name.ends_with("bias")) parameters += t.numel();
  std::printf("%d weights\n", static_cast<int>(parameters));

  // ---- 2. A step. Captured by jit: after two calls a step is a list of launches, and no graph is built. ----
  nn::Adam optimizer(nn::get_parameters(model), {.lr = 5e-3});
  nn::CosineAnnealingLR schedule(optimizer.lr, kSteps);
  auto step = jit([&](const Tensor& x, const Tensor& y) {
    optimizer.zero_grad();
    const Tensor loss = model(x).sparse_categorical_crossentropy(y).backward();
    optimizer.step();
    return loss;
  });

  // ---- 3. Training: batches of 128 random images. ----
  float first = 0, last = 0;
  {
    const nn::Training mode;  // batch norms use the statistics of the batch, optimizers may step
    for (int i = 0; i < kSteps; i++) {
      const Tensor rows = Tensor::randint({kBatch}, {.high = x_train.shape(0)}).realize();
      const Tensor loss = step(x_train[rows].realize(), y_train[rows].realize());
      schedule.step();  // the rate is a tensor: the captured step sees it fall
      if (i == 0) first = loss.item<float>();
      if (i == kSteps - 1) last = loss.item<float>();
    }
  }
  std::printf("the loss fell below a tenth: %s\n", last < first / 10 ? "yes" : "no");

  // ---- 4. Test: outside of training mode, batch norms use the statistics gathered on the way. ----
  auto count = jit([&](const Tensor& x, const Tensor& y) { return (model(x).argmax(1) == y).sum(); });
  int64_t right = 0;
  for (int64_t i = 0; i < x_test.shape(0); i += 500)
    right +=
        count(x_test(Slice(i, i + 500)).clone().realize(), y_test(Slice(i, i + 500)).clone().realize()).item<int>();
  const double accuracy = 100.0 * static_cast<double>(right) / static_cast<double>(x_test.shape(0));
  std::fprintf(stderr, "%.2f %%, loss %.3f -> %.3f\n", accuracy, static_cast<double>(first), static_cast<double>(last));
  std::printf("more than 98 %% of the test images: %s\n", accuracy > 98 ? "yes" : "no");

  // ---- 5. Weights to a file and back. ----
  nn::safe_save(nn::get_state_dict(model), "lesson_mnist.safetensors");
  const Model again;
  nn::load_state_dict(again, nn::safe_load("lesson_mnist.safetensors"));
  const Tensor some = x_test(Slice(0, 10));
  std::printf("the same from the file: %s\n",
              model(some).to_vector<float>() == again(some).to_vector<float>() ? "yes" : "no");
  std::remove("lesson_mnist.safetensors");
}
