/// \file NVRTC opened at run time, in as many copies as compile at once.
#include "tinygrad/runtime/nvrtc_library.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <type_traits>
#include <vector>

#include "tinygrad/base/env.h"
#include "tinygrad/base/error.h"

namespace tg {
namespace {
NvrtcFunctions functions_of(void* library) {
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
  return f;
}

NvrtcFunctions open_nvrtc() {
  std::vector<std::string> names{"libnvrtc.so.12", "libnvrtc.so.13"};
  if (!env::NVRTC.get().empty()) names = {env::NVRTC.get()};
  void* library = nullptr;
  for (const std::string& name : names)
    if (!library) library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  TG_CHECK(CompileError, library, "[nvrtc] found no ", names[0],
           ", NVIDIA's compiler: NVRTC names the file (pip install nvidia-cuda-nvrtc-cu12 nvidia-cuda-runtime-cu12)");
  return functions_of(library);
}

/// Returns the file that the library was opened from.
std::string file_of_library() {
  Dl_info info;
  return dladdr(reinterpret_cast<void*>(nvrtc().version), &info) && info.dli_fname ? info.dli_fname : "";
}

/// Copies a file into memory that has a file descriptor; -1 where that fails.
int copy_into_memory(const std::string& file) {
  const int from = open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (from < 0) return -1;
  int to = memfd_create("nvrtc", MFD_CLOEXEC);
  struct stat about{};
  bool whole = to >= 0 && fstat(from, &about) == 0;
  for (off_t at = 0; whole && at < about.st_size;) whole = sendfile(to, from, &at, size_t(about.st_size - at)) > 0;
  close(from);
  if (!whole && to >= 0) {
    close(to);
    to = -1;
  }
  return to;
}

/// The library and its copies, with how many compilations each has.
class Copies {
 public:
  Copies() { copies_[0].functions = nvrtc(); }

  /// Takes the copy with the fewest compilations, one more where that has some.
  size_t take() {
    std::unique_lock lock(mutex_);
    if (copies_[least()].compilations > 0 && open_ + opening_ < copies_.size()) {
      opening_++;  // for good where it fails
      lock.unlock();
      void* library = open_copy();
      lock.lock();
      if (library) {
        copies_[open_++].functions = functions_of(library);
        opening_--;
      }
    }
    const size_t at = least();
    copies_[at].compilations++;
    return at;
  }
  void give_back(size_t at) {
    const std::lock_guard lock(mutex_);
    copies_[at].compilations--;
  }
  const NvrtcFunctions* functions(size_t at) const { return &copies_[at].functions; }
  size_t size() {
    const std::lock_guard lock(mutex_);
    return open_;
  }

 private:
  struct Copy {
    NvrtcFunctions functions;
    int64_t compilations = 0;
  };
  size_t least() const {
    const auto fewer = [](const Copy& a, const Copy& b) { return a.compilations < b.compilations; };
    return static_cast<size_t>(std::min_element(copies_.begin(), copies_.begin() + open_, fewer) - copies_.begin());
  }
  /// The loader knows a library by its file: another copy is another file, in memory.
  static void* open_copy() {
    const int file = copy_into_memory(file_of_library());
    if (file < 0) return nullptr;
    void* library = dlopen(str("/proc/self/fd/", file).c_str(), RTLD_NOW | RTLD_LOCAL);
    close(file);
    return library;
  }

  std::mutex mutex_;
  std::array<Copy, NvrtcTurn::kMostCopies> copies_;
  size_t open_ = 1;
  size_t opening_ = 0;
};
Copies& copies() {
  static auto* all = new Copies;
  return *all;
}
}  // namespace

const NvrtcFunctions& nvrtc() {
  static const auto* functions = new NvrtcFunctions(open_nvrtc());
  return *functions;
}

const std::string& nvrtc_headers() {
  static const auto* folder = new std::string([] {
    namespace fs = std::filesystem;
    const fs::path library = fs::path(file_of_library()).parent_path();
    const std::array<fs::path, 4> places{library / "../../cuda_runtime/include", library / "../include",
                                         "/usr/local/cuda/include", "/usr/include"};
    for (const fs::path& p : places) {
      std::error_code ignored;
      if (fs::exists(p / "cuda_fp16.h", ignored)) return p.lexically_normal().string();
    }
    return std::string();
  }());
  return *folder;
}

NvrtcTurn::NvrtcTurn() : copy_(copies().take()) { functions_ = copies().functions(copy_); }
NvrtcTurn::~NvrtcTurn() { copies().give_back(copy_); }
size_t nvrtc_copies() { return copies().size(); }

}  // namespace tg
