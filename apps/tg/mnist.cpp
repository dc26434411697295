/// \file tg mnist: trains the convolutional network of "beautiful MNIST" and reports its accuracy on the test images.
#include <CLI/CLI.hpp>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "apps/tg/command.h"
#include "apps/tg/models.h"
#include "tinygrad/base/cancellation.h"
#include "tinygrad/base/env.h"
#include "tinygrad/base/error.h"
#include "tinygrad/base/progress.h"
#include "tinygrad/nn/datasets.h"
#include "tinygrad/nn/optim.h"

namespace tg::app {
namespace {

struct Options {
  int64_t steps = 100, batch_size = 512;
  double lr = 0.001;
  uint64_t seed = 42;
  std::string device, losses;
  bool json = false;
};

using Clock = std::chrono::steady_clock;
constexpr int64_t kTestBatch = 1000;
constexpr int64_t kStepsBetweenTests = 50;

std::atomic<bool> interrupted{false};
/// Ctrl-C ends the training and reports its progress; a second one ends the program at once.
void stop_on_interrupt() {
  struct sigaction action{};
  action.sa_handler = [](int) { interrupted.store(true); };
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;  // a write under way is finished
  sigaction(SIGINT, &action, nullptr);
}

/// Where a training got to.
struct Outcome {
  int64_t steps = 0;        ///< done
  float loss = NAN;         ///< of the last one
  double accuracy = -1;     ///< on the test images, in percent; -1: not measured
  double step_seconds = 0;  ///< mean, without the first one, which compiles
};

void print_json(const Options& o, const Outcome& r) {
  nlohmann::ordered_json j{
      {"steps", r.steps}, {"asked_steps", o.steps}, {"batch_size", o.batch_size}, {"seed", o.seed}};
  if (std::isfinite(r.loss)) j["loss"] = r.loss;
  if (r.accuracy >= 0) j["test_accuracy"] = r.accuracy;
  j["step_seconds"] = r.step_seconds;
  std::cout << j << "\n";
}

/// Returns the percentage of test images whose largest logit is the label's. In batches, selected by tensors of row
/// numbers so that all share their kernels.
double test_accuracy(const models::ConvNet& model, const nn::datasets::Dataset& data) {
  const int64_t n = data.test_images.shape(0);
  int64_t right = 0;
  for (int64_t begin = 0; begin < n; begin += kTestBatch) {
    std::vector<int32_t> numbers(static_cast<size_t>(std::min(kTestBatch, n - begin)));
    std::iota(numbers.begin(), numbers.end(), static_cast<int32_t>(begin));
    const Tensor rows = Tensor::from(numbers, {.device = data.test_images.device()});
    right += (model(data.test_images[rows]).argmax(1) == data.test_labels[rows]).sum().item<int64_t>();
  }
  return 100.0 * static_cast<double>(right) / static_cast<double>(n);
}

int train(const Options& o) {
  const Context place{{"DEV", o.device.empty() ? env::DEV.get() : o.device}};
  std::ofstream losses;
  if (!o.losses.empty()) {
    losses.open(o.losses);
    TG_CHECK(FileError, losses.is_open(), "[mnist] cannot write to ", o.losses);
  }
  const nn::datasets::Dataset data = nn::datasets::mnist();
  Tensor::manual_seed(o.seed);
  const models::ConvNet model;
  nn::Adam optimizer(nn::get_parameters(model), {.lr = o.lr});

  stop_on_interrupt();
  const StopScope stoppable(interrupted);
  Progress progress(o.steps, "mnist");
  double accuracy = -1, seconds = 0;
  float loss = NAN;
  int64_t timed = 0;
  const auto mean = [&] { return timed ? seconds / static_cast<double>(timed) : 0.0; };
  try {
    for (int64_t step = 0; step < o.steps; step++) {
      const auto start = Clock::now();
      {
        const nn::Training mode;
        optimizer.zero_grad();
        const Tensor rows = Tensor::randint({o.batch_size}, {.low = 0, .high = data.train_images.shape(0)});
        const Tensor batch_loss =
            model(data.train_images[rows]).sparse_categorical_crossentropy(data.train_labels[rows]);
        batch_loss.backward();
        Tensors all = optimizer.schedule_step();
        all.push_back(batch_loss);
        realize(all);
        loss = batch_loss.item<float>();
      }
      // The first step compiles.
      if (step > 0 || o.steps == 1) {
        seconds += std::chrono::duration<double>(Clock::now() - start).count();
        timed++;
      }
      TG_CHECK(Error, std::isfinite(loss), "[mnist] the loss is ", loss, " after ", step + 1,
               " steps: try a smaller --lr");
      if (losses.is_open()) losses << str(std::setprecision(9), loss, "\n");
      if (progress.visible() && (step + 1) % kStepsBetweenTests == 0) accuracy = test_accuracy(model, data);
      progress.advance(1, accuracy < 0 ? str("loss ", std::fixed, std::setprecision(4), loss)
                                       : str("loss ", std::fixed, std::setprecision(4), loss, ", test accuracy ",
                                             std::setprecision(2), accuracy, "%"));
    }
    progress.advance(0, "measuring the accuracy");
    accuracy = test_accuracy(model, data);
  } catch (const Cancelled&) {
    progress.close();
    std::fprintf(stderr, "tg: interrupted after %lld of %lld steps%s\n", static_cast<long long>(progress.done()),
                 static_cast<long long>(o.steps), std::isfinite(loss) ? str(", loss ", loss).c_str() : "");
    if (o.json) print_json(o, {progress.done(), loss, -1, mean()});
    return kInterrupted;
  }
  progress.close();
  if (o.json) print_json(o, {o.steps, loss, accuracy, mean()});
  else
    std::printf("steps %lld, test accuracy %.2f%%, %.1f ms/step\n", static_cast<long long>(o.steps), accuracy,
                mean() * 1e3);
  return kOk;
}

}  // namespace

static std::string rate(const std::string& text) {
  double v = -1;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), v);
  const bool number = failed == std::errc{} && end == text.data() + text.size();
  return number && v >= 0 && std::isfinite(v) ? std::string() : str("got '", text, "', expected a number of 0 or more");
}

std::function<int()> define_mnist(CLI::App& app) {
  app.footer("Examples:\n  tg mnist --steps 200\n  tg mnist --json | jq .test_accuracy");
  auto o = std::make_shared<Options>();
  app.add_option("--steps", o->steps, "Training steps")
      ->capture_default_str()
      ->type_name("N")
      ->check(whole_number(0, INT64_MAX));
  app.add_option("--batch-size", o->batch_size, "Images in a step, drawn at random on the device")
      ->capture_default_str()
      ->type_name("N")
      ->check(whole_number(1, 60000));
  app.add_option("--lr", o->lr, "Learning rate of Adam")->capture_default_str()->type_name("R")->check(rate);
  app.add_option("--device", o->device, "Device, as DEV names it (default: DEV)")->type_name("DEV");
  app.add_option("--seed", o->seed, "Seed of initial weights and batches")->capture_default_str()->type_name("N");
  app.add_option("--losses", o->losses, "Write the loss of every step to a file, one a line")->type_name("FILE");
  app.add_flag("--json", o->json, "The result as a JSON object");
  return [o] { return train(*o); };
}

}  // namespace tg::app
