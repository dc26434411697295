/// \file Lesson 5: the layers below a Tensor, by hand: buffers, a kernel written as UOps, code, a launch.
#include <iostream>
#include <stdexcept>

#include "tinygrad/engine/compile.h"
#include "tinygrad/runtime/buffer.h"
#include "tinygrad/runtime/device.h"
#include "tinygrad/schedule/schedule.h"
#include "tinygrad/tinygrad.h"

using namespace tg;

static void check(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(what);
}

static std::vector<float> read(Buffer& b) {
  std::vector<float> out(static_cast<size_t>(b.size()));
  b.copy_out(std::as_writable_bytes(std::span(out)));
  return out;
}

int main() {
  // ---- 1. Memory. A Buffer is typed memory of a device; it is allocated when first needed. ----
  constexpr int64_t n = 4;
  const float x[n] = {2, 3, 4, 5}, y[n] = {10, 20, 30, 40};
  Device& device = Device::get();
  const BufferRef out = Buffer::create(device.name(), n, dtypes::float32),
                  a = Buffer::create(device.name(), n, dtypes::float32),
                  b = Buffer::create(device.name(), n, dtypes::float32);
  a->copy_in(std::as_bytes(std::span(x)));
  b->copy_in(std::as_bytes(std::span(y)));

  // ---- 2. A kernel: for i in 0..n-1: out[i] = a[i] * b[i] + 1. Every node is a UOp; equal nodes are one node. ----
  const ArenaRef arena = std::make_shared<Arena>();  // where this kernel's nodes live
  auto kernel = std::make_shared<Kernel>();
  {
    const ArenaScope scope(*arena);
    const auto parameter = [&](int64_t slot) {
      ParamArg arg;
      arg.slot = slot;
      return UOp::make(Ops::PARAM, dtypes::float32, {UOp::shape_stack(std::span(&n, 1))}, arg);
    };
    const UOp i = UOp::range(n, 0);
    const UOp product = parameter(1).index({i}).load() * parameter(2).index({i}).load();
    check(product == parameter(1).index({i}).load() * parameter(2).index({i}).load(),
          "the same expression is the same node");
    const UOp loop = parameter(0).index({i}).store(product + ConstValue(1.0)).end(std::span(&i, 1));
    const UOp sink = UOp::sink(std::span(&loop, 1), KernelInfo{});
    *kernel = {arena, sink, sink.key()};
    for (const UOp u : sink.toposort()) std::cout << u << "\n";
  }

  // ---- 3. Code. Optimised, expanded, linearized, rendered, compiled for the device, loaded. ----
  const KernelRef kernels[] = {kernel};
  const CompiledKernelRef compiled = compile_kernels(kernels, device)[0];
  std::cout << "compiled " << compiled->program->name << "\n";

  // ---- 4. A launch: addresses in the order of the parameters. ----
  void* const handles[] = {out->ensure_allocated(), a->ensure_allocated(), b->ensure_allocated()};
  LaunchArgs arguments;
  arguments.buffers = handles;
  arguments.nbuffers = 3;
  compiled->executable->launch(arguments);
  Device::synchronize();
  check(read(*out) == std::vector<float>{21, 61, 121, 201}, "the kernel's result");

  // ---- 5. The same from a Tensor: its graph, the schedule that makes kernels of it, and the run. ----
  const Tensor t = Tensor::from(std::vector<float>(x, x + n)) * Tensor::from(std::vector<float>(y, y + n)) + 1;
  const BoundSchedule schedule = t.schedule();
  std::cout << schedule.schedule->calls.size() << " kernel over " << schedule.schedule->buffers.size() << " buffers\n";
  check(schedule.schedule->calls.size() == 1, "multiplication and addition are one kernel");
  check(t.to_vector<float>() == std::vector<float>{21, 61, 121, 201}, "the tensor's value");
}
