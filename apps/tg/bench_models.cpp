/// \file Whole-model rows: training and inference steps, and the time from graph to loaded kernels.
#include <sys/resource.h>

#include <chrono>
#include <cmath>
#include <optional>

#include "apps/tg/bench_reference.h"
#include "apps/tg/bench_tables.h"
#include "models/resnet.h"
#include "tinygrad/engine/counters.h"
#include "tinygrad/engine/replay.h"
#include "tinygrad/engine/schedule_run.h"
#include "tinygrad/nn/datasets.h"
#include "tinygrad/nn/optim.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/tensor/jit/jit.h"
#include "tinygrad/uop/symbolic.h"

namespace tg::bench {
namespace {

using SteadyClock = std::chrono::steady_clock;
double since(SteadyClock::time_point t) { return std::chrono::duration<double>(SteadyClock::now() - t).count(); }

// ---- a GPT-2 block ----

struct Gpt {
  static constexpr int64_t kChannels = 768, kHeads = 12;
  static constexpr int64_t kChecked = 4;  // tokens compared with the reference
  models::GptBlock block{kChannels, kHeads};
  int64_t time;
  Tensor x = sequence(7);
  Tensors parameters;
  explicit Gpt(int64_t tokens = 128) : time(tokens) {
    give_values(block);
    parameters = nn::get_parameters(block);
  }
  /// Gradients of sum(block(x) * dy).
  Tensors gradients(const Tensor& dy) const { return block(x).gradient(parameters, dy); }
  Tensor sequence(uint64_t seed) const {
    return Tensor::from(random_floats(static_cast<size_t>(time * kChannels), seed), Shape{1, time, kChannels});
  }
  double forward_flops() const {
    const double t = static_cast<double>(time), c = kChannels;
    return 2 * t * c * 12 * c + 4 * t * t * c;
  }
};

Samples gpt_forward(Context& c) {
  const Gpt g;
  // No tensor that refers to the result remains: the same expression would not be computed again.
  const std::vector<float> got = g.block(g.x).to_vector<float>();
  const std::vector<double> expected = GptReference(g.block).forward(g.x.data<float>(), Gpt::kChecked);
  for (size_t i = 0; i < expected.size(); i++)
    check_close("gpt2 block", i, got[i], {expected[i], 1 + std::abs(expected[i])}, 1e-5);
  return c.time({.flops = g.forward_flops()}, [&] {
    g.block(g.x).realize();
    Device::synchronize();
  });
}

/// Compares entries of the gradient with finite differences of the float64 reference, for an output gradient that is
/// zero after the first tokens.
void check_gpt_gradients(const Gpt& g) {
  constexpr size_t n = Gpt::kChecked * Gpt::kChannels;
  std::vector<float> dy = random_floats(static_cast<size_t>(g.time * Gpt::kChannels), 8);
  std::fill(dy.begin() + n, dy.end(), 0.f);
  const Tensors gradients = g.gradients(Tensor::from(dy, g.x.shape()));
  realize(gradients);
  GptReference reference(g.block);
  const auto loss = [&] {
    const std::vector<double> y = reference.forward(g.x.data<float>(), Gpt::kChecked);
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += y[i] * dy[i];
    return sum;
  };
  const nn::StateDict names = nn::get_state_dict(g.block);
  for (size_t p = 0; p < names.size(); p++) {
    const std::span<const float> got = gradients[p].data<float>();
    double squares = 0;
    for (float v : got) squares += static_cast<double>(v) * v;
    const double rms = std::sqrt(squares / static_cast<double>(got.size()));
    const size_t at = got.size() / 3;
    constexpr double kStep = 1e-4;
    reference.change(names[p].first, at, kStep);
    const double above = loss();
    reference.change(names[p].first, at, -2 * kStep);
    const double below = loss();
    reference.change(names[p].first, at, kStep);
    const double expected = (above - below) / (2 * kStep);
    check_close(names[p].first.c_str(), at, got[at], {expected, std::abs(expected) + rms}, 1e-4);
  }
}

Samples gpt_train(const Context& c, int64_t tokens) {
  const Gpt g(tokens);
  check_gpt_gradients(g);
  const Tensor dy = g.sequence(9);
  return c.time({.flops = 3 * g.forward_flops()}, [&] {
    realize(g.gradients(dy));
    Device::synchronize();
  });
}

// ---- training on MNIST ----

/// Losses of the first steps from the weights and batches of seed 42, computed in float64. Adam's first steps follow
/// the signs of gradients, so that rounding errors grow: float32 deviates by up to 0.04 % here.
constexpr double kMnistLosses[] = {2.74020784, 1.69549121, 1.23384937};

Samples mnist_step(Context& c) {
  const nn::datasets::Dataset data = nn::datasets::mnist();
  Tensor::manual_seed(42);
  const models::ConvNet model;
  nn::Adam optimizer(nn::get_parameters(model));
  const auto step = [&] {
    const nn::Training mode;
    optimizer.zero_grad();
    const Tensor rows = Tensor::randint({512}, {.low = 0, .high = data.train_images.shape(0)});
    const Tensor loss = model(data.train_images[rows]).sparse_categorical_crossentropy(data.train_labels[rows]);
    loss.backward();
    Tensors all = optimizer.schedule_step();
    all.push_back(loss);
    realize(all);
    return loss.item<double>();
  };
  for (size_t i = 0; i < std::size(kMnistLosses); i++)
    check_close("mnist loss", i, step(), {kMnistLosses[i], kMnistLosses[i]}, 2e-3);
  return c.time({}, [&] { step(); });
}

// ---- ResNet-18: training; graph, schedule, code ----

struct ResNet {
  static constexpr int64_t kClasses = 1000, kPixels = 3 * 224 * 224;
  models::ResNet model = models::resnet18(kClasses);
  Tensor images, labels;
  Tensors trained, statistics;
  explicit ResNet(const std::vector<int32_t>& classes = {3, 700}) : labels(Tensor::from(classes)) {
    const auto batch = static_cast<int64_t>(classes.size());
    images = Tensor::from(random_floats(static_cast<size_t>(batch * kPixels), 5), Shape{batch, 3, 224, 224});
    give_values(model);
    for (const auto& [name, t] : nn::get_state_dict(model))
      (t.requires_grad() == false ? statistics : trained).push_back(t);
  }
  /// Returns loss, gradients and running statistics.
  Tensors step() const {
    const nn::Training mode;
    const Tensor loss = model(images).sparse_categorical_crossentropy(labels);
    Tensors all = loss.gradient(trained);
    all.insert(all.begin(), loss);
    all.insert(all.end(), statistics.begin(), statistics.end());
    return all;
  }
};

/// Losses of the first steps, computed in float64.
constexpr double kResNetLosses[] = {6.69620022, 4.73630130, 3.29236237};

Samples resnet_step(Context& c) {
  const ResNet net({3, 128, 253, 378, 503, 628, 753, 878});
  nn::SGD optimizer(net.trained, {.lr = 0.01});
  const auto step = [&] {
    const nn::Training mode;
    optimizer.zero_grad();
    const Tensor loss = net.model(net.images).sparse_categorical_crossentropy(net.labels);
    loss.backward();
    Tensors all = optimizer.schedule_step();
    all.push_back(loss);
    all.insert(all.end(), net.statistics.begin(), net.statistics.end());
    realize(all);
    return loss.item<double>();
  };
  for (size_t i = 0; i < std::size(kResNetLosses); i++)
    check_close("ResNet-18 loss", i, step(), {kResNetLosses[i], kResNetLosses[i]}, 2e-3);
  return c.time({}, [&] { step(); });
}

/// Returns the seconds from inputs to kernels ready to launch; `check` then runs them.
template <class Step, class Check> double seconds_to_loaded(const Step& step, const Check& check) {
  Device::get();
  const auto start = SteadyClock::now();
  Tensors results;
  std::optional<ScheduleRun> run;
  {
    const GraphScope scope;
    results = step();
    run.emplace(schedule(results));
  }
  run->compile();
  const double seconds = since(start);
  realize(results);
  check(results);
  return seconds;
}

double resnet_compile() {
  const ResNet net;
  return seconds_to_loaded(
      [&] { return net.step(); },
      [&](const Tensors& r) {
        const double loss = r[0].item<double>();
        BENCH_CHECK(loss > 3 && loss < 12, "[bench] ResNet-18: the first loss is ", loss, ", expected about ln(1000)");
        const std::vector<double> bias =
            r[net.trained.size()].to_vector<double>();  // of the last layer: softmax - label, which sums to zero
        double sum = 0, magnitude = 0;
        for (double v : bias) {
          sum += v;
          magnitude += std::abs(v);
        }
        BENCH_CHECK(bias.size() == ResNet::kClasses && magnitude > 0.5 && magnitude <= 2.0001 && std::abs(sum) < 1e-4,
                    "[bench] ResNet-18: gradient of the last bias sums to ", sum, ", magnitudes to ", magnitude);
        for (const Tensor& t : r)
          BENCH_CHECK(std::isfinite(t.to_float().abs().sum().item<double>()), "[bench] ResNet-18: a result of shape ",
                      t.shape(), " is not finite");
      });
}

/// Returns the peak resident size of this process.
double peak_resident_bytes() {
  rusage usage{};
  BENCH_CHECK(::getrusage(RUSAGE_SELF, &usage) == 0, "[bench] the system does not tell the memory in use");
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

/// Steps of SGD with momentum, batch 8.
double resnet_train_peak() {
  constexpr int64_t kBatch = 8;
  const models::ResNet model = models::resnet18(ResNet::kClasses);
  give_values(model);
  nn::SGD optimizer(nn::get_parameters(model), {.lr = 0.01, .momentum = 0.9});
  const Tensor images = Tensor::from(random_floats(kBatch * 3 * 224 * 224, 5), Shape{kBatch, 3, 224, 224});
  const Tensor labels = Tensor::arange(kBatch) * 100;
  const nn::Training mode;
  for (int step = 0; step < 3; step++) {
    optimizer.zero_grad();
    const Tensor loss = model(images).sparse_categorical_crossentropy(labels);
    loss.backward();
    Tensors all = optimizer.schedule_step();
    all.push_back(loss);
    realize(all);
    BENCH_CHECK(std::isfinite(loss.item<double>()), "[bench] ResNet-18: the loss is not finite");
  }
  return peak_resident_bytes();
}

double gpt_compile() {
  const Gpt g;
  const Tensor dy = g.sequence(9);
  return seconds_to_loaded(
      [&] {
        const Tensor y = g.block(g.x);
        Tensors all = y.gradient(g.parameters, dy);
        all.insert(all.begin(), y);
        return all;
      },
      [&](const Tensors& r) {
        const std::vector<double> expected = GptReference(g.block).forward(g.x.data<float>(), 1);
        const std::span<const float> got = r[0].data<float>();
        for (size_t i = 0; i < expected.size(); i++)
          check_close("gpt2 block", i, got[i], {expected[i], 1 + std::abs(expected[i])}, 1e-5);
      });
}

/// Returns the seconds to schedule a step of a new ResNet-18: an earlier one would have its statistics pending.
double seconds_to_schedule(bool known) {
  const ResNet net;
  const GraphScope scope;
  const Tensors results = net.step();
  const auto start = SteadyClock::now();
  const BoundSchedule s = schedule(results);
  const double seconds = since(start);
  BENCH_CHECK(s.cache_hit == known && s.schedule->calls.size() > 50, "[bench] ResNet-18: got ",
              s.schedule->calls.size(), " kernels, ", s.cache_hit ? "cached" : "created");
  return seconds;
}

Samples resnet_schedule(Context& c) {
  return c.time_inner({}, [] {
    clear_schedule_cache();
    return seconds_to_schedule(false);
  });
}

Samples resnet_schedule_hit(Context& c) {
  clear_schedule_cache();
  seconds_to_schedule(false);
  return c.time_inner({}, [] { return seconds_to_schedule(true); });
}

/// Replaces every RANGE by one with a tag, so that all index and value arithmetic is rebuilt while the symbolic rules
/// visit it.
const PatternMatcher<UOp>& rebuild_rules() {
  using namespace upat;
  static const PatternMatcher<UOp> rules =
      PatternMatcher<UOp>({rule(u = any_of(Ops::RANGE), [](U range) { return range.tag() ? UOp() : range.rtag(1); })}) +
      symbolic();
  return rules;
}

Samples rewrite_rate(Context& c) {
  const ResNet net;
  std::vector<KernelRef> kernels;
  {
    const GraphScope scope;
    const BoundSchedule s = schedule(net.step());
    for (const ScheduleCall& call : s.schedule->calls)
      if (call.kernel) kernels.push_back(call.kernel);
  }
  const auto pass = [&](uint64_t& built, uint64_t& visited) {
    std::vector<std::unique_ptr<Arena>> arenas;
    UOps sinks;
    for (const KernelRef& k : kernels) {
      arenas.push_back(std::make_unique<Arena>());
      const ArenaScope scope(*arenas.back());
      sinks.push_back(import_graph(k->arena->graph(), k->sink));
      built -= arenas.back()->graph().nodes_built();
    }
    visited -= rewrite_counters().visited;
    const auto start = SteadyClock::now();
    for (size_t i = 0; i < kernels.size(); i++) {
      const ArenaScope scope(*arenas[i]);
      graph_rewrite(sinks[i], rebuild_rules());
    }
    const double seconds = since(start);
    visited += rewrite_counters().visited;
    for (const auto& a : arenas) built += a->graph().nodes_built();
    return seconds;
  };
  uint64_t built = 0, visited = 0;
  pass(built, visited);
  BENCH_CHECK(kernels.size() > 50 && built > 1000 && built <= visited, "[bench] rewriting ", kernels.size(),
              " kernels built ", built, " nodes, visited ", visited);
  return c.time_inner({.items = static_cast<double>(built)}, [&] {
    uint64_t b = 0, v = 0;
    return pass(b, v);
  });
}

// ---- overheads ----

double first_result() {
  const auto start = SteadyClock::now();
  const int64_t six = (Tensor({1, 2, 3}) * 2 - 2).sum().item<int64_t>();
  BENCH_CHECK(six == 6, "[bench] got ", six, ", expected 6");
  return since(start);
}

Samples eager_add(Context& c) {
  const Tensor a = Tensor::from(std::vector<float>{1, 2, 3, 4}), b = Tensor::from(std::vector<float>{10, 20, 30, 40});
  BENCH_CHECK((a + b).to_vector<float>() == (std::vector<float>{11, 22, 33, 44}), "[bench] a wrong sum");
  const int64_t before = GlobalCounters::kernels;
  for (int i = 0; i < 3; i++) (a + b).realize();
  BENCH_CHECK(GlobalCounters::kernels - before == 3, "[bench] three additions ran ", GlobalCounters::kernels - before,
              " kernels");
  return c.time({}, [&] { (a + b).realize(); });
}

/// Captures many tiny kernels, each of which reads the output of the one before; returns the time of a replay per
/// kernel.
Samples jit_replay(Context& c) {
  constexpr int kKernels = 300, kRounds = 20;
  auto f = jit([](const Tensor& x) {
    Tensor t = x;
    for (int i = 0; i < kKernels; i++) t = (t + 1).realize();
    return t;
  });
  const Tensor x = Tensor::from(std::vector<float>{0, 1, 2, 3}).realize();
  f(x);
  f(x);
  BENCH_CHECK(f.core().captured() && f.core().replay()->kernels() == kKernels,
              "[bench] the replay has another number of kernels than ", kKernels);
  return c.time_inner({}, [&] {
    const auto start = SteadyClock::now();
    Tensor y;
    for (int i = 0; i < kRounds; i++) y = f(x);
    Device::synchronize();
    const double seconds = since(start);
    BENCH_CHECK(y.to_vector<float>() == (std::vector<float>{kKernels, kKernels + 1, kKernels + 2, kKernels + 3}),
                "[bench] a wrong result");
    return seconds / (kKernels * kRounds);
  });
}

/// Builds a chain of 10,000 methods that make one node each; computes nothing.
Samples build_10k_ops(Context& c) {
  constexpr int kOps = 10000, kKinds = 8;
  const Tensor a = Tensor::from(std::vector<float>(16, 0.5f), {4, 4}),
               b = Tensor::from(std::vector<float>(16, 0.25f), {4, 4});
  auto build = [&] {
    Tensor t = a;
    for (int i = 0; i < kOps; i += kKinds) t = ((t + b) * a).maximum(b).sqrt().T().exp2().sin().reciprocal();
    return t;
  };
  const size_t before = Graph::global().live_nodes();
  {
    const Tensor t = build();
    const size_t made = Graph::global().live_nodes() - before;
    BENCH_CHECK(made >= kOps, "[bench] got ", made, " nodes, expected ", kOps);
  }
  BENCH_CHECK(Graph::global().live_nodes() == before, "[bench] nodes outlive the tensor");
  return c.time({}, [&] { build(); });
}

constexpr Row kRows[] = {
    {"gpt2_block_fwd", "ms", "a GPT-2 block, (1, 128, 768), 12 heads: graph to result, schedule cached", gpt_forward},
    {"gpt2_block_train", "ms", "its forward pass and the gradients of all parameters",
     [](Context& c) { return gpt_train(c, 128); }},
    {"gpt2_block_train_4096", "ms", "the same of (1, 4096, 768)", [](Context& c) { return gpt_train(c, 4096); }},
    {"mnist_step_512", "ms", "a training step of tg mnist, batch 512", mnist_step},
    {"resnet18_step_8", "ms", "a training step of ResNet-18, (8, 3, 224, 224), SGD", resnet_step},
    {"resnet18_compile_cold", "ms",
     "ResNet-18 forward and backward, (2, 3, 224, 224): graph to loaded kernels, empty cache",
     [](Context& c) { return c.child("resnet18_compile", Cache::kCold, Clock::kChild); }},
    {"resnet18_schedule_cold", "ms", "the schedule part of it", resnet_schedule},
    {"resnet18_warm_disk", "ms", "the same in a new process that finds its kernels in the disk cache",
     [](Context& c) { return c.child("resnet18_compile", Cache::kWarm, Clock::kChild); }},
    {"schedule_cache_hit_resnet18", "ms", "the schedule of another step of the same structure", resnet_schedule_hit},
    {"resnet18_train_peak", "MB",
     "greatest resident size of a process that trains ResNet-18, (8, 3, 224, 224), SGD with momentum",
     [](Context& c) { return c.child("resnet18_train_peak", Cache::kWarm, Clock::kChild); }},
    {"gpt2_block_compile_cold", "ms", "the GPT-2 block, forward and backward: graph to loaded kernels, empty cache",
     [](Context& c) { return c.child("gpt2_block_compile", Cache::kCold, Clock::kChild); }},
    {"start_to_first_result", "ms", "a process that computes one small sum, warm disk cache",
     [](Context& c) { return c.child("first_result", Cache::kWarm, Clock::kParent); }},
    {"rewrite_nodes_per_s", "1/s", "nodes rebuilt by the symbolic rules over ResNet-18's kernels", rewrite_rate},
    {"build_10k_ops", "ms", "10,000 nodes of 8 kinds of operation built and released", build_10k_ops},
    {"eager_add", "us", "c = a + b, realized, cached shapes", eager_add},
    {"jit_replay_per_kernel", "us", "a captured function of 300 dependent tiny kernels, replayed: per kernel",
     jit_replay},
};

constexpr ChildRow kChildren[] = {{"resnet18_compile", resnet_compile},
                                  {"resnet18_train_peak", resnet_train_peak},
                                  {"gpt2_block_compile", gpt_compile},
                                  {"first_result", first_result}};

}  // namespace

std::span<const Row> model_rows() { return kRows; }
std::span<const ChildRow> model_children() { return kChildren; }

}  // namespace tg::bench
