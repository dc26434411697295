/// \file NCCL, opened at run time. NVIDIA's header is not needed to build this library.
#pragma once
#include <string>

#include "tinygrad/runtime/nccl_abi.h"

namespace tg {

struct NcclLibrary {
  NcclFunctions f;
  int version = 0;  ///< 22809: 2.28.9
};

/// Returns the library: the file that NCCL_LIBRARY names, else libnccl.so.2 as the system finds it. DeviceError where
/// there is none, or an old one; it says how to install it.
const NcclLibrary& nccl_library();
/// Returns "NCCL 2.28.9", or what is missing.
std::string nccl_note();

}  // namespace tg
