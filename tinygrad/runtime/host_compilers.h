/// \file The compilers of host code. Both produce ELF objects for ElfImage.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "tinygrad/runtime/compiler.h"
#include "tinygrad/target/target.h"

namespace tg {

/// Returns the compiler from LLVM IR text to objects in this process, by the plugin `tinygrad_llvm`, opened on the
/// first compile().
std::unique_ptr<Compiler> make_llvm_compiler(const Target& target);
/// Returns the compiler from LLVM IR text to PTX by the same plugin, for a target whose arch is one of NVIDIA's
/// ("sm_90"). PTX for a newer one than LLVM knows is for the newest that it does: drivers compile it for theirs.
std::unique_ptr<Compiler> make_ptx_compiler(const Target& target);
/// Returns the compiler from C text to objects by the clang that CC names, one child process per kernel.
std::unique_ptr<Compiler> make_clang_compiler(const Target& target);

/// State of the LLVM plugin, for `tg devices` and tests.
struct LlvmPluginInfo {
  bool opened = false;
  std::string path;     ///< of the opened plugin
  std::string version;  ///< of its LLVM
  double load_ms = 0;   ///< what opening took
};
LlvmPluginInfo llvm_plugin_info();
/// Returns empty when the plugin can be found, else what is missing: also when it was found, but could not be loaded
/// when a kernel needed it. Opens nothing.
std::string llvm_plugin_missing();
/// Returns how often the plugin could not be loaded: where that changes, llvm_plugin_missing() may.
int llvm_plugin_failures();
/// Returns the path of the clang that make_clang_compiler runs; empty when there is none.
std::string clang_path();
/// Runs that clang on text and returns what it writes. Throws CompileError with its messages, or where there is none,
/// which `else_what` may add to.
std::string run_clang(const std::vector<std::string>& options, const std::string& source,
                      const std::string& else_what = "");

}  // namespace tg
