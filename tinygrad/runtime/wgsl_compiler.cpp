/// \file WGSL without a device.
#include "tinygrad/runtime/wgsl_compiler.h"

#include "tinygrad/base/error.h"
#include "tinygrad/render/wgsl/wgsl.h"

namespace tg {
namespace {
class WgslCompiler final : public Compiler {
 public:
  std::vector<uint8_t> compile(const std::string& source) override {
    WgslHeader::parse(source);
    return {source.begin(), source.end()};
  }
  std::string cache_key() const override { return "wgsl"; }
  std::string assembly(const std::string& source) override {
    return str(source.size(), " bytes of WGSL: there is no machine code without a device");
  }
  std::string cache_table() const override { return "compile_wgsl"; }
};
}  // namespace

Target wgsl_target(const std::string& arch) {
  TG_CHECK(DeviceError, arch.empty(), "[DEV] got WGSL:", arch, ", expected nothing behind WGSL");
  Target t;
  t.renderer = "WGSL";
  t.arch = "wgsl";
  t.features = {"workgroups"};
  t.vector_bytes = 4;
  t.shared_bytes = 16 << 10;
  t.group_threads = 256;
  const int64_t sizes[3] = {256, 256, 64};
  for (int i = 0; i < 3; i++) {
    t.group_limit[i] = sizes[i];
    t.grid_limit[i] = 65535;
  }
  return t;
}
std::unique_ptr<Compiler> make_wgsl_compiler(const Target&) { return std::make_unique<WgslCompiler>(); }

}  // namespace tg
