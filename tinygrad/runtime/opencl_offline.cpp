/// \file OpenCL C by clang.
#include "tinygrad/runtime/opencl_offline.h"

#include "tinygrad/base/env.h"
#include "tinygrad/base/error.h"
#include "tinygrad/runtime/host_compilers.h"

namespace tg {
namespace {
class OpenClOfflineCompiler final : public Compiler {
 public:
  std::vector<uint8_t> compile(const std::string& source) override {
    const std::string out = run({"-c", "-emit-llvm"}, source);
    return {out.begin(), out.end()};
  }
  std::string assembly(const std::string& source) override { return run({"-S", "-emit-llvm"}, source); }
  std::string cache_key() const override { return "spir " + clang_path() + options_text(); }
  std::string cache_table() const override { return "compile_spir"; }

 private:
  static std::vector<std::string> options() {
    return {"-x", "cl", "-cl-std=CL1.2", "--target=spir64", "-Xclang", "-finclude-default-header", "-O2", "-w"};
  }
  static std::string options_text() {
    std::string text;
    for (const std::string& o : options()) text += " " + o;
    return text;
  }
  static std::string run(std::vector<std::string> more, const std::string& source) {
    std::vector<std::string> all = options();
    all.insert(all.end(), more.begin(), more.end());
    return run_clang(all, source);
  }
};
}  // namespace

Target opencl_offline_target(const std::string& arch, int64_t images) {
  TG_CHECK(ValueError, arch.empty() || arch == "adreno" || arch == "intel", "[DEV] got the OpenCL architecture ", arch,
           ", expected adreno, intel or none");
  Target t;
  t.renderer = "OPENCL";
  t.arch = arch.empty() ? "opencl" : arch;
  t.features = {"fma", "fp16", "workgroups"};
  if (arch.empty()) t.features.insert(t.features.begin() + 2, "fp64");
  t.vector_bytes = 4;
  t.shared_bytes = arch == "intel" ? 64 << 10 : 32 << 10;
  for (int i = 0; i < 3; i++) {
    t.group_limit[i] = t.group_threads;
    t.grid_limit[i] = (int64_t{1} << 31) - 1;
  }
  if (images > 0 || (images < 0 && arch == "adreno")) t.images = kAdrenoImages;
  return t;
}

Target opencl_offline_target(const std::string& arch) { return opencl_offline_target(arch, env::IMAGE.get()); }

std::unique_ptr<Compiler> make_opencl_offline_compiler(const Target&) {
  return std::make_unique<OpenClOfflineCompiler>();
}

}  // namespace tg
