/// \file Lesson 1: a first tensor, lazy evaluation, and devices.
#include <cstdio>

#include "tinygrad/tinygrad.h"

using namespace tg;

int main() {
  // ---- 1. An expression is a graph. Nothing runs until somebody asks for a value. ----
  const Tensor a = Tensor({1.f, 2.f, 3.f}), b = Tensor({10.f, 20.f, 30.f});
  const Tensor sum = a + b;
  std::printf("the sum is computed: %s\n", sum.is_realized() ? "yes" : "no");
  for (const float v : sum.to_vector<float>()) std::printf("%.0f ", static_cast<double>(v));  // asks
  std::printf("\n");

  // ---- 2. Everything that is pending is fused: three operations and a reduction are one kernel. ----
  const Tensor data = Tensor::arange(6).to_float().contiguous().realize();
  GlobalCounters::reset();
  const float norm = (data * 2 + 1).square().sum().item<float>();
  std::printf("sum of squares %.0f in %d kernel\n", static_cast<double>(norm),
              static_cast<int>(GlobalCounters::kernels.load()));

  // ---- 3. A device is chosen by name: DEV in the environment, an option, or a Context. ----
  const Tensor here = Tensor({1.f, 2.f}), there = here.to("INTERP");  // the interpreter: slow, the reference for others
  std::printf("%s, %s\n", here.device().c_str(), there.device().c_str());
  std::printf("the same on both: %.0f %.0f\n", here.sum().item<double>(), there.sum().item<double>());
  {
    const Context on_interpreter{{"DEV", "INTERP"}};  // until the end of the scope, on this thread
    std::printf("inside of the context: %s\n", Tensor::ones(2).contiguous().device().c_str());
  }

  // ---- 4. Values do not move by themselves. Mixing devices is an error of the line that does it. ----
  try {
    here + there;
  } catch (const DeviceError&) { std::printf("mixing devices: DeviceError\n"); }
  std::printf("moved first: %.0f\n", (here + there.to("CPU")).sum().item<double>());

  // ---- 5. Two devices of one kind: pieces of memory and queues of their own. ----
  const Tensor second = here.to("CPU:1");
  std::printf("%s: %.0f\n", second.device().c_str(), second.sum().item<double>());
}
