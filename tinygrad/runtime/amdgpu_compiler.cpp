/// \file HIP to AMDGPU assembly by clang.
#include "tinygrad/runtime/amdgpu_compiler.h"

#include "tinygrad/base/error.h"
#include "tinygrad/runtime/host_compilers.h"

namespace tg {
namespace {

class AmdgpuCompiler final : public Compiler {
 public:
  explicit AmdgpuCompiler(const Target& target)
      : options_{"-x",
                 "hip",
                 "--offload-arch=" + target.arch,
                 "--cuda-device-only",
                 "--no-gpu-bundle-output",
                 "-nogpulib",
                 "-nogpuinc",
                 "-std=c++17",
                 "-O3",
                 "-ffp-contract=off",
                 "-fno-math-errno",
                 "-w",
                 "-S"} {}
  std::vector<uint8_t> compile(const std::string& source) override {
    const std::string text = run_clang(options_, source);
    return {text.begin(), text.end()};
  }
  std::string assembly(const std::string& source) override { return run_clang(options_, source); }
  std::string cache_key() const override {
    std::string key = "amdgpu " + clang_path();
    for (const std::string& o : options_) key += " " + o;
    return key;
  }
  std::string cache_table() const override { return "compile_amdgpu"; }

 private:
  std::vector<std::string> options_;
};
}  // namespace

std::unique_ptr<Compiler> make_amdgpu_compiler(const Target& target) {
  return std::make_unique<AmdgpuCompiler>(target);
}

Target amdgpu_target(const std::string& arch) {
  Target t;
  t.renderer = "HIP";
  t.arch = arch.empty() ? "gfx942" : arch;
  TG_CHECK(ValueError,
           t.arch.starts_with("gfx") && t.arch.size() >= 6 && t.arch.size() <= 8 &&
               t.arch.find_first_not_of("0123456789abcdef", 3) == std::string::npos,
           "[DEV] got the AMD architecture ", arch, ", expected gfx90a, gfx942, gfx1100, ...");
  t.features = {"fma"};
  t.vector_bytes = 4;
  t.vector_registers = 64;
  t.shared_bytes = 64 << 10;
  return t;
}

}  // namespace tg
