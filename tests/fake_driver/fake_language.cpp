/// \file The language FAKE of the kinds CUDA, AMD and METAL: kernels for fake drivers (DEV=CUDA:FAKE,
/// DEV=METAL:METAL_FAKE).
#include "fake_driver/program_image.h"
#include "tinygrad/render/listing.h"
#include "tinygrad/render/renderers.h"
#include "tinygrad/runtime/language_registry.h"

namespace tg::fake {
namespace {

class FakeRenderer final : public Renderer {
 public:
  using Renderer::Renderer;
  OpSet ops() const override { return groups::kAlu; }
  bool supports(DType d) const override { return !d.is_weak() && !d.is_void(); }
  bool has_locals() const override { return true; }
  std::vector<const TensorCore*> tensor_cores() const override {
    return target().arch.starts_with("sm_") ? tensor_cores_of(target()) : std::vector<const TensorCore*>{};
  }
  /// A listing for people, then the image.
  std::string render(const Program& p) const override { return ListingRenderer(target()).render(p) + image_text(p); }
};

class FakeCompiler final : public Compiler {
 public:
  std::vector<uint8_t> compile(const std::string& source) override {
    const std::vector<uint8_t> bytes = image_in(source);
    TG_CHECK(CompileError, !bytes.empty(), "[FAKE] got a source without code");
    return bytes;
  }
  std::string cache_key() const override { return str("fake 1 ", graph_format()); }
  std::string assembly(const std::string& source) override { return source.substr(0, source.find(kImageCode)); }
  std::string cache_table() const override { return "compile_fake"; }
};

std::unique_ptr<Compiler> make_compiler(const Target&) { return std::make_unique<FakeCompiler>(); }

std::unique_ptr<Renderer> make_fake(const Target& t) { return std::make_unique<FakeRenderer>(t); }

// Metal compiles what it is given as a source: its renderer is all there is to a language.
const RegisterRenderer renderer{"FAKE", make_fake}, metal{"METAL_FAKE", make_fake};
const RegisterLanguage cuda{{"CUDA", "FAKE", make_compiler}}, amd{{"AMD", "FAKE", make_compiler}};

}  // namespace
}  // namespace tg::fake
