/// \file Opens libOpenCL and asks its devices what they can do.
#include "tinygrad/runtime/opencl_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "tinygrad/base/env.h"
#include "tinygrad/base/error.h"

namespace tg {
namespace {
constexpr const char* kLibrary = "libOpenCL.so.1";
/// Qualcomm's driver, where its own name says so, or the only OpenCL library of a system is that driver.
constexpr const char* kQualcommLibraries[] = {"libOpenCL_adreno.so.1", "libOpenCL_adreno.so",
                                              "/vendor/lib64/libOpenCL.so", "/system/vendor/lib64/libOpenCL.so",
                                              "/usr/lib/aarch64-linux-gnu/libOpenCL_adreno.so.1"};
// Of OpenCL 2.0, and of the extension before it.
constexpr cl_device_info kImagePitchAlignment = 0x104A, kImageBaseAlignment = 0x104B;

struct ErrorName {
  cl_int code;
  const char* name;
};
#define TG_CL(x) {x, #x}
constexpr ErrorName kErrors[] = {TG_CL(CL_DEVICE_NOT_FOUND),
                                 TG_CL(CL_DEVICE_NOT_AVAILABLE),
                                 TG_CL(CL_COMPILER_NOT_AVAILABLE),
                                 TG_CL(CL_MEM_OBJECT_ALLOCATION_FAILURE),
                                 TG_CL(CL_OUT_OF_RESOURCES),
                                 TG_CL(CL_OUT_OF_HOST_MEMORY),
                                 TG_CL(CL_PROFILING_INFO_NOT_AVAILABLE),
                                 TG_CL(CL_MEM_COPY_OVERLAP),
                                 TG_CL(CL_IMAGE_FORMAT_NOT_SUPPORTED),
                                 TG_CL(CL_BUILD_PROGRAM_FAILURE),
                                 TG_CL(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST),
                                 TG_CL(CL_INVALID_VALUE),
                                 TG_CL(CL_INVALID_DEVICE),
                                 TG_CL(CL_INVALID_CONTEXT),
                                 TG_CL(CL_INVALID_COMMAND_QUEUE),
                                 TG_CL(CL_INVALID_MEM_OBJECT),
                                 TG_CL(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR),
                                 TG_CL(CL_INVALID_IMAGE_SIZE),
                                 TG_CL(CL_INVALID_IMAGE_DESCRIPTOR),
                                 TG_CL(CL_INVALID_BINARY),
                                 TG_CL(CL_INVALID_BUILD_OPTIONS),
                                 TG_CL(CL_INVALID_PROGRAM),
                                 TG_CL(CL_INVALID_PROGRAM_EXECUTABLE),
                                 TG_CL(CL_INVALID_KERNEL_NAME),
                                 TG_CL(CL_INVALID_KERNEL),
                                 TG_CL(CL_INVALID_ARG_INDEX),
                                 TG_CL(CL_INVALID_ARG_VALUE),
                                 TG_CL(CL_INVALID_ARG_SIZE),
                                 TG_CL(CL_INVALID_KERNEL_ARGS),
                                 TG_CL(CL_INVALID_WORK_DIMENSION),
                                 TG_CL(CL_INVALID_WORK_GROUP_SIZE),
                                 TG_CL(CL_INVALID_WORK_ITEM_SIZE),
                                 TG_CL(CL_INVALID_EVENT),
                                 TG_CL(CL_INVALID_OPERATION),
                                 TG_CL(CL_INVALID_BUFFER_SIZE),
                                 TG_CL(CL_INVALID_GLOBAL_WORK_SIZE)};
#undef TG_CL

std::string text_of(const OpenClFunctions& cl, cl_device_id d, cl_device_info what) {
  size_t n = 0;
  if (cl.GetDeviceInfo(d, what, 0, nullptr, &n) != CL_SUCCESS || n == 0) return "";
  std::string s(n, '\0');
  cl.GetDeviceInfo(d, what, n, s.data(), nullptr);
  s.resize(s.find('\0') == std::string::npos ? n : s.find('\0'));
  return s;
}
/// Returns a number; 0 where the device does not know the question.
template <class T> T number_of(const OpenClFunctions& cl, cl_device_id d, cl_device_info what) {
  T v{};
  return cl.GetDeviceInfo(d, what, sizeof v, &v, nullptr) == CL_SUCCESS ? v : T{};
}

/// Asks what images a device has, and whether they can be views of buffers.
void describe_images(OpenClDevice& d, const std::string& extensions) {
  const OpenClFunctions& cl = *d.functions;
  if (!number_of<cl_bool>(cl, d.id, CL_DEVICE_IMAGE_SUPPORT)) return;
  d.images.width = static_cast<int64_t>(number_of<size_t>(cl, d.id, CL_DEVICE_IMAGE2D_MAX_WIDTH));
  d.images.height = static_cast<int64_t>(number_of<size_t>(cl, d.id, CL_DEVICE_IMAGE2D_MAX_HEIGHT));
  d.images_of_buffers = extensions.find(" cl_khr_image2d_from_buffer ") != std::string::npos;
  if (!d.images_of_buffers) return;
  constexpr int64_t kPixel = 16;  // bytes, of float32
  d.images.pitch = std::max<int64_t>(1, number_of<cl_uint>(cl, d.id, kImagePitchAlignment));
  d.view_alignment = std::max<int64_t>({1, number_of<cl_uint>(cl, d.id, CL_DEVICE_MEM_BASE_ADDR_ALIGN) / 8,
                                        number_of<cl_uint>(cl, d.id, kImageBaseAlignment) * kPixel});
}

OpenClDevice describe(const OpenClFunctions& cl, cl_device_id id, const std::string& platform) {
  OpenClDevice d;
  d.functions = &cl;
  d.id = id;
  d.name = text_of(cl, id, CL_DEVICE_NAME);
  d.platform = platform;
  d.driver = text_of(cl, id, CL_DRIVER_VERSION);
  const std::string version = text_of(cl, id, CL_DEVICE_VERSION);  // no query tells, but PoCL's device says what it is
  d.compiles_at_launch = version.find("PoCL") != std::string::npos || version.find("pocl") != std::string::npos;
  d.type = number_of<cl_device_type>(cl, id, CL_DEVICE_TYPE);
  const std::string extensions = " " + text_of(cl, id, CL_DEVICE_EXTENSIONS) + " ";
  d.fp16 = extensions.find(" cl_khr_fp16 ") != std::string::npos;
  d.fp64 = number_of<cl_device_fp_config>(cl, id, CL_DEVICE_DOUBLE_FP_CONFIG) != 0;
  const auto single = number_of<cl_device_fp_config>(cl, id, CL_DEVICE_SINGLE_FP_CONFIG);
  d.fma = single & CL_FP_FMA;
  d.exact_division = single & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT;
  d.units = std::max<int64_t>(1, number_of<cl_uint>(cl, id, CL_DEVICE_MAX_COMPUTE_UNITS));
  d.lanes = std::max<int64_t>(1, number_of<cl_uint>(cl, id, CL_DEVICE_PREFERRED_VECTOR_WIDTH_FLOAT));
  d.group_threads = static_cast<int64_t>(number_of<size_t>(cl, id, CL_DEVICE_MAX_WORK_GROUP_SIZE));
  size_t sizes[16] = {1, 1, 1};
  cl.GetDeviceInfo(id, CL_DEVICE_MAX_WORK_ITEM_SIZES, sizeof sizes, sizes, nullptr);
  for (int i = 0; i < 3; i++) d.group_limit[i] = static_cast<int64_t>(sizes[i]);
  describe_images(d, extensions);
  d.local_bytes = static_cast<int64_t>(number_of<cl_ulong>(cl, id, CL_DEVICE_LOCAL_MEM_SIZE));
  d.global_bytes = static_cast<int64_t>(number_of<cl_ulong>(cl, id, CL_DEVICE_GLOBAL_MEM_SIZE));
  d.most_bytes = static_cast<int64_t>(number_of<cl_ulong>(cl, id, CL_DEVICE_MAX_MEM_ALLOC_SIZE));
  return d;
}

/// Has PoCL make plain loops over the items of a group where its vectorised ones give wrong results, unless the user
/// has chosen. PoCL reads the variable when the process makes its first context.
void choose_pocl_loops(const OpenClFunctions& cl, cl_platform_id platform) {
  char version[256] = {};
  cl.GetPlatformInfo(platform, CL_PLATFORM_VERSION, sizeof version - 1, version, nullptr);
  if (pocl_misreads_booleans(version)) setenv("POCL_WORK_GROUP_METHOD", "loops", 0);
}

/// Returns the order in which kinds of devices are numbered.
int rank_of(const OpenClDevice& d) {
  return d.type & CL_DEVICE_TYPE_GPU ? 0 : d.type & CL_DEVICE_TYPE_ACCELERATOR ? 1 : 2;
}
}  // namespace

OpenClFunctions open_opencl(const char* file) {
  void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);  // never closed: drivers keep threads
  TG_CHECK(DeviceError, library, "[opencl] found no ", file, ", the OpenCL loader");
  OpenClFunctions f;
  auto find = [&](const char* name, auto* to) {
    *to = reinterpret_cast<std::remove_pointer_t<decltype(to)>>(dlsym(library, name));
    TG_CHECK(DeviceError, *to, "[opencl] ", file, " has no function ", name, ", expected OpenCL 1.2");
  };
#define TG_OPENCL_FIND(name) find("cl" #name, &f.name);
  TG_OPENCL_FUNCTIONS(TG_OPENCL_FIND)
#undef TG_OPENCL_FIND
  return f;
}

const OpenClFunctions& opencl() {
  static const auto* functions = new OpenClFunctions(open_opencl(kLibrary));
  return *functions;
}

const OpenClFunctions& qualcomm_opencl() {
  static const auto* functions = [] {
    const std::string& given = env::QCOM_LIBRARY.get();
    if (!given.empty()) return new OpenClFunctions(open_opencl(given.c_str()));
    for (const char* file : kQualcommLibraries) try {
        return new OpenClFunctions(open_opencl(file));
      } catch (const DeviceError&) {}  // the next one
    throw DeviceError(
        "[qcom] found no libOpenCL_adreno.so and no /vendor/lib64/libOpenCL.so, Qualcomm's OpenCL driver");
  }();
  return *functions;
}

std::string opencl_error_name(cl_int error) {
  for (const ErrorName& e : kErrors)
    if (e.code == error) return e.name;
  return "error " + std::to_string(error);
}

void check_opencl(cl_int error, const char* call, const std::string& device) {
  TG_CHECK(DeviceError, error == CL_SUCCESS, "[", call, "] ", device, ": ", opencl_error_name(error));
}

bool pocl_misreads_booleans(std::string_view version) {
  constexpr std::string_view kCompiler = " LLVM ";
  constexpr int kFirst = 13, kLast = 17;
  const size_t at = version.find(kCompiler);
  if (version.find(" PoCL ") == std::string_view::npos || at == std::string_view::npos) return false;
  int major = 0;  // stays 0 where no number follows
  const std::string_view number = version.substr(at + kCompiler.size());
  std::from_chars(number.data(), number.data() + number.size(), major);
  return major >= kFirst && major <= kLast;
}

std::vector<OpenClDevice> opencl_devices(const OpenClFunctions& cl) {
  cl_uint platforms = 0;
  std::vector<cl_platform_id> found;
  if (cl.GetPlatformIDs(0, nullptr, &platforms) == CL_SUCCESS && platforms > 0) {
    found.resize(platforms);
    cl.GetPlatformIDs(platforms, found.data(), nullptr);
  }
  std::vector<OpenClDevice> devices;
  for (cl_platform_id p : found) {
    choose_pocl_loops(cl, p);
    char name[256] = {};
    cl.GetPlatformInfo(p, CL_PLATFORM_NAME, sizeof name - 1, name, nullptr);
    cl_uint n = 0;
    if (cl.GetDeviceIDs(p, CL_DEVICE_TYPE_ALL, 0, nullptr, &n) != CL_SUCCESS) continue;
    std::vector<cl_device_id> ids(n);
    cl.GetDeviceIDs(p, CL_DEVICE_TYPE_ALL, n, ids.data(), nullptr);
    for (cl_device_id id : ids) devices.push_back(describe(cl, id, name));
  }
  TG_CHECK(DeviceError, !devices.empty(), "[opencl] the loader found no driver with a device");
  std::stable_sort(devices.begin(), devices.end(),
                   [](const OpenClDevice& a, const OpenClDevice& b) { return rank_of(a) < rank_of(b); });
  return devices;
}

}  // namespace tg
