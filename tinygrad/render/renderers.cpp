/// \file The list of renderers.
#include "tinygrad/render/renderers.h"

#include "tinygrad/render/cstyle/cstyle.h"
#include "tinygrad/render/listing.h"
#include "tinygrad/render/llvmir/llvmir.h"

namespace tg {
namespace {
struct Entry {
  const char* name;
  std::unique_ptr<Renderer> (*make)(const Target&);
};
template <class R> std::unique_ptr<Renderer> make(const Target& t) { return std::make_unique<R>(t); }
constexpr Entry kRenderers[] = {
    {"LLVM", make<LlvmRenderer>},
    {"CLANG", make<ClangRenderer>},
    {"INTERP", make<ListingRenderer>},
};
}  // namespace

std::unique_ptr<Renderer> make_renderer(const Target& target) {
  std::string known;
  for (const Entry& e : kRenderers) {
    if (target.renderer == e.name) return e.make(target);
    known += str(known.empty() ? "" : ", ", e.name);
  }
  throw DeviceError(
      str("[renderer] got ", target.renderer.empty() ? "no name" : target.renderer, ", expected one of ", known));
}

}  // namespace tg
