/// \file Says how fast the default device is, for make test-backend: copies, launches, replays, three kernels.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>

#include "tinygrad/base/error.h"
#include "tinygrad/runtime/buffer.h"
#include "tinygrad/tinygrad.h"

namespace tg {
namespace {

/// Returns the least seconds of several runs, which end with waiting for the device.
double seconds(const std::function<void()>& f) {
  f();
  double best = 1e9, total = 0;
  for (int i = 0; i < 20 && total < 1; i++) {
    Device::synchronize();
    const auto begin = std::chrono::steady_clock::now();
    f();
    Device::synchronize();
    const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    best = std::min(best, s);
    total += s;
  }
  return best;
}
void print(const char* what, double value, const char* unit) { std::printf("  %-44s %12.4g %s\n", what, value, unit); }

/// Whether kernels take so long, as where they are interpreted, that small ones say enough.
bool is_slow() {
  const Tensor x = Tensor::ones({1 << 16}).contiguous().realize();
  return seconds([&] { (x * 2 + 1).contiguous().realize(); }) > 2e-3;
}

void report() {
  const bool slow = is_slow();
  const int64_t n = slow ? 1 << 16 : 1 << 24, size = slow ? 48 : 1024;
  const double bytes = static_cast<double>(n) * 4;
  const std::vector<float> host(static_cast<size_t>(n), 1.5f);
  Tensor x = Tensor::from(host, Shape{n}).realize();
  BufferRef memory = Buffer::create(Device::default_name(), n, dtypes::float32);
  std::vector<float> back(host.size());
  print("copy to the device", bytes / seconds([&] { memory->copy_in(std::as_bytes(std::span(host))); }) * 1e-9, "GB/s");
  print("copy to the host", bytes / seconds([&] { memory->copy_out(std::as_writable_bytes(std::span(back))); }) * 1e-9,
        "GB/s");
  print("x * 2 + 1, realized", 2 * bytes / seconds([&] { (x * 2 + 1).contiguous().realize(); }) * 1e-9, "GB/s");
  print("sum", bytes / seconds([&] { x.sum().realize(); }) * 1e-9, "GB/s");
  const Tensor a = Tensor::rand({size, size}).realize(), b = Tensor::rand({size, size}).realize();
  const double operations = 2.0 * static_cast<double>(size * size * size);
  print(str("matmul ", size).c_str(), operations / seconds([&] { a.matmul(b).realize(); }) * 1e-9, "GFLOP/s");
  const Tensor one = Tensor::ones({4}).contiguous().realize();
  print("small kernel, realized", seconds([&] { (one + 1).contiguous().realize(); }) * 1e6, "us");
  constexpr int kKernels = 100;
  auto chain = jit([](const Tensor& t) {
    Tensor r = t;
    for (int i = 0; i < kKernels; i++) r = (r + 1).contiguous();
    return r;
  });
  for (int i = 0; i < 3; i++) chain(one);
  print("kernel of a replay", seconds([&] { chain(one).realize(); }) / kKernels * 1e6, "us");
}

}  // namespace
}  // namespace tg

int main() {
  try {
    tg::report();
  } catch (const tg::Error& e) {
    std::fprintf(stderr, "device_speed: %s\n", e.what());
    return 1;
  }
}
