/// \file Fake Metal: devices, memory, kernels, and the functions of the library.
#include <algorithm>
#include <cstring>

#include "fake_metal/fake_objects.h"
#include "fake_metal/metal_control.h"

namespace tg::fake_metal {
namespace {
constexpr size_t kGuard = 64;
constexpr std::byte kFresh{0xa5}, kBehind{0x5c};
constexpr size_t kFilled = 1 << 20;  ///< bytes at the beginning that show that nobody wrote them

/// GPUs of several generations, for ever.
const std::vector<Device*>& devices() {
  static const auto* all =
      new std::vector<Device*>{create<Device>("Fake M3", 1009),          create<Device>("Fake M4 Max", 1009),
                               create<Device>("Fake M4 Pro", 1009),      create<Device>("Fake M4", 1009),
                               create<Device>("Fake M1", 1007),          create<Device>("Fake Radeon", 2002),
                               create<Device>("Fake virtual GPU", 1009), create<Device>("Fake M5", 1010)};
  return *all;
}
}  // namespace

Faults& faults() {
  static auto* f = new Faults;
  return *f;
}

bool fails(Selector* selector) {
  std::lock_guard lock(faults().mutex);
  const auto due = faults().messages.find(selector->name);
  if (due == faults().messages.end() || --due->second > 0) return false;
  faults().messages.erase(due);
  return true;
}

void set_error(Object** error, const std::string& text) {
  if (error) *error = create_autoreleased<Error>(text);
}

Buffer::Buffer(Device& d, size_t bytes)
    : Object(class_of(kClass)),
      device(d),
      length(bytes),
      data(static_cast<std::byte*>(std::aligned_alloc(256, (bytes + kGuard + 255) / 256 * 256))) {
  device.bytes += static_cast<int64_t>(length);
  std::fill_n(data, std::min(length, kFilled), kFresh);
  std::fill_n(data + length, kGuard, kBehind);
}
Buffer::~Buffer() {
  if (!std::all_of(data + length, data + length + kGuard, [](std::byte b) { return b == kBehind; }))
    violation("bytes behind a buffer were written");
  std::fill_n(data, std::min(length, kFilled), std::byte{0xdd});
  std::free(data);
  device.bytes -= static_cast<int64_t>(length);
}

Pipeline::Pipeline(std::shared_ptr<const ProgramImage> i, bool in_indirect)
    : Object(class_of(kClass)),
      image(std::move(i)),
      interpreter(image->program),
      element_bytes(image->buffers.size(), 1),
      indirect(in_indirect) {
  ArenaScope scope(*image->program->arena);
  for (const UOp u : image->program->insts) {
    if (!u.is(Ops::PARAM) || u.arg<ParamArg>().addrspace != AddrSpace::kGlobal) continue;
    size_t& bytes = element_bytes.at(static_cast<size_t>(u.arg<ParamArg>().slot));
    bytes = std::max(bytes, static_cast<size_t>(u.dtype().itemsize()));
  }
}

// ---- methods ----

namespace {
Object* new_buffer(Device* self, Selector* selector, size_t bytes, size_t options) {
  if (bytes == 0 || bytes > kMostBufferBytes) violation("a buffer of " + std::to_string(bytes) + " bytes");
  if (options != 0) violation("a buffer that is not shared with the host");
  if (fails(selector) || self->bytes + static_cast<int64_t>(bytes) > static_cast<int64_t>(kMemoryBytes)) return nullptr;
  return create<Buffer>(*self, bytes);
}

Object* new_library(Device*, Selector* selector, String* source, CompileOptions* options, Object** error) {
  if (!options || options->fast_math) violation("kernels are compiled with fast math");
  try {
    TG_CHECK(FormatError, !fails(selector), "program_source:1:1: error: a test wants this to fail");
    const std::vector<uint8_t> image = fake::image_in(source->text);
    TG_CHECK(FormatError, !image.empty(), "program_source:1:1: error: this is no kernel");
    return create<Library>(fake::read_image(image.data()));
  } catch (const std::exception& e) {
    set_error(error, e.what());
    return nullptr;
  }
}

Object* new_function(Library* self, Selector* selector, String* name) {
  if (fails(selector) || self->image->program->name != name->text) return nullptr;
  return create<Function>(self->image);
}

Object* new_pipeline(Device*, Selector* selector, PipelineDescriptor* descriptor, size_t options, Object**,
                     Object** error) {
  if (options != 0) violation("a pipeline with options");
  if (!descriptor->function) violation("a pipeline without a function");
  const ProgramImage& image = *descriptor->function->image;
  const size_t slots = image.buffers.size() + image.program->vars.size();
  if (slots > kMostSlots || fails(selector)) {
    set_error(error, str("a function with ", slots, " arguments"));
    return nullptr;
  }
  return create<Pipeline>(descriptor->function->image, descriptor->indirect);
}

void add_strings() {
  add_method(
      "NSString class", "stringWithUTF8String:", +[](Object*, Selector*, const char* text) -> Object* {
        const bool ascii =
            std::all_of(text, text + std::strlen(text), [](char c) { return static_cast<unsigned char>(c) < 128; });
        return ascii ? create_autoreleased<String>(text) : nullptr;
      });
  add_method("NSString", "UTF8String", +[](String* s, Selector*) { return s->text.c_str(); });
  add_method(
      "NSError", "localizedDescription",
      +[](Error* e, Selector*) -> Object* { return create_autoreleased<String>(e->text); });
  add_method("NSArray", "count", +[](Array* a, Selector*) -> size_t { return a->objects.size(); });
  add_method("NSArray", "objectAtIndex:", +[](Array* a, Selector*, size_t i) { return a->objects.at(i).get(); });
}

void add_kernels() {
  add_method("MTLCompileOptions class", "new", +[](Object*, Selector*) -> Object* { return create<CompileOptions>(); });
  add_method(
      "MTLCompileOptions", "respondsToSelector:", +[](CompileOptions* o, Selector*, Selector* asked) {
        return o->isa->methods.count(asked) > 0;
      });
  add_method(
      "MTLCompileOptions", "setFastMathEnabled:", +[](CompileOptions* o, Selector*, bool on) { o->fast_math = on; });
  add_method(
      "MTLCompileOptions",
      "setMathMode:", +[](CompileOptions* o, Selector*, int64_t mode) { o->fast_math = mode != 0; });
  add_method(
      "MTLCompileOptions", "setMathFloatingPointFunctions:", +[](CompileOptions*, Selector*, int64_t kind) {
        if (kind != 1) violation("functions that are not precise");
      });
  add_method("MTLLibrary", "newFunctionWithName:", new_function);
  add_method(
      "MTLComputePipelineDescriptor class", "new",
      +[](Object*, Selector*) -> Object* { return create<PipelineDescriptor>(); });
  add_method(
      "MTLComputePipelineDescriptor",
      "setComputeFunction:", +[](PipelineDescriptor* d, Selector*, Function* f) { d->function = Held(f); });
  add_method(
      "MTLComputePipelineDescriptor",
      "setSupportIndirectCommandBuffers:", +[](PipelineDescriptor* d, Selector*, bool on) { d->indirect = on; });
  add_method(
      "MTLComputePipelineState", "maxTotalThreadsPerThreadgroup",
      +[](Pipeline* p, Selector*) -> size_t { return p->most_threads(); });
}
}  // namespace

void add_device_methods() {
  add_strings();
  add_kernels();
  add_method(
      "MTLDevice", "name", +[](Device* d, Selector*) -> Object* { return create_autoreleased<String>(d->name); });
  add_method(
      "MTLDevice", "registryID", +[](Device* d, Selector*) -> uint64_t {
        const auto& all = devices();
        return 1000 + static_cast<uint64_t>(std::find(all.begin(), all.end(), d) - all.begin());
      });
  add_method(
      "MTLDevice", "supportsFamily:", +[](Device* d, Selector*, int64_t family) {
        return family / 1000 == d->family / 1000 && family <= d->family;
      });
  add_method("MTLDevice", "maxBufferLength", +[](Device*, Selector*) -> size_t { return kMostBufferBytes; });
  add_method("MTLDevice", "maxThreadgroupMemoryLength", +[](Device*, Selector*) -> size_t { return kGroupBytes; });
  add_method("MTLDevice", "recommendedMaxWorkingSetSize", +[](Device*, Selector*) -> uint64_t { return kMemoryBytes; });
  add_method("MTLDevice", "newBufferWithLength:options:", new_buffer);
  add_method("MTLDevice", "newLibraryWithSource:options:error:", new_library);
  add_method("MTLDevice", "newComputePipelineStateWithDescriptor:options:reflection:error:", new_pipeline);
  add_method("MTLBuffer", "contents", +[](Buffer* b, Selector*) -> void* { return b->data; });
  add_method("MTLBuffer", "length", +[](Buffer* b, Selector*) -> size_t { return b->length; });
}

// ---- control ----

namespace {
void add_all_methods() {
  static const bool once = [] {
    add_device_methods();
    add_command_methods();
    add_indirect_methods();
    return true;
  }();
  static_cast<void>(once);
}

const char* take_text() {
  thread_local std::string text;
  text = take_violations();
  return text.c_str();
}
const char* types_of(const char* selector) {
  thread_local std::string text;
  text.clear();
  for_each_method([&](const Class& c, const Selector& s, const Method& m) {
    if (s.name == selector) text += c.name + " " + m.types + "\n";
  });
  return text.c_str();
}
}  // namespace
}  // namespace tg::fake_metal

extern "C" {
#define TG_EXPORT __attribute__((visibility("default")))
TG_EXPORT tg::fake_objc::Object* MTLCreateSystemDefaultDevice() {
  using namespace tg::fake_metal;
  add_all_methods();
  static tg::fake_objc::Selector* name = tg::fake_objc::selector_of("MTLCreateSystemDefaultDevice");
  return fails(name) ? nullptr : tg::fake_objc::retain(devices()[0]);
}
TG_EXPORT tg::fake_objc::Object* MTLCopyAllDevices() {
  using namespace tg::fake_metal;
  add_all_methods();
  auto* array = tg::fake_objc::create<Array>();
  static tg::fake_objc::Selector* name = tg::fake_objc::selector_of("MTLCopyAllDevices");
  if (fails(name)) return array;
  for (size_t i = devices().size(); i-- > 0;) array->objects.emplace_back(devices()[i]);  // the default is not first
  return array;
}
TG_EXPORT const tg::fake_metal::Control* fake_metal_control() {
  using namespace tg::fake_metal;
  add_all_methods();
  static const Control control{
      .fail_message =
          [](const char* selector, int nth) {
            std::lock_guard lock(faults().mutex);
            faults().messages[selector] = nth;
          },
      .fail_commands =
          [](int nth) {
            std::lock_guard lock(faults().mutex);
            faults().commands = nth;
          },
      .set_delay =
          [](int microseconds) {
            std::lock_guard lock(faults().mutex);
            faults().delay = microseconds;
          },
      .note_violations = tg::fake_objc::note_violations,
      .take_violations = take_text,
      .living = [](const char* name) -> int64_t { return tg::fake_objc::class_of(name).living; },
      .indirect_commands = []() -> int64_t { return faults().indirect; },
      .types_of = types_of};
  return &control;
}
}
