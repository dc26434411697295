/// \file PTX to cubins by ptxas.
#include "tinygrad/runtime/ptxas.h"

#include "tinygrad/base/error.h"
#include "tinygrad/base/process.h"
#include "tinygrad/runtime/host_compilers.h"

namespace tg {
namespace {

class PtxasCompiler final : public Compiler {
 public:
  PtxasCompiler(const Target& target, std::string path)
      : arch_(target.arch), path_(std::move(path)), ptx_(make_ptx_compiler(target)) {}
  std::vector<uint8_t> compile(const std::string& source) override {
    const std::vector<uint8_t> ptx = ptx_->compile(source);
    ProcessOptions input;
    input.input.assign(ptx.begin(), ptx.end());
    const ProcessResult result = run_process({path_, "-arch=" + arch_, "-o", "/dev/stdout", "-"}, input);
    TG_CHECK(CompileError, result.ok() && !result.out.empty(), "[ptxas] ", path_, " ended with ",
             result.signal ? str("signal ", result.signal) : str("status ", result.exit_code), ":\n", result.err);
    return {result.out.begin(), result.out.end()};
  }
  std::string assembly(const std::string& source) override { return ptx_->assembly(source); }
  std::string cache_key() const override { return str("ptxas ", path_, " ", arch_, " ", ptx_->cache_key()); }
  std::string cache_table() const override { return "compile_ptxas"; }

 private:
  const std::string arch_, path_;
  const std::unique_ptr<Compiler> ptx_;
};
}  // namespace

std::string ptxas_path() {
  constexpr const char* kInToolkit = "/usr/local/cuda/bin/ptxas";
  std::error_code ignored;
  return has_program("ptxas") ? "ptxas" : std::filesystem::exists(kInToolkit, ignored) ? kInToolkit : "";
}

std::unique_ptr<Compiler> make_ptxas_compiler(const Target& target) {
  std::string path = ptxas_path();
  if (path.empty()) return make_ptx_compiler(target);
  return std::make_unique<PtxasCompiler>(target, std::move(path));
}

}  // namespace tg
