/// \file HIP to AMDGPU assembly by clang.
#include "tinygrad/runtime/amdgpu_compiler.h"

#include <algorithm>

#include "tinygrad/base/error.h"
#include "tinygrad/runtime/host_compilers.h"

namespace tg {
namespace {

class AmdgpuCompiler final : public Compiler {
 public:
  /// `objects`: linked code objects, else assembly.
  AmdgpuCompiler(const Target& target, bool objects)
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
                 "-w"},
        objects_(objects) {}
  std::vector<uint8_t> compile(const std::string& source) override {
    const std::string out = objects_ ? run_clang(options_, source) : assembly(source);
    return {out.begin(), out.end()};
  }
  std::string assembly(const std::string& source) override {
    std::vector<std::string> options = options_;
    options.emplace_back("-S");
    return run_clang(options, source);
  }
  std::string cache_key() const override {
    std::string key = (objects_ ? "amdgpu object " : "amdgpu ") + clang_path();
    for (const std::string& o : options_) key += " " + o;
    return key;
  }
  std::string cache_table() const override { return "compile_amdgpu"; }

 private:
  std::vector<std::string> options_;
  const bool objects_;
};
}  // namespace

std::unique_ptr<Compiler> make_amdgpu_compiler(const Target& target) {
  return std::make_unique<AmdgpuCompiler>(target, /*objects=*/false);
}

std::unique_ptr<Compiler> make_amdgpu_object_compiler(const Target& target) {
  return std::make_unique<AmdgpuCompiler>(target, /*objects=*/true);
}

std::string amdgpu_missing() {
  try {
    make_amdgpu_compiler(amdgpu_target(""))->compile("");
    return "";
  } catch (const CompileError& e) { return e.what(); }
}

Target amdgpu_target(const std::string& arch) {
  Target t;
  t.renderer = "HIP";
  t.arch = arch.empty() ? "gfx942" : arch;
  TG_CHECK(ValueError,
           t.arch.starts_with("gfx") && t.arch.size() >= 6 && t.arch.size() <= 8 &&
               t.arch.find_first_not_of("0123456789abcdef", 3) == std::string::npos,
           "[DEV] got the AMD architecture ", arch, ", expected gfx90a, gfx942, gfx1100, ...");
  t.features = {"copy16", "fma", "shuffles"};
  if (t.arch == "gfx90a") t.features.insert(t.features.end(), {"buffers", "mfma", "mfma2"});
  if (t.arch.starts_with("gfx94")) t.features.insert(t.features.end(), {"buffers", "mfma", "mfma3"});
  if (t.arch.starts_with("gfx11")) t.features.emplace_back("wmma11");
  if (t.arch.starts_with("gfx12")) t.features.emplace_back("wmma12");
  std::sort(t.features.begin(), t.features.end());
  t.vector_bytes = 4;
  t.vector_registers = 64;
  t.shared_bytes = 64 << 10;
  return t;
}

}  // namespace tg
