/// \file A driver of Qualcomm's as the runtime sees it: any OpenCL driver under another name, a GPU whose images can be
/// views of buffers. What is not here are the functions of the OpenCL loader, which this library is linked with.
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

namespace {
constexpr cl_device_info kImagePitchAlignment = 0x104A, kImageBaseAlignment = 0x104B;
constexpr cl_uint kPitch = 64, kBase = 16;  // pixels

std::mutex mutex;
std::map<cl_mem, std::pair<cl_mem, size_t>> parts;  // sub-buffers: of which buffer, from which byte on
std::atomic<int> views{0};

template <class F> F next(const char* name) {
  static void* loader = dlopen("libOpenCL.so.1", RTLD_NOW);
  return reinterpret_cast<F>(dlsym(loader, name));
}
#define NEXT(name) next<decltype(&name)>(#name)

cl_int answer(const void* value, size_t bytes, size_t room, void* to, size_t* written) {
  if (written) *written = bytes;
  if (!to) return CL_SUCCESS;
  if (room < bytes) return CL_INVALID_VALUE;
  std::memcpy(to, value, bytes);
  return CL_SUCCESS;
}
cl_int answer_text(const std::string& text, size_t room, void* to, size_t* written) {
  return answer(text.c_str(), text.size() + 1, room, to, written);
}

/// Returns where the driver, which computes on the host, has a buffer.
char* address_of(cl_mem buffer) {
  cl_context context = nullptr;
  cl_device_id device = nullptr;
  size_t bytes = 0;
  cl_int error = CL_SUCCESS;
  NEXT(clGetMemObjectInfo)(buffer, CL_MEM_CONTEXT, sizeof context, &context, nullptr);
  NEXT(clGetMemObjectInfo)(buffer, CL_MEM_SIZE, sizeof bytes, &bytes, nullptr);
  NEXT(clGetContextInfo)(context, CL_CONTEXT_DEVICES, sizeof device, &device, nullptr);
  cl_command_queue queue = NEXT(clCreateCommandQueue)(context, device, 0, &error);
  void* at = NEXT(clEnqueueMapBuffer)(queue, buffer, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, bytes, 0, nullptr, nullptr,
                                      &error);
  NEXT(clEnqueueUnmapMemObject)(queue, buffer, at, 0, nullptr, nullptr);
  NEXT(clFinish)(queue);
  NEXT(clReleaseCommandQueue)(queue);
  return static_cast<char*>(at);
}
}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

/// Returns how many images were made of buffers so far.
EXPORT int fake_adreno_views() { return views; }

EXPORT cl_int clGetPlatformInfo(cl_platform_id platform, cl_platform_info what, size_t room, void* to,
                                size_t* written) {
  if (what == CL_PLATFORM_NAME) return answer_text("QUALCOMM Snapdragon(TM)", room, to, written);
  return NEXT(clGetPlatformInfo)(platform, what, room, to, written);
}

EXPORT cl_int clGetDeviceInfo(cl_device_id device, cl_device_info what, size_t room, void* to, size_t* written) {
  const cl_device_type gpu = CL_DEVICE_TYPE_GPU;
  const cl_uint base_bits = 1024;
  switch (what) {
    case CL_DEVICE_NAME: return answer_text("QUALCOMM Adreno(TM)", room, to, written);
    case CL_DEVICE_TYPE: return answer(&gpu, sizeof gpu, room, to, written);
    case CL_DEVICE_MEM_BASE_ADDR_ALIGN: return answer(&base_bits, sizeof base_bits, room, to, written);
    case kImagePitchAlignment: return answer(&kPitch, sizeof kPitch, room, to, written);
    case kImageBaseAlignment: return answer(&kBase, sizeof kBase, room, to, written);
    case CL_DEVICE_EXTENSIONS: {
      size_t n = 0;
      if (const cl_int error = NEXT(clGetDeviceInfo)(device, what, 0, nullptr, &n)) return error;
      std::string text(n, '\0');
      NEXT(clGetDeviceInfo)(device, what, n, text.data(), nullptr);
      text.resize(std::min(n, text.find('\0')));
      return answer_text(text + " cl_khr_image2d_from_buffer", room, to, written);
    }
    default: return NEXT(clGetDeviceInfo)(device, what, room, to, written);
  }
}

EXPORT cl_mem clCreateSubBuffer(cl_mem buffer, cl_mem_flags flags, cl_buffer_create_type type, const void* region,
                                cl_int* error) {
  const auto* r = static_cast<const cl_buffer_region*>(region);
  cl_mem part = NEXT(clCreateSubBuffer)(buffer, flags, type, region, error);
  if (part) {
    std::lock_guard lock(mutex);
    parts[part] = {buffer, r->origin};
  }
  return part;
}

EXPORT cl_mem clCreateImage(cl_context context, cl_mem_flags flags, const cl_image_format* format,
                            const cl_image_desc* desc, void* host, cl_int* error) {
  if (!desc->buffer) return NEXT(clCreateImage)(context, flags, format, desc, host, error);
  const size_t pixel = format->image_channel_data_type == CL_FLOAT ? 16 : 8;
  std::unique_lock lock(mutex);
  const auto [buffer, origin] = parts.at(desc->buffer);
  lock.unlock();
  if (desc->image_row_pitch % (kPitch * pixel) || origin % (kBase * pixel)) {
    *error = CL_INVALID_IMAGE_FORMAT_DESCRIPTOR;
    return nullptr;
  }
  views++;
  cl_image_desc plain = *desc;
  plain.buffer = nullptr;
  return NEXT(clCreateImage)(context, flags | CL_MEM_USE_HOST_PTR, format, &plain, address_of(buffer) + origin, error);
}
