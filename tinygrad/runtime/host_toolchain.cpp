/// \file Targets and compilers of host code under the DEV setting.
#include "tinygrad/runtime/host_toolchain.h"

#include <map>
#include <mutex>

#include "tinygrad/base/env.h"
#include "tinygrad/base/error.h"
#include "tinygrad/runtime/amdgpu_compiler.h"
#include "tinygrad/runtime/device_registry.h"
#include "tinygrad/runtime/host_compilers.h"
#include "tinygrad/runtime/nvrtc_compiler.h"
#include "tinygrad/runtime/opencl_offline.h"
#include "tinygrad/runtime/ptxas.h"
#include "tinygrad/runtime/wgsl_compiler.h"

namespace tg {

namespace {
/// Compilers of code for other machines.
struct Offline {
  std::string_view renderer;
  Target (*target)(const std::string& arch);
  std::unique_ptr<Compiler> (*compiler)(const Target& target);
};
Target ptx_target(const std::string& arch) {
  Target t = cuda_target(arch);
  t.renderer = "PTX";
  return t;
}
constexpr Offline kOffline[] = {{"CUDA", cuda_target, make_nvrtc_compiler},
                                {"PTX", ptx_target, make_ptxas_compiler},
                                {"HIP", amdgpu_target, make_amdgpu_compiler},
                                {"OPENCL", opencl_offline_target, make_opencl_offline_compiler},
                                {"WGSL", wgsl_target, make_wgsl_compiler}};
const Offline* find_offline(std::string_view renderer) {
  for (const Offline& o : kOffline)
    if (renderer == o.renderer) return &o;
  return nullptr;
}
}  // namespace

namespace {
/// Returns LLVM unless its plugin is missing and clang is there.
std::string available_renderer() {
  const std::string missing = llvm_plugin_missing();
  if (missing.empty() || clang_path().empty()) return "LLVM";
  if (llvm_plugin_failures() > 0) env::not_honoured("llvm", missing + ": clang compiles kernels instead");
  return "CLANG";
}
}  // namespace

struct HostToolchain::State {
  std::string kind;
  bool runs;
  std::mutex mutex;
  std::string last_dev;  // the setting `last` belongs to
  int64_t last_images = 0;
  int last_threads = 0, last_failures = 0;
  const Target* last = nullptr;
  std::map<std::string, std::unique_ptr<Target>> targets;      // by key
  std::map<std::string, std::unique_ptr<Compiler>> compilers;  // by key of the target

  Target make_target(int threads) const {
    const DeviceSpec spec = dev_setting(kind);
    if (const Offline* o = runs ? nullptr : find_offline(spec.renderer)) {
      Target t = o->target(spec.arch);
      t.device = kind;
      return t;
    }
    Target t = parse_processor(spec.arch);
    t.device = kind;
    t.renderer = spec.renderer;
    t.cores = threads;
    if (t.renderer.empty()) t.renderer = available_renderer();
    TG_CHECK(DeviceError, t.renderer == "LLVM" || t.renderer == "CLANG", "[DEV] ", kind, " has no renderer '",
             t.renderer, "', expected LLVM", runs ? " or CLANG" : ", CLANG, CUDA, PTX, HIP, OPENCL or WGSL",
             t.renderer.starts_with("C")   ? ", did you mean: 'CLANG'?"
             : t.renderer.starts_with("L") ? ", did you mean: 'LLVM'?"
                                           : "");
    if (runs) {
      const std::string missing = missing_feature(t, host_processor());
      TG_CHECK(DeviceError, missing.empty(), "[DEV] got ", spec.arch, ", this processor (", host_processor().arch, ",",
               host_processor().cpu, ") has no ", missing);
    }
    return t;
  }
};

HostToolchain::HostToolchain(std::string kind, bool runs) : state_(new State) {
  state_->kind = std::move(kind);
  state_->runs = runs;
}
HostToolchain::~HostToolchain() = default;

const Target& HostToolchain::target() {
  State& s = *state_;
  const std::string& dev = env::DEV.get();
  const int threads = env::num_cpu_threads();
  std::lock_guard lock(s.mutex);
  const int failures = llvm_plugin_failures();
  if (s.last && s.last_dev == dev && s.last_threads == threads && s.last_images == env::IMAGE.get() &&
      s.last_failures == failures)
    return *s.last;
  Target t = s.make_target(threads);
  auto& kept = s.targets[t.key()];
  if (!kept) kept = std::make_unique<Target>(std::move(t));
  s.last_dev = dev;
  s.last_threads = threads;
  s.last_failures = failures;
  s.last_images = env::IMAGE.get();
  return *(s.last = kept.get());
}

Compiler& HostToolchain::compiler(const Target& target) {
  State& s = *state_;
  std::lock_guard lock(s.mutex);
  auto& kept = s.compilers[target.key()];
  const Offline* o = find_offline(target.renderer);
  if (!kept)
    kept = o                            ? o->compiler(target)
           : target.renderer == "CLANG" ? make_clang_compiler(target)
                                        : make_llvm_compiler(target);
  return *kept;
}

Compiler& HostToolchain::source_compiler(Target target) {
  TG_CHECK(DeviceError, !find_offline(target.renderer), "[custom_kernel] got a kernel in C for ", state_->kind, ":",
           target.renderer, ": write it in UOps");
  target.renderer = "CLANG";
  return compiler(target);
}

}  // namespace tg
