/// \file CUDA C++ to cubins by NVRTC.
#include "tinygrad/runtime/nvrtc_compiler.h"

#include <algorithm>
#include <vector>

#include "tinygrad/base/error.h"
#include "tinygrad/runtime/nvrtc_library.h"

namespace tg {
namespace {
class NvrtcCompiler final : public Compiler {
 public:
  explicit NvrtcCompiler(const Target& target) : arch_(target.arch) {}
  std::vector<uint8_t> compile(const std::string& source) override;
  std::string cache_key() const override {
    int major = 0, minor = 0;
    nvrtc().version(&major, &minor);
    return str("nvrtc ", major, ".", minor, " ", arch_);
  }
  std::string assembly(const std::string& source) override {
    return str(compile_cached(source).size(), " bytes of a cubin for ", arch_, ": nvdisasm prints them");
  }
  std::string cache_table() const override { return "compile_nvrtc"; }

 private:
  std::string arch_;
};

/// Compiles a program for which the front end left out what only programs of CUDA's runtime need, if it can.
int compile_program(const NvrtcTurn& f, NvrtcFunctions::Handle program, std::vector<const char*> options) {
  int major = 0, minor = 0;
  f->version(&major, &minor);
  if (major > 12 || (major == 12 && minor >= 4)) {
    options.push_back("--minimal");
    if (f->compile(program, static_cast<int>(options.size()), options.data()) == 0) return 0;
    options.pop_back();  // a user's kernel may read textures
  }
  return f->compile(program, static_cast<int>(options.size()), options.data());
}

std::vector<uint8_t> NvrtcCompiler::compile(const std::string& source) {
  const NvrtcTurn f;
  auto check = [&](int error, const char* what) {
    TG_CHECK(CompileError, error == 0, "[", what, "] ", f->error_text(error));
  };
  NvrtcFunctions::Handle program = nullptr;
  check(f->create(&program, source.c_str(), "kernel.cu", 0, nullptr, nullptr), "nvrtcCreateProgram");
  const std::unique_ptr<NvrtcFunctions::Handle, int (*)(NvrtcFunctions::Handle*)> holder(&program, f->destroy);
  // No products are fused into sums but those that say so.
  std::vector<std::string> options{"--gpu-architecture=" + arch_, "--fmad=false", "--std=c++17"};
  if (!nvrtc_headers().empty()) options.push_back("--include-path=" + nvrtc_headers());
  std::vector<const char*> given;
  for (const std::string& o : options) given.push_back(o.c_str());
  if (const int error = compile_program(f, program, given)) {
    size_t n = 0;
    f->log_size(program, &n);
    std::string log(n, '\0');
    if (n > 0) f->log(program, log.data());
    log.resize(std::min(n, log.find('\0')));
    throw CompileError(str("[nvrtc] ", arch_, ": ", f->error_text(error), "\n", log));
  }
  size_t n = 0;
  check(f->cubin_size(program, &n), "nvrtcGetCUBINSize");
  std::vector<uint8_t> cubin(n);
  check(f->cubin(program, reinterpret_cast<char*>(cubin.data())), "nvrtcGetCUBIN");
  return cubin;
}
}  // namespace

std::unique_ptr<Compiler> make_nvrtc_compiler(const Target& target) { return std::make_unique<NvrtcCompiler>(target); }

std::string nvrtc_missing() {
  try {
    nvrtc();
    return "";
  } catch (const CompileError& e) { return e.what(); }
}

Target cuda_target(const std::string& arch) {
  Target t;
  t.renderer = "CUDA";
  t.arch = arch.empty() ? "sm_80" : arch;
  const std::string number = t.arch.starts_with("sm_") ? t.arch.substr(3) : "";
  TG_CHECK(ValueError,
           number.size() >= 2 && number.size() <= 4 &&
               number.find_first_not_of("0123456789") >= number.size() - (number.back() == 'a'),
           "[DEV] got the CUDA architecture ", arch, ", expected sm_75 to sm_120");
  t.features = {"copy16", "fma", "fma_tiles", "fp16", "shuffles"};
  const int version = std::stoi(number);
  if (version >= 75) t.features.insert(t.features.end(), {"matrix_loads", "mma8"});
  if (version >= 80) t.features.insert(t.features.end(), {"async_copy", "mma16"});
  if (version >= 89) t.features.emplace_back("mma_fp8");
  if (t.arch == "sm_90a") t.features.insert(t.features.end(), {"tensor_maps", "wgmma"});
  std::sort(t.features.begin(), t.features.end());
  t.vector_bytes = 4;
  t.vector_registers = 64;
  const int64_t kilo = version >= 120 ? 99 : version >= 90 ? 227 : version > 80 ? 99 : version == 80 ? 163 : 64;
  t.shared_bytes = (version == 87 ? 163 : kilo) << 10;
  return t;
}

}  // namespace tg
