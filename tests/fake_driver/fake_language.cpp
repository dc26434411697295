/// \file The language FAKE of the kinds CUDA and AMD: kernels for the fake driver (DEV=CUDA:FAKE).
#include "fake_driver/program_image.h"
#include "tinygrad/render/listing.h"
#include "tinygrad/render/renderers.h"
#include "tinygrad/runtime/language_registry.h"

namespace tg::fake {
namespace {

constexpr std::string_view kCode = ".code ";

class FakeRenderer final : public Renderer {
 public:
  using Renderer::Renderer;
  OpSet ops() const override { return groups::kAlu; }
  bool supports(DType d) const override { return !d.is_weak() && !d.is_void(); }
  bool has_locals() const override { return true; }
  /// A listing for people, then the image in hexadecimal.
  std::string render(const Program& p) const override {
    std::string source = str(ListingRenderer(target()).render(p), kCode);
    for (const uint8_t byte : write_image(image_of(std::make_shared<Program>(p))))
      source += {"0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 15]};
    return source;
  }
};

class FakeCompiler final : public Compiler {
 public:
  std::vector<uint8_t> compile(const std::string& source) override {
    const size_t at = source.find(kCode);
    TG_CHECK(CompileError, at != std::string::npos, "[FAKE] got a source without code");
    std::vector<uint8_t> bytes;
    for (size_t i = at + kCode.size(); i + 1 < source.size(); i += 2)
      bytes.push_back(static_cast<uint8_t>(std::stoi(source.substr(i, 2), nullptr, 16)));
    return bytes;
  }
  std::string cache_key() const override { return str("fake 1 ", graph_format()); }
  std::string assembly(const std::string& source) override { return source.substr(0, source.find(kCode)); }
  std::string cache_table() const override { return "compile_fake"; }
};

std::unique_ptr<Compiler> make_compiler(const Target&) { return std::make_unique<FakeCompiler>(); }

const RegisterRenderer renderer{"FAKE", [](const Target& t) { return std::make_unique<FakeRenderer>(t); }};
const RegisterLanguage cuda{{"CUDA", "FAKE", make_compiler}}, amd{{"AMD", "FAKE", make_compiler}};

}  // namespace
}  // namespace tg::fake
