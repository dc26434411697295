/// \file libOpenCL, opened at run time: its functions, its devices and its errors.
#pragma once
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tinygrad/target/target.h"

namespace tg {

/// Functions of the library by their names without "cl".
struct OpenClFunctions {
  // clang-format off
#define TG_OPENCL_FUNCTIONS(X)                                                                                  \
  X(GetPlatformIDs) X(GetPlatformInfo) X(GetDeviceIDs) X(GetDeviceInfo) X(CreateContext) X(CreateCommandQueue)  \
  X(CreateBuffer) X(ReleaseMemObject) X(CreateProgramWithSource) X(CreateProgramWithBinary) X(BuildProgram)     \
  X(GetProgramInfo) X(GetProgramBuildInfo) X(ReleaseProgram) X(CreateKernel) X(ReleaseKernel) X(SetKernelArg)   \
  X(EnqueueNDRangeKernel) X(EnqueueReadBuffer) X(EnqueueWriteBuffer) X(EnqueueCopyBuffer)                       \
  X(CreateSubBuffer) X(CreateImage) X(EnqueueCopyBufferToImage) X(EnqueueCopyImageToBuffer)                     \
  X(EnqueueMarkerWithWaitList) X(EnqueueBarrierWithWaitList) X(GetEventInfo) X(GetEventProfilingInfo)           \
  X(WaitForEvents) X(ReleaseEvent) X(Flush) X(Finish)
#define TG_OPENCL_MEMBER(name) decltype(&::cl##name) name = nullptr;
  // clang-format on
  TG_OPENCL_FUNCTIONS(TG_OPENCL_MEMBER)
#undef TG_OPENCL_MEMBER
};

/// Opens `file` and finds its functions. Throws DeviceError that says what is missing.
OpenClFunctions open_opencl(const char* file);
/// Returns the functions of libOpenCL, opened on the first call. Throws DeviceError when that failed.
const OpenClFunctions& opencl();
/// Returns the functions of Qualcomm's driver, opened on the first call: QCOM_LIBRARY, or where systems keep it. Throws
/// DeviceError when there is none.
const OpenClFunctions& qualcomm_opencl();

/// Returns the name of an error: "CL_OUT_OF_RESOURCES".
std::string opencl_error_name(cl_int error);
/// Throws DeviceError "[call] device: CL_..." for anything but CL_SUCCESS.
void check_opencl(cl_int error, const char* call, const std::string& device);

/// What a device says of itself.
struct OpenClDevice {
  const OpenClFunctions* functions = nullptr;  ///< of the library that found it
  cl_device_id id = nullptr;
  std::string name, platform, driver;  ///< "pthread-skylake-avx512", "Portable Computing Language", "3.1"
  cl_device_type type = 0;
  bool fp16 = false, fp64 = false;
  bool fma = false;             ///< of float32, in hardware
  bool exact_division = false;  ///< can round divisions and square roots of float32 correctly
  /// The driver compiles a kernel when it is launched first and keeps that in a cache of its own. Asked for binaries it
  /// compiles kernels that no launch uses.
  bool compiles_at_launch = false;
  int64_t units = 1, lanes = 1;  ///< compute units; float32 values of a vector
  int64_t group_threads = 1, group_limit[3] = {1, 1, 1};
  ImageLimits images;              ///< width 0: it has none for float32 and float16
  bool images_of_buffers = false;  ///< an image can be a view of a buffer; elsewhere bytes are copied
  int64_t view_alignment = 1;      ///< bytes: where in a buffer such a view may begin
  int64_t local_bytes = 0, global_bytes = 0, most_bytes = 0;  ///< memory of a group, of the device, of an allocation
};
/// Compiler options that leave out clang's header of all OpenCL functions, which takes much longer to read than a
/// kernel. Clang's macros of types and constants are in another one.
constexpr const char* kWithoutOpenClHeader = " -D_OPENCL_H_";
/// Returns declarations of the functions that `source`, as the renderer writes it, calls: for a compiler with those
/// options.
std::string opencl_declarations(const std::string& source);

/// Returns whether a platform of that version is PoCL over an LLVM that reads elements of vectors of booleans as bytes,
/// though they are bits in memory (VectorCombine in LLVM 13 to 17, issue 67060). PoCL keeps such a vector where
/// several comparisons of an item are needed behind a barrier, which its vectorised loops over items make of them.
bool pocl_misreads_booleans(std::string_view version);

/// Returns the devices of all platforms of a library: GPUs first, then accelerators, then processors. Throws
/// DeviceError when there are none. Sets POCL_WORK_GROUP_METHOD=loops, unless it is set, for a PoCL that
/// pocl_misreads_booleans().
std::vector<OpenClDevice> opencl_devices(const OpenClFunctions& functions = opencl());

}  // namespace tg
