/// \file The WebGPU library, opened at run time: its functions, the structures they take, and what adapters say.
///
/// The names and layouts are those of the C header webgpu.h of the WebGPU standard, without its prefixes; only what the
/// backend uses is here. The header itself is not needed to build.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tg::webgpu {

/// Objects of the library.
using Handle = void*;

struct Text {
  const char* data = nullptr;
  size_t length = SIZE_MAX;  ///< SIZE_MAX: up to the terminating zero
};
inline Text text(std::string_view s) { return {s.data(), s.size()}; }
std::string to_string(Text t);

struct Chain {
  Chain* next = nullptr;
  uint32_t type = 0;
};
constexpr uint32_t kShaderSourceWgsl = 2, kInstanceExtras = 0x00030004;

using Flags = uint64_t;
namespace buffer_usage {
constexpr Flags kMapRead = 1, kCopySource = 4, kCopyTarget = 8, kUniform = 0x40, kStorage = 0x80, kQueryResolve = 0x200;
}
constexpr Flags kMapForReading = 1, kComputeStage = 4;
constexpr uint32_t kSuccess = 1;  ///< of every kind of status
enum Feature : uint32_t { kTimestampQuery = 9, kShaderF16 = 0xb };
enum CallbackMode : uint32_t { kAllowProcessEvents = 2, kAllowSpontaneous = 3 };
enum ErrorType : uint32_t { kNoError = 1, kValidation = 2, kOutOfMemory = 3, kInternal = 4 };
enum ErrorFilter : uint32_t { kFilterValidation = 1, kFilterOutOfMemory = 2, kFilterInternal = 3 };
enum BindingType : uint32_t { kUniformBinding = 2, kStorageBinding = 3 };
constexpr uint32_t kHighPerformance = 2, kCpuAdapter = 3, kTimestampQueries = 2, kNoQuery = UINT32_MAX;

/// What a call reports to later: a function and two values that it is called with.
template <class F> struct Callback {
  Chain* next = nullptr;
  uint32_t mode = kAllowSpontaneous;
  F* function = nullptr;
  void *first = nullptr, *second = nullptr;
};
using ResultFunction = void(uint32_t status, Handle result, Text message, void*, void*);  ///< an adapter, a device
using StatusFunction = void(uint32_t status, Text message, void*, void*);
using ScopeFunction = void(uint32_t status, uint32_t error_type, Text message, void*, void*);
using DeviceFunction = void(const Handle* device, uint32_t what, Text message, void*, void*);
struct ErrorCallback {
  Chain* next = nullptr;
  DeviceFunction* function = nullptr;
  void *first = nullptr, *second = nullptr;
};
struct Future {
  uint64_t id = 0;
};

struct Limits {
  Chain* next = nullptr;
  uint32_t texture_1d = 0, texture_2d = 0, texture_3d = 0, texture_layers = 0;
  uint32_t bind_groups = 0, bind_groups_and_vertex_buffers = 0, bindings = 0;
  uint32_t dynamic_uniform_buffers = 0, dynamic_storage_buffers = 0;
  uint32_t sampled_textures = 0, samplers = 0, storage_buffers = 0, storage_textures = 0, uniform_buffers = 0;
  uint64_t uniform_binding_bytes = 0, storage_binding_bytes = 0;
  uint32_t uniform_alignment = 0, storage_alignment = 0, vertex_buffers = 0;
  uint64_t buffer_bytes = 0;
  uint32_t vertex_attributes = 0, vertex_stride = 0, shader_variables = 0;
  uint32_t color_attachments = 0, color_attachment_bytes = 0;
  uint32_t group_bytes = 0, group_threads = 0, group_x = 0, group_y = 0, group_z = 0, groups = 0, immediate_bytes = 0;
};

struct AdapterInfo {
  Chain* next = nullptr;
  Text vendor, architecture, device, description;
  uint32_t backend = 0, type = 0, vendor_id = 0, device_id = 0, subgroup_min = 0, subgroup_max = 0;
};

struct InstanceDescriptor {
  Chain* next = nullptr;
  size_t feature_count = 0;
  const uint32_t* features = nullptr;
  const void* limits = nullptr;
};
/// What wgpu-native, alone, takes besides: here the kinds of drivers that it may look for.
struct InstanceExtras {
  Chain chain{nullptr, kInstanceExtras};
  Flags backends = 0, flags = 0;
  uint32_t dx12_compiler = 0, gles_minor = 0, gl_fence = 0;
  Text dxc_path;
  uint32_t dxc_model = 0, dx12_presentation = 0;
  const uint8_t *creation_budget = nullptr, *loss_budget = nullptr;
  uint64_t display[4] = {};
};
constexpr Flags kPrimaryBackends = 0x2d;  ///< Vulkan, Metal, DirectX 12, that of a browser

struct AdapterOptions {
  Chain* next = nullptr;
  uint32_t feature_level = 0, power = 0, fallback = 0, backend = 0;
  Handle surface = nullptr;
};
struct QueueDescriptor {
  Chain* next = nullptr;
  Text label;
};
struct DeviceDescriptor {
  Chain* next = nullptr;
  Text label;
  size_t feature_count = 0;
  const uint32_t* features = nullptr;
  const Limits* limits = nullptr;
  QueueDescriptor queue;
  Callback<DeviceFunction> lost;
  ErrorCallback error;
};
struct BufferDescriptor {
  Chain* next = nullptr;
  Text label;
  Flags usage = 0;
  uint64_t size = 0;
  uint32_t mapped = 0;
};
struct ShaderSource {
  Chain chain{nullptr, kShaderSourceWgsl};
  Text code;
};
/// A descriptor of what needs no more than a label.
struct LabelDescriptor {
  Chain* next = nullptr;
  Text label;
};
struct PipelineDescriptor {
  Chain* next = nullptr;
  Text label;
  Handle layout = nullptr;
  struct {
    Chain* next = nullptr;
    Handle module = nullptr;
    Text entry;
    size_t constant_count = 0;
    const void* constants = nullptr;
  } compute;
};
struct BindGroupEntry {
  Chain* next = nullptr;
  uint32_t binding = 0;
  Handle buffer = nullptr;
  uint64_t offset = 0, size = 0;
  Handle sampler = nullptr, texture = nullptr;
};
struct BindGroupDescriptor {
  Chain* next = nullptr;
  Text label;
  Handle layout = nullptr;
  size_t count = 0;
  const BindGroupEntry* entries = nullptr;
};
struct LayoutEntry {
  Chain* next = nullptr;
  uint32_t binding = 0;
  Flags visibility = kComputeStage;
  uint32_t array_size = 0;
  struct {
    Chain* next = nullptr;
    uint32_t type = 0, dynamic_offset = 0;
    uint64_t least_bytes = 0;
  } buffer;
  struct {
    Chain* next = nullptr;
    uint32_t type = 0;
  } sampler;
  struct {
    Chain* next = nullptr;
    uint32_t sample_type = 0, dimension = 0, multisampled = 0;
  } texture;
  struct {
    Chain* next = nullptr;
    uint32_t access = 0, format = 0, dimension = 0;
  } storage_texture;
};
struct LayoutDescriptor {
  Chain* next = nullptr;
  Text label;
  size_t count = 0;
  const LayoutEntry* entries = nullptr;
};
struct PipelineLayoutDescriptor {
  Chain* next = nullptr;
  Text label;
  size_t count = 0;
  const Handle* layouts = nullptr;
  uint32_t immediate_bytes = 0;
};
struct TimestampWrites {
  Chain* next = nullptr;
  Handle queries = nullptr;
  uint32_t begin = kNoQuery, end = kNoQuery;
};
struct PassDescriptor {
  Chain* next = nullptr;
  Text label;
  const TimestampWrites* timestamps = nullptr;
};
struct QuerySetDescriptor {
  Chain* next = nullptr;
  Text label;
  uint32_t type = kTimestampQueries, count = 0;
};

/// Functions of the library by their names without "wgpu".
struct Functions {
  // clang-format off
#define TG_WEBGPU_FUNCTIONS(X)                                                                             \
  X(CreateInstance, Handle(const InstanceDescriptor*))                                                     \
  X(InstanceRequestAdapter, Future(Handle, const AdapterOptions*, Callback<ResultFunction>))               \
  X(InstanceProcessEvents, void(Handle))                                                                   \
  X(InstanceRelease, void(Handle))                                                                         \
  X(AdapterGetInfo, uint32_t(Handle, AdapterInfo*))                                                        \
  X(AdapterInfoFreeMembers, void(AdapterInfo))                                                             \
  X(AdapterGetLimits, uint32_t(Handle, Limits*))                                                           \
  X(AdapterHasFeature, uint32_t(Handle, uint32_t))                                                         \
  X(AdapterRequestDevice, Future(Handle, const DeviceDescriptor*, Callback<ResultFunction>))               \
  X(AdapterRelease, void(Handle))                                                                          \
  X(DeviceGetQueue, Handle(Handle))                                                                        \
  X(DeviceDestroy, void(Handle))                                                                           \
  X(DevicePushErrorScope, void(Handle, uint32_t))                                                          \
  X(DevicePopErrorScope, Future(Handle, Callback<ScopeFunction>))                                          \
  X(DeviceCreateBuffer, Handle(Handle, const BufferDescriptor*))                                           \
  X(DeviceCreateShaderModule, Handle(Handle, const LabelDescriptor*))                                      \
  X(DeviceCreateComputePipeline, Handle(Handle, const PipelineDescriptor*))                                \
  X(DeviceCreateBindGroup, Handle(Handle, const BindGroupDescriptor*))                                     \
  X(DeviceCreateBindGroupLayout, Handle(Handle, const LayoutDescriptor*))                                  \
  X(DeviceCreatePipelineLayout, Handle(Handle, const PipelineLayoutDescriptor*))                           \
  X(DeviceCreateCommandEncoder, Handle(Handle, const LabelDescriptor*))                                    \
  X(DeviceCreateQuerySet, Handle(Handle, const QuerySetDescriptor*))                                       \
  X(BufferMapAsync, Future(Handle, Flags, size_t, size_t, Callback<StatusFunction>))                       \
  X(BufferGetConstMappedRange, const void*(Handle, size_t, size_t))                                        \
  X(BufferUnmap, void(Handle))                                                                             \
  X(BufferRelease, void(Handle))                                                                           \
  X(ShaderModuleRelease, void(Handle))                                                                     \
  X(ComputePipelineRelease, void(Handle))                                                                  \
  X(BindGroupRelease, void(Handle))                                                                        \
  X(BindGroupLayoutRelease, void(Handle))                                                                  \
  X(PipelineLayoutRelease, void(Handle))                                                                   \
  X(CommandEncoderBeginComputePass, Handle(Handle, const PassDescriptor*))                                 \
  X(CommandEncoderCopyBufferToBuffer, void(Handle, Handle, uint64_t, Handle, uint64_t, uint64_t))          \
  X(CommandEncoderResolveQuerySet, void(Handle, Handle, uint32_t, uint32_t, Handle, uint64_t))             \
  X(CommandEncoderFinish, Handle(Handle, const LabelDescriptor*))                                          \
  X(CommandEncoderRelease, void(Handle))                                                                   \
  X(CommandBufferRelease, void(Handle))                                                                    \
  X(ComputePassEncoderSetPipeline, void(Handle, Handle))                                                   \
  X(ComputePassEncoderSetBindGroup, void(Handle, uint32_t, Handle, size_t, const uint32_t*))               \
  X(ComputePassEncoderDispatchWorkgroups, void(Handle, uint32_t, uint32_t, uint32_t))                      \
  X(ComputePassEncoderEnd, void(Handle))                                                                   \
  X(ComputePassEncoderRelease, void(Handle))                                                               \
  X(QueueSubmit, void(Handle, size_t, const Handle*))                                                      \
  X(QueueWriteBuffer, void(Handle, Handle, uint64_t, const void*, size_t))                                 \
  X(QueueOnSubmittedWorkDone, Future(Handle, Callback<StatusFunction>))
  // clang-format on
#define TG_WEBGPU_MEMBER(name, type) \
  using name##Function = type;       \
  name##Function* name = nullptr;
  TG_WEBGPU_FUNCTIONS(TG_WEBGPU_MEMBER)
#undef TG_WEBGPU_MEMBER
  // Of wgpu-native alone; null elsewhere.
  uint32_t (*DevicePoll)(Handle device, uint32_t wait, const uint64_t* submission) = nullptr;
  uint32_t (*GetVersion)() = nullptr;
  float (*QueueGetTimestampPeriod)(Handle queue) = nullptr;
  std::string file;  ///< as it was opened
};

/// Opens the first of `files` that can be opened and finds its functions. Throws DeviceError that says what is missing.
Functions open_library(const std::vector<std::string>& files);
/// Returns where the library may be: WEBGPU_PATH alone when it is set (a file, or a folder that has it), else next to
/// this library in a Python environment, in the environment that is active, and where the loader looks.
std::vector<std::string> library_files();
/// Returns the functions of the library, opened on the first call. Throws DeviceError when that failed.
const Functions& library();

/// What an adapter says of itself.
struct Adapter {
  Handle instance = nullptr, handle = nullptr;
  std::string name, driver;  ///< "llvmpipe (LLVM 15.0.6, 256 bits)", "Mesa 22.3.6 (LLVM 15.0.6)"
  Limits limits;
  bool processor = false;   ///< it is no GPU
  bool timestamps = false;  ///< has clocks that commands can read
};
/// Returns the adapter that the library prefers for long computations. Throws DeviceError when there is none.
Adapter find_adapter();
/// Releases what find_adapter() got.
void release(const Adapter& adapter);

}  // namespace tg::webgpu
