/// \file Exports, imports, reads, replaced tensors and captured functions in eight threads, for some seconds: what was
/// handed out never changes, updates are never seen half done, and none is lost.
///
///   stress [SECONDS [SEED]]    TG_STRESS_SECONDS: where no argument says how long; by default 3
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <random>
#include <thread>

#include "tinygrad/runtime/buffer.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {

constexpr int kThreads = 8;
constexpr int64_t kSizes[] = {1, 7, 64, 1000, 4096};
constexpr size_t kCounters = 4;
using Access = HostBytes::Access;

struct Wrong : std::runtime_error {
  using std::runtime_error::runtime_error;
};
void expect(bool right, const char* what) {
  if (!right) throw Wrong(what);
}

/// Whether all of some floats are `v`.
bool all_are(std::span<const std::byte> bytes, float v) {
  for (size_t i = 0; i + sizeof v <= bytes.size(); i += sizeof v)
    if (std::memcmp(&bytes[i], &v, sizeof v) != 0) return false;
  return true;
}
bool all_equal(const std::vector<float>& v) {
  return std::all_of(v.begin(), v.end(), [&](float x) { return x == v[0]; });
}

/// What all threads use.
struct Shared {
  Tensors counters;  ///< every thread adds to them in place
  std::atomic<int64_t> added[kCounters] = {};
  Tensors replaced;  ///< every thread gives them other storage
  Tensor weights;    ///< only read
  Tensor sharded;
};

Tensor filled(float v, int64_t n) { return Tensor::full({n}, v).contiguous().realize(); }

/// One thread: its random numbers, the functions it has captured, and what it keeps for a while.
class Worker {
 public:
  Worker(Shared& shared, uint32_t seed) : s_(shared), random_(seed) {}

  void export_memory() {
    const auto n = size();
    const float v = value();
    Tensor t = filled(v, n);
    const HostBytes memory = host_bytes(t);
    switch (below(5)) {
      case 0: t.replace(filled(v + 1, n)); break;
      case 1: t = filled(v + 1, n); break;
      case 2: nn::cast_parameters({t.requires_grad_()}, dtypes::float16); break;
      case 3: t.to_(other_device()).realize(); break;
      default: t = Tensor();
    }
    keep(filled(v + 2, n));
    expect(all_are(memory.bytes, v), "an export changed with its tensor");
    if (below(2)) held_.emplace_back(memory, v);
    if (held_.size() > 16) release_exports();
  }

  void import_read_only() {
    const auto n = static_cast<size_t>(size());
    const float v = value();
    const auto memory = std::make_shared<std::vector<float>>(n, v);
    Tensor t = from_host_bytes({std::as_bytes(std::span(*memory)), memory, Access::kReadOnly},
                               {static_cast<int64_t>(n)}, dtypes::float32);
    const Tensor view = t.reshape(-1);
    t += 1;
    expect(all_are(copied_bytes(view).bytes, v + 1), "a view of an import missed a write");
    expect(all_are(std::as_bytes(std::span(*memory)), v), "read-only memory was written");
  }

  void import_shared() {
    const auto n = static_cast<size_t>(size());
    const float v = value();
    const auto memory = std::make_shared<std::vector<float>>(n, v);
    Tensor t = from_host_bytes({std::as_bytes(std::span(*memory)), memory, Access::kShared}, {static_cast<int64_t>(n)},
                               dtypes::float32);
    t += 1;
    t.realize();
    expect(all_are(std::as_bytes(std::span(*memory)), v + 1), "a write to an import is not in its memory");
  }

  void read() {
    const Tensor& t = s_.counters[below(kCounters)];
    switch (below(3)) {
      case 0: expect(all_equal(t.to_vector<float>()), "an update was seen half done"); break;
      case 1: expect(all_equal(t.slice(0, 0, 100).to_vector<float>()), "an update was seen half done in a view"); break;
      default: {
        const HostBytes copy = copied_bytes(t);
        float first = 0;
        std::memcpy(&first, copy.bytes.data(), sizeof first);
        expect(all_are(copy.bytes, first), "a copy was made half before an update");
      }
    }
  }

  void read_twice() {
    const Tensor& t = below(2) ? s_.weights : s_.sharded;
    const std::span<const float> first = t.data<float>(), second = t.data<float>();
    expect(first.data() == second.data() && first[0] == 3 && first.back() == 3, "a second read moved the first");
  }

  void update() {
    const size_t i = below(kCounters);
    Tensor t = s_.counters[i];
    t += 1;
    if (below(2)) t.realize();
    s_.added[i]++;
  }

  void replace() {
    const Tensor& t = s_.replaced[below(s_.replaced.size())];
    if (below(2)) t.replace(filled(value(), t.numel()));
    else expect(all_equal(t.to_vector<float>()), "a replaced tensor has elements of two");
  }

  void call_captured() {
    const float v = value();
    const Tensor x = filled(v, 64), y = step_(x);
    const HostBytes result = host_bytes(y);
    const Tensor next = step_(filled(v + 1, 64));
    expect(all_are(result.bytes, v * 2 + 3), "a replay changed the result that was exported");
    expect(all_are(copied_bytes(next).bytes, v * 2 + 5), "a replay gave another value");
  }

  void change_state_in_captured() {
    add_(filled(1, 64));
    calls_++;
    expect(all_are(copied_bytes(state_).bytes, static_cast<float>(calls_)), "a replay lost an update of its state");
  }

  void load() {
    const float v = value();
    const Tensor w = filled(v, 64);
    const HostBytes memory = host_bytes(w);
    const Tensor view = w.reshape(8, 8);  // so that the tensor gets other storage
    nn::load_state_dict({{"w", w}}, {{"w", filled(v + 1, 64)}});
    keep(filled(v + 2, 64));
    expect(all_are(memory.bytes, v), "an export changed with a loaded state");
    expect(all_are(copied_bytes(w).bytes, v + 1), "a loaded state is another");
  }

  void use_buffer() {
    const float v = value();
    const BufferRef b = Buffer::create(Device::default_name(), 64, dtypes::float32);
    const std::vector<float> values(64, v);
    b->copy_in(std::as_bytes(std::span(values)));
    const HostBytes memory = b->host_bytes();
    b->deallocate();
    keep(filled(v + 1, 64));
    expect(all_are(memory.bytes, v), "memory of a buffer was freed while it was seen");
  }

  void release_exports() {
    for (const auto& [memory, v] : held_) expect(all_are(memory.bytes, v), "an export changed later");
    held_.clear();
  }

  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }

 private:
  int64_t size() { return kSizes[below(std::size(kSizes))]; }
  float value() { return static_cast<float>(below(1000)); }
  static std::string other_device() { return Device::default_name() == "CPU" ? "CPU:1" : "CPU"; }
  /// Holds tensors for a while, so that memory is given out that was just freed.
  void keep(Tensor t) {
    kept_.push_back(std::move(t));
    if (kept_.size() > 4) kept_.erase(kept_.begin());
  }

  Shared& s_;
  std::mt19937 random_;
  std::vector<std::pair<HostBytes, float>> held_;
  Tensors kept_;
  int64_t calls_ = 0;
  Tensor state_ = filled(0, 64);
  using Function = std::function<Tensor(const Tensor&)>;
  Jit<Function> step_ = jit(Function([this](const Tensor& x) { return x * 2 + s_.weights.slice(0, 0, 64); }));
  Jit<Function> add_ = jit(Function([this](const Tensor& x) {
    state_.assign(state_ + x);
    return state_.sum();
  }));
};

struct Action {
  const char* name;
  void (Worker::*run)();
  std::atomic<int64_t> times{0};
};
Action actions[] = {
    {"export", &Worker::export_memory},
    {"import read-only", &Worker::import_read_only},
    {"import shared", &Worker::import_shared},
    {"read", &Worker::read},
    {"read twice", &Worker::read_twice},
    {"update", &Worker::update},
    {"replace", &Worker::replace},
    {"captured", &Worker::call_captured},
    {"captured state", &Worker::change_state_in_captured},
    {"load", &Worker::load},
    {"buffer", &Worker::use_buffer},
};

/// Runs random actions until the time is over or one of them is wrong; returns how many were.
int work(Shared& shared, uint32_t seed, std::chrono::steady_clock::time_point end, std::atomic<bool>& failed) {
  const char* name = "setup";
  try {
    Worker w(shared, seed);
    while (std::chrono::steady_clock::now() < end && !failed) {
      Action& a = actions[w.below(std::size(actions))];
      name = a.name;
      (w.*a.run)();
      a.times++;
    }
    name = "held exports";
    w.release_exports();
    return 0;
  } catch (const std::exception& e) {
    failed = true;
    std::cerr << "stress: " << name << ": " << e.what() << " (seed " << seed << ")\n";
    return 1;
  }
}

int run(double seconds, uint32_t seed) {
  Shared shared;
  for (size_t i = 0; i < kCounters; i++) shared.counters.push_back(filled(0, i % 2 ? 200000 : 1000));
  for (int i = 0; i < 4; i++) shared.replaced.push_back(filled(0, 1000));
  shared.weights = filled(3, 1000);
  const std::string d = Device::default_name();
  shared.sharded = filled(3, 1000).shard({d, d + ":1"}, 0).realize();
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                                          std::chrono::duration<double>(seconds));
  std::atomic<bool> failed = false;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < kThreads; i++)
    threads.emplace_back([&, i] { wrong += work(shared, seed * kThreads + i, end, failed); });
  for (std::thread& t : threads) t.join();
  for (size_t i = 0; i < kCounters; i++) {
    const auto count = static_cast<float>(shared.added[i].load());
    if (failed || all_are(copied_bytes(shared.counters[i]).bytes, count)) continue;
    std::cerr << "stress: a counter has " << shared.counters[i].slice(0, 0, 1).item<float>() << ", expected " << count
              << '\n';
    wrong++;
  }
  for (const Action& a : actions) std::cout << a.name << ' ' << a.times << '\n';
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tg

int main(int argc, char** argv) {
  const char* limit = argc > 1 ? argv[1] : std::getenv("TG_STRESS_SECONDS");
  return tg::run(limit ? std::atof(limit) : 3, argc > 2 ? static_cast<uint32_t>(std::atol(argv[2])) : 1);
}
