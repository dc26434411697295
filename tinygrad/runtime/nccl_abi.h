/// \file What NCCL has in its header, as far as it is needed: structures, numbers, functions.
#pragma once
#include <climits>
#include <cstddef>

namespace tg {

/// ncclUniqueId: what the processes of a communicator find one another by.
struct NcclId {
  char bytes[128] = {};
};

/// ncclConfig_t of NCCL 2.14, which newer ones take as it is: they know its fields by the version in it.
struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = 0;
  int padding = INT_MIN;  ///< what is behind `blocking` in newer ones; this value stands for their default
};

namespace nccl {
constexpr int kOldest = 21400;  ///< the version that has communicators which do not block
constexpr int kSuccess = 0, kInProgress = 7;
constexpr int kInt8 = 0, kUint8 = 1, kInt32 = 2, kUint32 = 3, kInt64 = 4, kUint64 = 5, kFloat16 = 6, kFloat32 = 7,
              kFloat64 = 8, kBfloat16 = 9;
constexpr int kSum = 0, kProd = 1, kMax = 2;
}  // namespace nccl

/// The functions, by the names NCCL gives them.
struct NcclFunctions {
#define FUNCTION(name, parameters, names) int(*name) parameters = nullptr;
#include "tinygrad/runtime/nccl_functions.inc"
#undef FUNCTION
  const char* (*GetErrorString)(int error) = nullptr;
  const char* (*GetLastError)(const void* comm) = nullptr;
};

}  // namespace tg
