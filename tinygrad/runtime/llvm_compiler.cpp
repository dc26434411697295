/// \file The LLVM compiler: finds and opens the plugin when the first kernel is not in the disk cache.
#include <dlfcn.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>

#include "tinygrad/base/env.h"
#include "tinygrad/base/error.h"
#include "tinygrad/base/paths.h"
#include "tinygrad/render/llvmir/ptx.h"
#include "tinygrad/runtime/elf_loader.h"
#include "tinygrad/runtime/host_compilers.h"
#include "tinygrad/runtime/llvm_plugin/api.h"

namespace tg {
namespace {

constexpr const char* kPluginName = "tinygrad_llvm";
constexpr const char* kInstallHint =
    "; it is built where LLVM 17 or newer is installed (Debian: llvm-19-dev), TG_LLVM_PLUGIN names it elsewhere";
/// The plugin's calls to LLVM are to reach the library it is linked with: a program may have loaded another copy whose
/// symbols all can see, as TensorFlow is. Sanitizers replace functions of every library and refuse the flag.
#ifdef __has_feature
#define TG_HAS_FEATURE(x) __has_feature(x)
#else
#define TG_HAS_FEATURE(x) 0
#endif
#if !defined(RTLD_DEEPBIND) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
    TG_HAS_FEATURE(address_sanitizer) || TG_HAS_FEATURE(thread_sanitizer) || TG_HAS_FEATURE(memory_sanitizer)
constexpr int kOwnSymbolsFirst = 0;
#else
constexpr int kOwnSymbolsFirst = RTLD_DEEPBIND;
#endif
/// Suggests the other compiler, where there is one.
std::string instead() {
  return clang_path().empty() ? ", and there is no clang 16 or newer to do without" : ", DEV=CPU:CLANG does without";
}

/// The opened plugin; stays open until the process ends.
struct Plugin {
  TgLlvmCompileFn compile = nullptr;
  TgLlvmFreeFn free = nullptr;
  LlvmPluginInfo info;
};

std::mutex plugin_mutex;
Plugin* opened_plugin = nullptr;
std::map<std::string, std::string, std::less<>> plugin_failures;  // by TG_LLVM_PLUGIN: why none could be loaded
std::atomic<int> plugin_failure_count = 0;

/// Tries one candidate; returns why it is rejected, empty on success.
std::string try_open(const std::string& path, Plugin& plugin) {
  const auto start = std::chrono::steady_clock::now();
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | kOwnSymbolsFirst);
  if (!handle) {
    const char* why = dlerror();
    return why ? why : "cannot be opened";
  }
  auto abi = reinterpret_cast<TgLlvmAbiFn>(dlsym(handle, "tg_llvm_abi"));
  auto version = reinterpret_cast<TgLlvmVersionFn>(dlsym(handle, "tg_llvm_version"));
  plugin.compile = reinterpret_cast<TgLlvmCompileFn>(dlsym(handle, "tg_llvm_compile"));
  plugin.free = reinterpret_cast<TgLlvmFreeFn>(dlsym(handle, "tg_llvm_free"));
  if (!abi || !version || !plugin.compile || !plugin.free || abi() != kTgLlvmAbi) {
    dlclose(handle);
    return path + " is no plugin of this version of the library";
  }
  const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - start;
  plugin.info = {true, path, version(), ms.count()};
  return {};
}

Plugin& open_plugin() {
  std::lock_guard lock(plugin_mutex);
  if (opened_plugin) return *opened_plugin;
  Plugin plugin;
  std::string reasons;
  const std::string& override_path = env::TG_LLVM_PLUGIN.get();
  for (const std::string& path : plugin_candidates(kPluginName, override_path)) {
    const std::string reason = try_open(path, plugin);
    if (reason.empty()) return *(opened_plugin = new Plugin(plugin));
    reasons += (reasons.empty() ? " (" : "; ") + reason;
  }
  reasons += reasons.empty() ? "" : ")";
  if (plugin_failures.emplace(override_path, "the LLVM plugin cannot be loaded" + reasons).second)
    plugin_failure_count++;
  throw CompileError("[llvm] the plugin " + std::string(kPluginName) + " was not found" + reasons + kInstallHint +
                     instead());
}

/// Returns size and time of the first plugin file found: another build of it, or another LLVM, must not use what this
/// one compiled.
std::string plugin_identity(const std::string& override_path) {
  for (const std::string& path : plugin_candidates(kPluginName, override_path)) {
    struct stat info;
    if (stat(path.c_str(), &info) == 0) return str(info.st_size, ".", info.st_mtime);
  }
  return "system";
}

/// Returns what tells the plugin at hand from others.
std::string plugin_key() {
  static std::mutex mutex;
  static std::map<std::string, std::string> identities;  // files are examined once per process
  const std::string& override_path = env::TG_LLVM_PLUGIN.get();
  std::lock_guard lock(mutex);
  auto it = identities.find(override_path);
  if (it == identities.end()) it = identities.emplace(override_path, plugin_identity(override_path)).first;
  return str(kTgLlvmAbi, " ", it->second, " ", version());
}

/// Returns what the plugin makes of LLVM IR. Throws CompileError.
std::vector<uint8_t> run_plugin(const std::string& source, const char* triple, const std::string& cpu,
                                const std::string& features, bool assembly) {
  Plugin& plugin = open_plugin();
  TgLlvmRequest request{source.c_str(), source.size(), triple, cpu.c_str(), features.c_str(), 2, assembly ? 1 : 0};
  TgLlvmResult result{};
  plugin.compile(&request, &result);
  struct Free {
    Plugin& plugin;
    TgLlvmResult* result;
    ~Free() { plugin.free(result); }
  } free{plugin, &result};
  TG_CHECK(CompileError, result.data != nullptr, "[llvm] ", result.error ? result.error : "failed without a message");
  return std::vector<uint8_t>(result.data, result.data + result.size);
}

class LlvmCompiler final : public Compiler {
 public:
  explicit LlvmCompiler(const Target& target)
      : cpu_(target.cpu), features_(target.feature_string()), arch_(target.arch) {
    if (cpu_.starts_with("x86-64")) cpu_ = "generic";
  }
  std::vector<uint8_t> compile(const std::string& source) override { return run(source, false); }
  std::string assembly(const std::string& source) override {
    const std::vector<uint8_t> text = run(source, true);
    return std::string(text.begin(), text.end());
  }
  std::string cache_key() const override { return str("llvm ", plugin_key(), " ", arch_, " ", cpu_, " ", features_); }
  std::string cache_table() const override { return "compile_llvm"; }
  bool valid(std::span<const uint8_t> binary) const override {
    try {
      ElfImage::check(binary, arch_);
      return true;
    } catch (const FormatError&) { return false; }
  }

 private:
  std::vector<uint8_t> run(const std::string& source, bool assembly) const {
    const char* triple = arch_ == "arm64"     ? "aarch64-unknown-linux-gnu"  // the loader needs ELF on every system
                         : arch_ == "riscv64" ? "riscv64-unknown-linux-gnu"
                                              : "x86_64-unknown-linux-gnu";
    return run_plugin(source, triple, cpu_, features_, assembly);
  }
  std::string cpu_, features_, arch_;
};

/// PTX is text; drivers compile it.
class PtxCompiler final : public Compiler {
 public:
  explicit PtxCompiler(const std::string& arch) : cpu_(known_processor(arch)) {}
  std::vector<uint8_t> compile(const std::string& source) override {
    // CUDA 12 reads PTX 8.0; code says where it needs that of CUDA 12.4.
    return run_plugin(source, "nvptx64-nvidia-cuda", cpu_, source.starts_with(kNeedsNewPtx) ? "+ptx84" : "+ptx80",
                      true);
  }
  std::string assembly(const std::string& source) override {
    const std::vector<uint8_t> text = compile_cached(source);
    return {text.begin(), text.end()};
  }
  std::string cache_key() const override { return str("ptx ", plugin_key(), " ", cpu_); }
  std::string cache_table() const override { return "compile_ptx"; }

 private:
  /// LLVM 19 knows processors up to sm_90a.
  static std::string known_processor(const std::string& arch) {
    const size_t digits = arch.find_last_of("0123456789") + 1;
    return digits - 3 > 2 ? "sm_90" : arch;
  }
  std::string cpu_;
};

}  // namespace

std::unique_ptr<Compiler> make_llvm_compiler(const Target& target) { return std::make_unique<LlvmCompiler>(target); }

std::unique_ptr<Compiler> make_ptx_compiler(const Target& target) { return std::make_unique<PtxCompiler>(target.arch); }

LlvmPluginInfo llvm_plugin_info() {
  std::lock_guard lock(plugin_mutex);
  return opened_plugin ? opened_plugin->info : LlvmPluginInfo{};
}

int llvm_plugin_failures() { return plugin_failure_count; }

std::string llvm_plugin_missing() {
  {
    std::lock_guard lock(plugin_mutex);
    if (opened_plugin) return {};
    if (const auto failed = plugin_failures.find(env::TG_LLVM_PLUGIN.get()); failed != plugin_failures.end())
      return failed->second;
  }
  for (const std::string& path : plugin_candidates(kPluginName, env::TG_LLVM_PLUGIN.get())) {
    struct stat info;
    if (stat(path.c_str(), &info) == 0) return {};
  }
  if (const std::string& named = env::TG_LLVM_PLUGIN.get(); !named.empty())
    env::not_honoured("TG_LLVM_PLUGIN",
                      str("got ", named, ", where there is no plugin: the CPU's kernels are compiled without LLVM"));
  return "the LLVM plugin was not found";
}

}  // namespace tg
