/// \file The tables of CUDA's functions against cuda.h, where a toolkit is installed: symbols, numbers of parameters,
/// their sizes, structures and numbers.
#include <gtest/gtest.h>

#ifdef TG_CUDA_HEADER
#define __CUDA_API_VERSION_INTERNAL  // declares every version of a function under its symbol
#include <cuda.h>
#endif

#include "tinygrad/runtime/cuda_driver.h"
#include "tinygrad/runtime/gpu_driver.h"

namespace tg {
namespace {

#ifdef TG_CUDA_HEADER
/// Whether two parameters are passed alike: pointers and addresses, or integers of one size.
template <class A, class B> constexpr bool alike() {
  if constexpr (std::is_pointer_v<A> && std::is_pointer_v<B>) return true;
  return !std::is_class_v<B> && sizeof(A) == sizeof(B);
}
template <class> struct Signature;
template <class R, class... A> struct Signature<R(A...)> {
  template <class S, class... B> static constexpr bool like(S (*)(B...)) {
    if constexpr (sizeof...(A) != sizeof...(B)) return false;
    else return alike<R, S>() && (alike<A, B>() && ...);
  }
};

#define ENTRY(member, parameters, names, cuda, hip) \
  static_assert(Signature<int parameters>::like(decltype(&::cuda){}), #cuda);
#include "tinygrad/runtime/gpu_entry_points.inc"
#undef ENTRY
#define ENTRY(member, parameters, names, symbol) \
  static_assert(Signature<int parameters>::like(decltype(&::symbol){}), #symbol);
#include "tinygrad/runtime/cuda_entry_points.inc"
#undef ENTRY

static_assert(sizeof(CudaKernelNode) == sizeof(CUDA_KERNEL_NODE_PARAMS_v1));
static_assert(offsetof(CudaKernelNode, grid) == offsetof(CUDA_KERNEL_NODE_PARAMS_v1, gridDimX));
static_assert(offsetof(CudaKernelNode, block) == offsetof(CUDA_KERNEL_NODE_PARAMS_v1, blockDimX));
static_assert(offsetof(CudaKernelNode, shared_bytes) == offsetof(CUDA_KERNEL_NODE_PARAMS_v1, sharedMemBytes));
static_assert(offsetof(CudaKernelNode, parameters) == offsetof(CUDA_KERNEL_NODE_PARAMS_v1, kernelParams));
static_assert(sizeof(CudaCopyNode) == sizeof(CUDA_MEMCPY3D_v2));
static_assert(offsetof(CudaCopyNode, from.memory_type) == offsetof(CUDA_MEMCPY3D_v2, srcMemoryType));
static_assert(offsetof(CudaCopyNode, from.device) == offsetof(CUDA_MEMCPY3D_v2, srcDevice));
static_assert(offsetof(CudaCopyNode, from.pitch) == offsetof(CUDA_MEMCPY3D_v2, srcPitch));
static_assert(offsetof(CudaCopyNode, from.height) == offsetof(CUDA_MEMCPY3D_v2, srcHeight));
static_assert(offsetof(CudaCopyNode, to.device) == offsetof(CUDA_MEMCPY3D_v2, dstDevice));
static_assert(offsetof(CudaCopyNode, width) == offsetof(CUDA_MEMCPY3D_v2, WidthInBytes));
static_assert(offsetof(CudaCopyNode, depth) == offsetof(CUDA_MEMCPY3D_v2, Depth));
static_assert(CudaCopyPlace{}.memory_type == CU_MEMORYTYPE_DEVICE);
static_assert(sizeof(GpuPoolAccess) == sizeof(CUmemAccessDesc));
static_assert(offsetof(GpuPoolAccess, device) == offsetof(CUmemAccessDesc, location.id));
static_assert(GpuPoolAccess{}.location_type == CU_MEM_LOCATION_TYPE_DEVICE);
static_assert(GpuPoolAccess{}.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
static_assert(gpu_error::kOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY && gpu_error::kNotReady == CUDA_ERROR_NOT_READY &&
              gpu_error::kDeinitialized == CUDA_ERROR_DEINITIALIZED &&
              gpu_error::kPeerAlreadyEnabled == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
static_assert(static_cast<int>(GpuFunctionAttribute::kGroupThreads) == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK &&
              static_cast<int>(GpuFunctionAttribute::kSharedBytes) == CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES &&
              static_cast<int>(GpuFunctionAttribute::kRegisters) == CU_FUNC_ATTRIBUTE_NUM_REGS &&
              static_cast<int>(GpuFunctionAttribute::kDynamicSharedBytes) ==
                  CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);

TEST(DriverSignatures, NumbersOfAttributesAreThoseOfCudaH) {
  constexpr CUdevice_attribute kNumbers[] = {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
                                             CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X,
                                             CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y,
                                             CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z,
                                             CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X,
                                             CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y,
                                             CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z,
                                             CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK,
                                             CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
                                             CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                                             CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE,
                                             CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                                             CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                                             CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED};
  static_assert(std::size(kNumbers) == static_cast<size_t>(GpuAttribute::kCount));
  const auto driver = open_cuda_driver(TG_FAKE_CUDA);
  for (size_t i = 0; i < std::size(kNumbers); i++)
    EXPECT_EQ(driver->number_of(static_cast<GpuAttribute>(i)), kNumbers[i]) << i;
  for (const int error :
       {CUDA_ERROR_ECC_UNCORRECTABLE, CUDA_ERROR_NVLINK_UNCORRECTABLE, CUDA_ERROR_ILLEGAL_ADDRESS,
        CUDA_ERROR_LAUNCH_TIMEOUT, CUDA_ERROR_CONTEXT_IS_DESTROYED, CUDA_ERROR_ASSERT, CUDA_ERROR_HARDWARE_STACK_ERROR,
        CUDA_ERROR_ILLEGAL_INSTRUCTION, CUDA_ERROR_MISALIGNED_ADDRESS, CUDA_ERROR_INVALID_ADDRESS_SPACE,
        CUDA_ERROR_INVALID_PC, CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_EXTERNAL_DEVICE, CUDA_ERROR_UNKNOWN})
    EXPECT_TRUE(gpu_error::is_fatal(error)) << error;
  for (const int error : {CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_NOT_READY,
                          CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES})
    EXPECT_FALSE(gpu_error::is_fatal(error)) << error;
}
#else
TEST(DriverSignatures, NumbersOfAttributesAreThoseOfCudaH) {
  GTEST_SKIP() << "cmake found no cuda.h of a CUDA toolkit to compare with";
}
#endif

}  // namespace
}  // namespace tg
