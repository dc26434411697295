/// \file CUDA C++ to cubins by NVRTC.
#include "tinygrad/runtime/nvrtc_compiler.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "tinygrad/base/env.h"
#include "tinygrad/base/error.h"

namespace tg {
namespace {
using Handle = void*;

/// Functions of NVRTC; each returns 0 for success. NVIDIA's header is not needed to build this library.
struct NvrtcFunctions {
  int (*version)(int*, int*) = nullptr;
  int (*create)(Handle*, const char* source, const char* name, int, const char* const*, const char* const*) = nullptr;
  int (*destroy)(Handle*) = nullptr;
  int (*compile)(Handle, int, const char* const* options) = nullptr;
  int (*cubin_size)(Handle, size_t*) = nullptr;
  int (*cubin)(Handle, char*) = nullptr;
  int (*log_size)(Handle, size_t*) = nullptr;
  int (*log)(Handle, char*) = nullptr;
  const char* (*error_text)(int) = nullptr;
  std::string include;  ///< folder of CUDA's headers; empty: not found
};

/// Returns the folder of cuda_fp16.h: of a toolkit, or next to the library as in NVIDIA's Python packages.
std::string find_headers(void* function) {
  namespace fs = std::filesystem;
  std::vector<fs::path> places;
  if (Dl_info info; dladdr(function, &info) && info.dli_fname) {
    const fs::path folder = fs::path(info.dli_fname).parent_path();
    places.push_back(folder / "../../cuda_runtime/include");
    places.push_back(folder / "../include");
  }
  places.emplace_back("/usr/local/cuda/include");
  places.emplace_back("/usr/include");
  for (const fs::path& p : places) {
    std::error_code ignored;
    if (fs::exists(p / "cuda_fp16.h", ignored)) return p.lexically_normal().string();
  }
  return "";
}

NvrtcFunctions open_nvrtc() {
  std::vector<std::string> names{"libnvrtc.so.12", "libnvrtc.so.13"};
  if (!env::NVRTC.get().empty()) names = {env::NVRTC.get()};
  void* library = nullptr;
  for (const std::string& name : names)
    if (!library) library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  TG_CHECK(CompileError, library, "[nvrtc] found no ", names[0],
           ", NVIDIA's compiler: NVRTC names the file (pip install nvidia-cuda-nvrtc-cu12 nvidia-cuda-runtime-cu12)");
  NvrtcFunctions f;
  auto find = [&](const char* name, auto& to) {
    to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(dlsym(library, name));
    TG_CHECK(CompileError, to, "[nvrtc] the library has no function ", name);
  };
  find("nvrtcVersion", f.version);
  find("nvrtcCreateProgram", f.create);
  find("nvrtcDestroyProgram", f.destroy);
  find("nvrtcCompileProgram", f.compile);
  find("nvrtcGetCUBINSize", f.cubin_size);
  find("nvrtcGetCUBIN", f.cubin);
  find("nvrtcGetProgramLogSize", f.log_size);
  find("nvrtcGetProgramLog", f.log);
  find("nvrtcGetErrorString", f.error_text);
  f.include = find_headers(reinterpret_cast<void*>(f.version));
  return f;
}
const NvrtcFunctions& nvrtc() {
  static const auto* functions = new NvrtcFunctions(open_nvrtc());
  return *functions;
}

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

std::vector<uint8_t> NvrtcCompiler::compile(const std::string& source) {
  const NvrtcFunctions& f = nvrtc();
  auto check = [&](int error, const char* what) {
    TG_CHECK(CompileError, error == 0, "[", what, "] ", f.error_text(error));
  };
  Handle program = nullptr;
  check(f.create(&program, source.c_str(), "kernel.cu", 0, nullptr, nullptr), "nvrtcCreateProgram");
  const std::unique_ptr<Handle, int (*)(Handle*)> holder(&program, f.destroy);
  // No products are fused into sums but those that say so.
  std::vector<std::string> options{"--gpu-architecture=" + arch_, "--fmad=false", "--std=c++17"};
  if (!f.include.empty()) options.push_back("--include-path=" + f.include);
  std::vector<const char*> given;
  for (const std::string& o : options) given.push_back(o.c_str());
  if (const int error = f.compile(program, static_cast<int>(given.size()), given.data())) {
    size_t n = 0;
    f.log_size(program, &n);
    std::string log(n, '\0');
    if (n > 0) f.log(program, log.data());
    log.resize(std::min(n, log.find('\0')));
    throw CompileError(str("[nvrtc] ", arch_, ": ", f.error_text(error), "\n", log));
  }
  size_t n = 0;
  check(f.cubin_size(program, &n), "nvrtcGetCUBINSize");
  std::vector<uint8_t> cubin(n);
  check(f.cubin(program, reinterpret_cast<char*>(cubin.data())), "nvrtcGetCUBIN");
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
