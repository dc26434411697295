/// \file The C interface between the library and the LLVM plugin, which is opened at run time. Free of LLVM types.
#pragma once
#include <cstddef>

extern "C" {

/// Incremented on any change of the structures or functions below.
enum { kTgLlvmAbi = 1 };

struct TgLlvmRequest {
  const char* ir;        ///< textual LLVM IR, zero terminated
  size_t ir_size;        ///< without the terminator
  const char* triple;    ///< empty: that of the host
  const char* cpu;       ///< processor to tune for; an unknown one is ignored
  const char* features;  ///< "+avx2,+fma,...": all that the code may use beyond the architecture's baseline; unknown
                         ///< ones are ignored
  int opt_level;         ///< 0: as written, 1: short pass list, 2: the same with full instruction selection
  int assembly;          ///< 1: text instead of an object
};

/// Exactly one of data and error is set; both are freed by tg_llvm_free.
struct TgLlvmResult {
  unsigned char* data;
  size_t size;
  char* error;
};

using TgLlvmAbiFn = int (*)();
using TgLlvmVersionFn = const char* (*)();
using TgLlvmCompileFn = void (*)(const TgLlvmRequest*, TgLlvmResult*);
using TgLlvmFreeFn = void (*)(TgLlvmResult*);
}
