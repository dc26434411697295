/// \file The INTERP device: host memory, kernels executed by the reference interpreter. Slow but exact.
#include <atomic>

#include "tinygrad/base/env.h"
#include "tinygrad/base/error.h"
#include "tinygrad/runtime/builtin_devices.h"
#include "tinygrad/runtime/interp.h"
#include "tinygrad/runtime/thread_pool.h"
#include "tinygrad/target/device_traits.h"

namespace tg {
namespace {

class InterpExecutable final : public Executable {
 public:
  explicit InterpExecutable(std::shared_ptr<const Program> program) : interpreter_(std::move(program)) {}
  void launch(const LaunchArgs& args) override {
    const int64_t groups = args.global[0] * args.global[1] * args.global[2];
    if (interpreter_.needs_groups() || groups * args.local[0] * args.local[1] * args.local[2] > 1)
      return interpreter_.run_groups(args.buffers, args.vars, args, 0, groups);
    if (args.thread_extent <= 1 || args.max_threads == 1)
      return interpreter_.run(args.buffers, args.vars, 0, args.thread_extent);
    const int threads = args.max_threads > 0 ? args.max_threads : env::num_cpu_threads();
    ThreadPool::global().parallel_for(
        0, args.thread_extent, 1,
        [&](int64_t begin, int64_t end) { interpreter_.run(args.buffers, args.vars, begin, end); }, threads);
  }

 private:
  Interpreter interpreter_;
};

/// The "compiler": linear UOps are executed as they are, so the bytes are the listing.
class InterpCompiler final : public Compiler {
 public:
  std::vector<uint8_t> compile(const std::string& source) override { return {source.begin(), source.end()}; }
  std::string cache_key() const override { return "interp"; }
  std::string assembly(const std::string& source) override { return source; }
  std::string cache_table() const override { return "compile_interp"; }
};

class InterpDevice final : public Device {
 public:
  explicit InterpDevice(const std::string& name)
      : Device(name, std::make_unique<LruAllocator>(make_host_allocator(), name, int64_t{1} << 30)) {
    target_.device = target_.renderer = "INTERP";
    target_.arch = "interp";
    target_.vector_bytes = 64;
    target_.vector_registers = 32;
    // Images are read by grids of threads without vectors.
    grids_ = target_;
    grids_.features = {"workgroups"};
    grids_.vector_bytes = 1;
    grids_.images = {.width = 16384, .height = 16384, .pitch = 1};
  }
  bool host_visible() const override { return true; }
  bool compiles() const override { return false; }
  const Target& target() override {
    const Target& t = env::IMAGE.get() == 1 ? grids_ : target_;
    if (last_.exchange(&t) != &t)
      set_device_traits("INTERP", {.row_kernels = !t.has("workgroups"), .image_pitch = t.images.width ? 1 : 0});
    return t;
  }
  Compiler& compiler(const Target&) override { return compiler_; }
  std::shared_ptr<Executable> load(std::span<const uint8_t>, const std::string& symbol) override {
    throw FormatError("[load] INTERP takes programs, not bytes: " + symbol);
  }
  std::shared_ptr<Executable> load(const std::shared_ptr<const Program>& program) override {
    return std::make_shared<InterpExecutable>(program);
  }

 private:
  Target target_, grids_;
  std::atomic<const Target*> last_ = nullptr;
  InterpCompiler compiler_;
};

}  // namespace

DeviceKind interp_kind() {
  return {.name = "INTERP",
          .open = [](const std::string& name) { return std::make_unique<InterpDevice>(name); },
          .describe = [] { return std::string("executes linear UOps on the host, checking every access"); },
          .aliases = {"PYTHON"},
          .order = 910};
}

}  // namespace tg
