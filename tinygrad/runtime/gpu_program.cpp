/// \file Kernels of GPUs: loading and launching them.
#include <algorithm>
#include <iterator>

#include "tinygrad/runtime/gpu_device.h"

namespace tg {

/// The image is a cubin, PTX text or a code object, whose size drivers find out themselves: PTX ends with a zero.
GpuExecutable::GpuExecutable(const GpuContext& context, std::span<const uint8_t> image, std::string symbol)
    : context_(context), name_(std::move(symbol)), maps_(maps_of_image(image)) {
  TG_CHECK(FormatError, !image.empty(), "[load] ", context.name, ": got no bytes for ", name_);
  std::vector<uint8_t> bytes(image.begin(), image.end());
  bytes.push_back(0);
  context_.enter();
  const auto& load = context_.driver.f.load_module;
  if (const int error = load(&module_, bytes.data())) {
    context_.note(error, load.symbol);
    constexpr int kImageErrors[] = {200, 209, 218, 222, 300};  // no image, none for this device, wrong or too new PTX
    const std::string text =
        str("[", load.symbol, "] ", context_.name, ": kernel ", name_, ": ", context_.driver.text_of(error));
    if (std::find(std::begin(kImageErrors), std::end(kImageErrors), error) != std::end(kImageErrors))
      throw FormatError(text);
    throw DeviceError(text);
  }
  try {
    find_function();
  } catch (...) {
    context_.driver.f.unload_module(module_);
    throw;
  }
}

void GpuExecutable::find_function() {
  const GpuFunctions& f = context_.driver.f;
  constexpr int kNotFound = 500;
  const int error = f.get_function(&function_, module_, name_.c_str());
  TG_CHECK(FormatError, error != kNotFound, "[load] ", context_.name, ": got a program without a kernel ", name_);
  if (error) context_.fail(error, f.get_function.symbol);
  const auto ask = [&](GpuFunctionAttribute a) {
    int value = 0;
    context_.call(f.function_attribute, &value, static_cast<int>(a), function_);
    return value;
  };
  threads_ = ask(GpuFunctionAttribute::kGroupThreads);
  shared_bytes_ = ask(GpuFunctionAttribute::kSharedBytes);
}

/// Waits for launches that may still use the module.
GpuExecutable::~GpuExecutable() {
  if (!context_.enter_quietly()) return;
  const GpuFunctions& f = context_.driver.f;
  context_.note(f.synchronize_stream(context_.compute), f.synchronize_stream.symbol);
  context_.note(f.unload_module(module_), f.unload_module.symbol);
}

void GpuExecutable::check_size(const LaunchArgs& args) const {
  const auto at_most = [&](int64_t value, int64_t limit, const auto&... what) {
    TG_CHECK(DeviceError, value <= limit, "[launch] ", context_.name, ": kernel ", name_, " has ", value, " ", what...,
             ", at most ", limit, " are possible");
  };
  int64_t threads = 1;
  for (int i = 0; i < 3; i++) {
    at_most(args.local[i], context_.group_limit[i], "threads along dimension ", i, " of a group");
    at_most(args.global[i], context_.grid_limit[i], "groups along dimension ", i, " of its grid");
    threads *= args.local[i];
  }
  at_most(threads, threads_, "threads in a group");
  at_most(std::max(args.shared_bytes, shared_bytes_), context_.shared_limit, "bytes of shared memory");
}

namespace {
/// Appends the maps of parameters. Where memory begins at no multiple of 16 bytes there is none: the kernel does not
/// use it then.
void add_maps(const GpuContext& context, std::span<const TensorMap> maps, const LaunchArgs& args, GpuArguments* to) {
  to->maps.assign(maps.size(), {});
  for (size_t i = 0; i < maps.size(); i++) {
    TG_CHECK(DeviceError, maps[i].slot < args.nbuffers, "[launch] ", context.name, ": a kernel copies boxes of buffer ",
             maps[i].slot, " and is given ", args.nbuffers);
    void* memory = args.buffers[maps[i].slot];
    if (reinterpret_cast<uintptr_t>(memory) % kTensorAlignment == 0)
      to->maps[i] = context.driver.encode_map(context, maps[i], memory);
    to->pointers.push_back(&to->maps[i]);
  }
}
}  // namespace

GpuLaunch GpuExecutable::prepare(const LaunchArgs& args, GpuArguments* arguments) {
  check_size(args);
  GpuLaunch out;
  out.function = function_;
  for (int i = 0; i < 3; i++) {
    out.grid[i] = static_cast<unsigned>(args.global[i]);
    out.block[i] = static_cast<unsigned>(args.local[i]);
  }
  const int64_t dynamic = std::max<int64_t>(0, args.shared_bytes - shared_bytes_);
  if (dynamic + shared_bytes_ > context_.shared_static) {
    std::lock_guard lock(mutex_);
    if (dynamic > allowed_bytes_) {
      context_.driver.allow_shared(context_, function_, static_cast<int>(dynamic));
      allowed_bytes_ = dynamic;
    }
  }
  out.shared_bytes = static_cast<unsigned>(dynamic);
  std::vector<void*>& pointers = arguments->pointers;
  pointers.clear();
  for (int i = 0; i < args.nbuffers; i++) pointers.push_back(const_cast<void**>(&args.buffers[i]));
  for (int i = 0; i < args.nvars; i++) pointers.push_back(const_cast<int64_t*>(&args.vars[i]));
  add_maps(context_, maps_, args, arguments);
  out.parameters = pointers.data();
  return out;
}

void GpuExecutable::launch(const LaunchArgs& args) {
  if (args.is_empty()) return;
  context_.enter();
  thread_local GpuArguments arguments;
  const GpuLaunch l = prepare(args, &arguments);
  const auto& f = context_.driver.f.launch;
  const int error = f(l.function, l.grid[0], l.grid[1], l.grid[2], l.block[0], l.block[1], l.block[2], l.shared_bytes,
                      context_.compute, l.parameters, nullptr);
  if (!error) [[likely]]
    return;
  context_.note(error, f.symbol);
  throw DeviceError(str("[", f.symbol, "] ", context_.name, ": kernel ", name_, ", grid ", l.grid[0], " x ", l.grid[1],
                        " x ", l.grid[2], " of ", l.block[0], " x ", l.block[1], " x ", l.block[2],
                        " threads: ", context_.driver.text_of(error)));
}

}  // namespace tg
