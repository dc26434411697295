/// \file The clang compiler: C on standard input, an object on standard output.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <mutex>

#include "tinygrad/base/env.h"
#include "tinygrad/base/error.h"
#include "tinygrad/base/paths.h"
#include "tinygrad/base/process.h"
#include "tinygrad/runtime/cpu_detect.h"
#include "tinygrad/runtime/elf_loader.h"
#include "tinygrad/runtime/host_compilers.h"

namespace tg {
namespace {

constexpr int kNewestClang = 30, kOldestClang = 16;

/// Returns the full path of a program, empty when there is none.
std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return access(name.c_str(), X_OK) == 0 ? name : std::string();
  const char* path = std::getenv("PATH");
  const std::string dirs = path ? path : "/usr/bin:/bin";
  for (size_t begin = 0; begin <= dirs.size();) {
    const size_t end = std::min(dirs.find(':', begin), dirs.size());
    const std::string file = dirs.substr(begin, end - begin) + "/" + name;
    if (end > begin && access(file.c_str(), X_OK) == 0) return file;
    begin = end + 1;
  }
  return {};
}

/// Whether a program is clang, whatever its name.
bool is_clang(const std::string& path) {
  if (path.substr(path.rfind('/') + 1).find("clang") != std::string::npos) return true;
  return run_process({path, "--version"}).out.find("clang") != std::string::npos;
}

/// Returns the newest clang on the PATH: the unversioned name may be an old one.
std::string find_clang() {
  std::string found;
  for (int v = kNewestClang; v >= kOldestClang && found.empty(); --v)
    found = find_program("clang-" + std::to_string(v));
  return found.empty() ? find_program("clang") : found;
}

class ClangCompiler final : public Compiler {
 public:
  explicit ClangCompiler(const Target& target) : arch_(target.arch) {
    flags_ = {"-x",
              "c",
              "-std=gnu11",
              "-O2",
              "-fPIC",
              "-ffp-contract=off",
              "-fsigned-char",
              "-fno-math-errno",
              "-fno-stack-protector",
              "-fno-unwind-tables",
              "-fno-asynchronous-unwind-tables",
              "-fno-ident",
              "-w"};
    if (target.arch == "arm64") {
      std::string march = "-march=armv8-a";
      for (const std::string& f : target.features)
        if (f != "neon") march += "+" + (f == "fullfp16" ? "fp16" : f);
      flags_.insert(flags_.end(), {"--target=aarch64-unknown-linux-gnu", march});
      return;
    }
    if (target.arch == "riscv64") {
      std::string march = "-march=rv64i";
      for (const char* f : {"m", "a", "f", "d", "c", "v"})
        if (target.has(f)) march += f;
      for (const std::string& f : target.features)
        if (f.size() > 1) march += "_" + f;
      flags_.insert(flags_.end(), {"--target=riscv64-unknown-linux-gnu", march, "-mabi=lp64d", "-mno-relax"});
      return;
    }
    flags_.insert(flags_.end(), {"--target=x86_64-unknown-linux-gnu", "-march=x86-64"});
    if (target.cpu.starts_with("x86-64")) flags_.push_back("-mtune=generic");
    else  // an older clang may not know the name, but knows its own host
      flags_.push_back("-mtune=" + (target.cpu == host_processor().cpu ? "native" : target.cpu));
    for (const std::string& f : target.features) flags_.push_back("-m" + f);
    flags_.push_back("-fexcess-precision=16");  // float16 rounds after each operation
    flags_.push_back("-mprefer-vector-width=" + std::to_string(target.vector_bytes * 8));
  }

  std::vector<uint8_t> compile(const std::string& source) override {
    const std::string out = run(source, {"-c"});
    return std::vector<uint8_t>(out.begin(), out.end());
  }
  std::string assembly(const std::string& source) override { return run(source, {"-S"}); }
  std::string cache_key() const override {
    const std::string path = clang_path();
    struct stat info{};
    std::string key = "clang " + path;
    if (!path.empty() && stat(path.c_str(), &info) == 0) key += str(" ", info.st_size, ".", info.st_mtime);
    for (const std::string& f : flags_) key += " " + (f == "-mtune=native" ? "-mtune=" + host_processor().cpu : f);
    return key + " " + std::string(version());
  }
  std::string cache_table() const override { return "compile_clang"; }
  bool valid(std::span<const uint8_t> binary) const override {
    try {
      ElfImage::check(binary, arch_);
      return true;
    } catch (const FormatError&) { return false; }
  }

 private:
  std::string run(const std::string& source, std::vector<std::string> what) const {
    what.insert(what.begin(), flags_.begin(), flags_.end());
    return run_clang(
        what, source,
        llvm_plugin_missing().empty() ? ", DEV=CPU:LLVM does without" : ", and the LLVM plugin was not found either");
  }
  std::string arch_;
  std::vector<std::string> flags_;
};

}  // namespace

std::string run_clang(const std::vector<std::string>& options, const std::string& source,
                      const std::string& else_what) {
  const std::string path = clang_path();
  TG_CHECK(CompileError, !path.empty(), "[clang] found no clang ", kOldestClang, " or newer (CC=", env::CC.get(),
           "); CC names one", else_what);
  std::vector<std::string> argv{path};
  argv.insert(argv.end(), options.begin(), options.end());
  argv.insert(argv.end(), {"-", "-o", "-"});
  ProcessOptions input;
  input.input = source;
  ProcessResult result = run_process(argv, input);
  TG_CHECK(CompileError, result.ok() && !result.out.empty(), "[clang] ", path, " ended with ",
           result.signal ? str("signal ", result.signal) : str("status ", result.exit_code), ":\n", result.err);
  return std::move(result.out);
}

std::string clang_path() {
  static std::mutex mutex;
  static std::string asked, found;
  const std::string& name = env::CC.get();
  std::lock_guard lock(mutex);
  if (asked == name) return found;
  asked = name;
  found = name == "clang" ? find_clang() : find_program(name);
  // Environments often name another compiler, for whatever is built in them.
  if (!found.empty() && !is_clang(found)) found = find_clang();
  return found;
}

std::unique_ptr<Compiler> make_clang_compiler(const Target& target) { return std::make_unique<ClangCompiler>(target); }

}  // namespace tg
