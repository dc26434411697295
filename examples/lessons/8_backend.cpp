/// \file Lesson 8: a backend from scratch: TOY, a device whose machine code is a kernel's linear program as
/// bytes. It is registered by this file alone; everything above it, from broadcasting to optimizers, works on it at
/// once. Built as a shared object this file is what the Python lesson loads.
#include <cstdio>
#include <new>

#include "tinygrad/base/binary.h"
#include "tinygrad/render/renderers.h"
#include "tinygrad/runtime/device_registry.h"
#include "tinygrad/runtime/interp.h"
#include "tinygrad/tinygrad.h"
#include "tinygrad/uop/serialize.h"

using namespace tg;

namespace toy {

// ---- 1. Memory: how blocks are taken and given back. Handles are addresses of the host here. ----
class Memory final : public Allocator {
 public:
  void* allocate(size_t bytes) override { return ::operator new(bytes, std::align_val_t{64}, std::nothrow); }
  void free(void* block, size_t) noexcept override { ::operator delete(block, std::align_val_t{64}); }
};

// ---- 2. A renderer says what the device can do, and writes the linear program of a kernel in its language. ----
class ToyRenderer final : public Renderer {
 public:
  using Renderer::Renderer;
  OpSet ops() const override { return groups::kAlu; }  // what is not in the set is made of what is
  bool supports(DType d) const override { return !d.is_weak() && !d.is_void(); }
  std::string render(const Program& p) const override {
    ByteWriter w;
    w.text(p.name);
    w.value<int32_t>(p.nbuffers);
    ArenaScope scope(*p.arena);
    write_graph(w, p.insts);
    std::string text;
    for (const uint8_t byte : w.bytes) text += {"0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 15]};
    return text;
  }
};

// ---- 3. A compiler turns that text into bytes, which the disk cache keeps under the compiler's name. ----
class ToyCompiler final : public Compiler {
 public:
  std::vector<uint8_t> compile(const std::string& source) override {
    std::vector<uint8_t> bytes;
    for (size_t i = 0; i + 1 < source.size(); i += 2)
      bytes.push_back(static_cast<uint8_t>(std::stoi(source.substr(i, 2), nullptr, 16)));
    return bytes;
  }
  std::string assembly(const std::string& source) override { return source; }
  std::string cache_key() const override { return str("toy 1 ", graph_format()); }
  std::string cache_table() const override { return "compile_toy"; }
};

// ---- 4. What is loaded can be launched. The processor of TOY is the library's interpreter of linear programs. ----
class ToyExecutable final : public Executable {
 public:
  explicit ToyExecutable(std::shared_ptr<const Program> p) : interpreter_(std::move(p)) {}
  void launch(const LaunchArgs& args) override { interpreter_.run(args.buffers, args.vars, 0, args.thread_extent); }

 private:
  Interpreter interpreter_;
};

// ---- 5. The device holds these together. Everything happens during the call, so its queue is the host's. ----
class ToyDevice final : public Device {
 public:
  explicit ToyDevice(const std::string& name)
      : Device(name,
               std::make_unique<LruAllocator>(std::make_unique<Memory>(), name, int64_t{1} << 26, int64_t{1} << 28)) {
    target_.device = target_.renderer = target_.arch = "TOY";
  }
  const Target& target() override { return target_; }
  Compiler& compiler(const Target&) override { return compiler_; }
  Compiler& source_compiler(const Target&) override { throw DeviceError("[TOY] has no language for kernels of users"); }
  using Device::load;
  std::shared_ptr<Executable> load(std::span<const uint8_t> binary, const std::string&) override {
    ByteReader r(binary, "[TOY] machine code");
    auto p = std::make_shared<Program>();
    p->name = r.text();
    p->nbuffers = r.value<int32_t>();
    p->arena = std::make_shared<Arena>();
    ArenaScope scope(*p->arena);
    p->insts = read_graph(r);
    return std::make_shared<ToyExecutable>(std::move(p));
  }

 private:
  ToyCompiler compiler_;
  Target target_;
};

// ---- 6. Two objects enter both into the registries. No file of the library changes. ----
const RegisterRenderer renderer{"TOY", [](const Target& t) { return std::make_unique<ToyRenderer>(t); }};
const RegisterDevice device{{.name = "TOY",
                             .open = [](const std::string& name) { return std::make_unique<ToyDevice>(name); },
                             .describe = [] { return std::string("a lesson"); }}};

}  // namespace toy

int main() {
  std::printf("TOY is known: %s\n", Device::canonical("toy:0").c_str());

  // ---- 7. The same program on two devices. ----
  const Tensor a = Tensor({{1.f, 2.f}, {3.f, 4.f}}), there = a.to("TOY").realize();
  GlobalCounters::reset();
  const Tensor product = (there.matmul(there) + 1).relu().realize();
  std::printf("%s: %d kernel:", product.device().c_str(), static_cast<int>(GlobalCounters::kernels.load()));
  for (const double v : product.to_vector<double>()) std::printf(" %g", v);
  const Tensor difference = product.to("CPU") - (a.matmul(a) + 1).relu();
  std::printf("\ndifference from CPU: %g\n", difference.abs().max().item<double>());
  std::printf("sorted: ");
  for (const double v : Tensor({3, 1, 2}).to("TOY").sort().first.to_vector<double>()) std::printf(" %g", v);
  std::printf("\n");

  // ---- 8. Training on it: gradients and optimizers are graphs like any other. ----
  const Context on_toy{{"DEV", "TOY"}};
  const Tensor x = (Tensor::arange(16).to_float() / 16).realize(), y = (x * 3 + 1).realize();
  const Tensor slope = Tensor({0.f}).requires_grad_(), start = Tensor({0.f}).requires_grad_();
  nn::SGD sgd({slope, start}, {.lr = 0.5});
  const nn::Training mode;
  for (int i = 0; i < 100; i++) {
    sgd.zero_grad();
    (x * slope + start - y).square().mean().backward();
    sgd.step();
  }
  std::printf("on %s: y = %.2f x + %.2f\n", slope.device().c_str(), slope.item<double>(), start.item<double>());
}
