/// \file The renderers of the library: one line per language. A static library drops files that nobody refers to, so
/// they are a list and no static objects.
#include "tinygrad/render/renderers.h"

#include <mutex>

#include "tinygrad/base/registry.h"
#include "tinygrad/render/cstyle/cstyle.h"
#include "tinygrad/render/listing.h"
#include "tinygrad/render/llvmir/llvmir.h"
#include "tinygrad/render/llvmir/ptx.h"
#include "tinygrad/render/wgsl/wgsl.h"

namespace tg {
namespace {
Registry<RendererFactory>& registry() {
  static auto* instance = new Registry<RendererFactory>;
  return *instance;
}
template <class R> std::unique_ptr<Renderer> make(const Target& t) { return std::make_unique<R>(t); }
RendererFactory grid(const CStyle& style) {
  return [&style](const Target& t) { return std::make_unique<GridRenderer>(t, style); };
}

void register_builtin_renderers() {
  register_renderer("LLVM", make<LlvmRenderer>);
  register_renderer("CLANG", make<ClangRenderer>);
  register_renderer("INTERP", make<ListingRenderer>);
  register_renderer("OPENCL", grid(opencl_style()));
  register_renderer("CUDA", grid(cuda_style()));
  register_renderer("PTX", make<PtxRenderer>);
  register_renderer("HIP", grid(hip_style()));
  register_renderer("METAL", grid(metal_style()));
  register_renderer("WGSL", make<WgslRenderer>);
}
}  // namespace

void register_renderer(std::string name, RendererFactory make, const char* file, int line) {
  registry().add(std::move(name), 0, std::move(make), file, line);
}

std::unique_ptr<Renderer> make_renderer(const Target& target) {
  static std::once_flag once;
  std::call_once(once, register_builtin_renderers);
  if (const auto* entry = registry().find(target.renderer)) return entry->value(target);
  throw DeviceError(str("[renderer] got ", target.renderer.empty() ? "no name" : target.renderer, ", expected one of ",
                        registry().names()));
}

}  // namespace tg
