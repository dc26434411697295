/// \file The Objective-C runtime and Metal, opened at run time: references, autorelease pools, and the table of the
/// messages that are sent, each with the types of its method. Neither Objective-C nor a header of Apple is needed to
/// build.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace tg {

struct ObjcObject;
struct ObjcSelector;
using ObjcId = ObjcObject*;

/// MTLSize.
struct MetalSize {
  size_t width, height, depth;
};
/// NSRange.
struct MetalRange {
  size_t location, length;
};

/// A message: called with a receiver and the arguments it sends them. The types are those of the method, as a variadic
/// call passes arguments elsewhere on some processors.
template <class Signature> class Message;
template <class R, class... A> class Message<R(A...)> {
 public:
  Message(ObjcSelector* selector, void (*send)()) : selector_(selector), send_(send) {}
  // The function has no type that a checker of calls knows.
#ifdef __clang__
  __attribute__((no_sanitize("function")))
#endif
  R operator()(ObjcId receiver, A... args) const {
    return reinterpret_cast<R (*)(ObjcId, ObjcSelector*, A...)>(send_)(receiver, selector_, args...);
  }
  ObjcSelector* selector() const { return selector_; }

 private:
  ObjcSelector* selector_;
  void (*send_)();
};

/// MESSAGE(name, selector, types of the method): all messages of this backend. NSUInteger is size_t, NSInteger int64_t,
/// BOOL bool, CFTimeInterval double. No method returns a structure: those need other functions than objc_msgSend.
/// Methods whose names begin with "new" return a reference of the caller, the others none.
#define TG_METAL_MESSAGES(MESSAGE)                                                                                     \
  /* NSObject, and the class of one */                                                                                 \
  MESSAGE(create, "new", ObjcId())                                                                                     \
  MESSAGE(responds_to, "respondsToSelector:", bool(ObjcSelector*))                                                     \
  /* NSString, NSArray, NSError */                                                                                     \
  MESSAGE(string_with, "stringWithUTF8String:", ObjcId(const char*))                                                   \
  MESSAGE(utf8, "UTF8String", const char*())                                                                           \
  MESSAGE(count, "count", size_t())                                                                                    \
  MESSAGE(object_at, "objectAtIndex:", ObjcId(size_t))                                                                 \
  MESSAGE(description, "localizedDescription", ObjcId())                                                               \
  /* MTLDevice */                                                                                                      \
  MESSAGE(name, "name", ObjcId())                                                                                      \
  MESSAGE(registry_id, "registryID", uint64_t())                                                                       \
  MESSAGE(supports_family, "supportsFamily:", bool(int64_t))                                                           \
  MESSAGE(max_buffer_length, "maxBufferLength", size_t())                                                              \
  MESSAGE(max_group_memory, "maxThreadgroupMemoryLength", size_t())                                                    \
  MESSAGE(working_set, "recommendedMaxWorkingSetSize", uint64_t())                                                     \
  MESSAGE(new_buffer, "newBufferWithLength:options:", ObjcId(size_t, size_t))                                          \
  MESSAGE(new_queue, "newCommandQueueWithMaxCommandBufferCount:", ObjcId(size_t))                                      \
  MESSAGE(new_shared_event, "newSharedEvent", ObjcId())                                                                \
  MESSAGE(new_library, "newLibraryWithSource:options:error:", ObjcId(ObjcId, ObjcId, ObjcId*))                         \
  MESSAGE(new_pipeline,                                                                                                \
          "newComputePipelineStateWithDescriptor:options:reflection:error:", ObjcId(ObjcId, size_t, ObjcId*, ObjcId*)) \
  MESSAGE(new_indirect_commands,                                                                                       \
          "newIndirectCommandBufferWithDescriptor:maxCommandCount:options:", ObjcId(ObjcId, size_t, size_t))           \
  /* MTLCompileOptions */                                                                                              \
  MESSAGE(set_fast_math, "setFastMathEnabled:", void(bool))                                                            \
  MESSAGE(set_math_mode, "setMathMode:", void(int64_t))                                                                \
  MESSAGE(set_math_functions, "setMathFloatingPointFunctions:", void(int64_t))                                         \
  /* MTLLibrary, MTLComputePipelineDescriptor, MTLComputePipelineState */                                              \
  MESSAGE(new_function, "newFunctionWithName:", ObjcId(ObjcId))                                                        \
  MESSAGE(set_function, "setComputeFunction:", void(ObjcId))                                                           \
  MESSAGE(set_indirect, "setSupportIndirectCommandBuffers:", void(bool))                                               \
  MESSAGE(max_group_threads, "maxTotalThreadsPerThreadgroup", size_t())                                                \
  /* MTLBuffer */                                                                                                      \
  MESSAGE(contents, "contents", void*())                                                                               \
  MESSAGE(length, "length", size_t())                                                                                  \
  /* MTLSharedEvent */                                                                                                 \
  MESSAGE(set_signaled, "setSignaledValue:", void(uint64_t))                                                           \
  /* MTLCommandQueue, MTLCommandBuffer */                                                                              \
  MESSAGE(command_buffer, "commandBuffer", ObjcId())                                                                   \
  MESSAGE(compute_encoder, "computeCommandEncoder", ObjcId())                                                          \
  MESSAGE(blit_encoder, "blitCommandEncoder", ObjcId())                                                                \
  MESSAGE(wait_for_event, "encodeWaitForEvent:value:", void(ObjcId, uint64_t))                                         \
  MESSAGE(commit, "commit", void())                                                                                    \
  MESSAGE(wait_completed, "waitUntilCompleted", void())                                                                \
  MESSAGE(status, "status", size_t())                                                                                  \
  MESSAGE(error, "error", ObjcId())                                                                                    \
  MESSAGE(gpu_start, "GPUStartTime", double())                                                                         \
  MESSAGE(gpu_end, "GPUEndTime", double())                                                                             \
  /* MTLComputeCommandEncoder, MTLBlitCommandEncoder */                                                                \
  MESSAGE(set_pipeline, "setComputePipelineState:", void(ObjcId))                                                      \
  MESSAGE(set_buffer, "setBuffer:offset:atIndex:", void(ObjcId, size_t, size_t))                                       \
  MESSAGE(set_bytes, "setBytes:length:atIndex:", void(const void*, size_t, size_t))                                    \
  MESSAGE(dispatch, "dispatchThreadgroups:threadsPerThreadgroup:", void(MetalSize, MetalSize))                         \
  MESSAGE(use_resources, "useResources:count:usage:", void(const ObjcId*, size_t, size_t))                             \
  MESSAGE(execute_commands, "executeCommandsInBuffer:withRange:", void(ObjcId, MetalRange))                            \
  MESSAGE(copy_buffer, "copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:",                                 \
          void(ObjcId, size_t, ObjcId, size_t, size_t))                                                                \
  MESSAGE(end_encoding, "endEncoding", void())                                                                         \
  /* MTLIndirectCommandBufferDescriptor, MTLIndirectCommandBuffer, MTLIndirectComputeCommand */                        \
  MESSAGE(set_command_types, "setCommandTypes:", void(size_t))                                                         \
  MESSAGE(set_inherit_buffers, "setInheritBuffers:", void(bool))                                                       \
  MESSAGE(set_inherit_pipeline, "setInheritPipelineState:", void(bool))                                                \
  MESSAGE(set_max_kernel_buffers, "setMaxKernelBufferBindCount:", void(size_t))                                        \
  MESSAGE(indirect_command_at, "indirectComputeCommandAtIndex:", ObjcId(size_t))                                       \
  MESSAGE(reset, "reset", void())                                                                                      \
  MESSAGE(set_kernel_buffer, "setKernelBuffer:offset:atIndex:", void(ObjcId, size_t, size_t))                          \
  MESSAGE(dispatch_concurrent, "concurrentDispatchThreadgroups:threadsPerThreadgroup:", void(MetalSize, MetalSize))    \
  MESSAGE(set_barrier, "setBarrier", void())

/// The functions of the runtime and of Metal.
struct MetalFunctions {
  ObjcId (*get_class)(const char* name) = nullptr;
  ObjcSelector* (*register_selector)(const char* name) = nullptr;
  void (*send)() = nullptr;  ///< objc_msgSend
  ObjcId (*retain)(ObjcId) = nullptr;
  void (*release)(ObjcId) = nullptr;
  void* (*push_pool)() = nullptr;
  void (*pop_pool)(void*) = nullptr;
  ObjcId (*default_device)() = nullptr;
  ObjcId (*all_devices)() = nullptr;
};

/// They and the messages.
struct MetalLibrary : MetalFunctions {
  explicit MetalLibrary(const MetalFunctions& functions) : MetalFunctions(functions) {}
#define TG_METAL_MEMBER(member, selector, ...) Message<__VA_ARGS__> member{register_selector(selector), send};
  TG_METAL_MESSAGES(TG_METAL_MEMBER)
#undef TG_METAL_MEMBER
};

/// Opens the libraries: those of macOS, or the one `file` for both. Throws DeviceError that says what is missing.
MetalFunctions open_metal(const std::string& file);
/// Returns the libraries that METAL_LIBRARY names, opened once. Throws DeviceError that says what is missing.
const MetalLibrary& metal();

/// A reference that is counted.
class ObjcRef {
 public:
  ObjcRef() = default;
  /// Takes over the reference that a method "new..." returned.
  static ObjcRef adopt(ObjcId object) { return ObjcRef(object); }
  /// Takes a reference of its own.
  static ObjcRef share(ObjcId object) { return ObjcRef(object ? metal().retain(object) : nullptr); }
  ObjcRef(const ObjcRef& o) : ObjcRef(share(o.object_)) {}
  ObjcRef(ObjcRef&& o) noexcept : object_(std::exchange(o.object_, nullptr)) {}
  ObjcRef& operator=(ObjcRef o) noexcept {
    std::swap(object_, o.object_);
    return *this;
  }
  ~ObjcRef() {
    if (object_) metal().release(object_);
  }
  ObjcId get() const { return object_; }
  explicit operator bool() const { return object_; }

 private:
  explicit ObjcRef(ObjcId object) : object_(object) {}
  ObjcId object_ = nullptr;
};

/// Releases at its end what methods returned without a reference of the caller meanwhile. In every function that sends
/// messages, as a thread of ours has no pool of its own.
class AutoreleasePool {
 public:
  AutoreleasePool() : pool_(metal().push_pool()) {}
  ~AutoreleasePool() { metal().pop_pool(pool_); }
  AutoreleasePool(const AutoreleasePool&) = delete;
  AutoreleasePool& operator=(const AutoreleasePool&) = delete;

 private:
  void* pool_;
};

/// Returns an NSString, which the pool releases.
ObjcId ns_string(const std::string& text);
/// Returns the text of an NSString, empty for none.
std::string text_of(ObjcId string);
/// Returns what an NSError says.
std::string error_text_of(ObjcId error);
/// Returns a new object of a class. Throws DeviceError where there is no such class.
ObjcRef new_object(const char* class_name);

}  // namespace tg
