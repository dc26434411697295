/// \file NVRTC opened at run time, in as many copies as compile at once.
#pragma once
#include <cstddef>
#include <string>

namespace tg {

/// Functions of NVRTC; each returns 0 for success. NVIDIA's header is not needed to build this library.
struct NvrtcFunctions {
  using Handle = void*;
  int (*version)(int*, int*) = nullptr;
  int (*create)(Handle*, const char* source, const char* name, int, const char* const*, const char* const*) = nullptr;
  int (*destroy)(Handle*) = nullptr;
  int (*compile)(Handle, int, const char* const* options) = nullptr;
  int (*cubin_size)(Handle, size_t*) = nullptr;
  int (*cubin)(Handle, char*) = nullptr;
  int (*log_size)(Handle, size_t*) = nullptr;
  int (*log)(Handle, char*) = nullptr;
  const char* (*error_text)(int) = nullptr;
};

/// Returns the library: the file that NVRTC names, else libnvrtc.so.12 or .so.13 as the system finds it. Throws
/// CompileError when there is none.
const NvrtcFunctions& nvrtc();
/// Returns the folder of cuda_fp16.h: of a toolkit, or next to the library as in NVIDIA's Python packages; empty where
/// there is none.
const std::string& nvrtc_headers();

/// One compilation's use of the library. Its front end holds a lock for the whole process, so a thread that would wait
/// for others gets the functions of a copy of the file, which has a lock of its own. Copies stay until the process
/// ends, at most `kMostCopies` of them; one takes a tenth of a second to open and some 100 MB.
class NvrtcTurn {
 public:
  static constexpr size_t kMostCopies = 8;
  NvrtcTurn();
  ~NvrtcTurn();
  NvrtcTurn(const NvrtcTurn&) = delete;
  NvrtcTurn& operator=(const NvrtcTurn&) = delete;

  const NvrtcFunctions* operator->() const { return functions_; }

 private:
  const NvrtcFunctions* functions_;
  size_t copy_;
};
/// Returns how many copies are open, the library itself included.
size_t nvrtc_copies();

}  // namespace tg
